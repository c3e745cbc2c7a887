"use strict";

// User input and responses reach the page only through textContent and attributes.

const WAIT = 250; // milliseconds after the last key before a request is sent
const SIGNS = { caught: "✓", missed: "✗", "false-alarm": "!", suspected: "?" };
const COUNTS = {
  caught: "caught",
  missed: "missed",
  "false-alarm": "false alarms",
  suspected: "suspected",
};

const page = Object.fromEntries(
  [...document.querySelectorAll("[id]")].map((element) => [element.id, element]),
);
let corrupts = false; // whether the model has a generator
let corrupted = false; // whether a corrupted text is shown
let timer = 0;
let running = null;

function make(name, text, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

async function ask() {
  clearTimeout(timer);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const request = { text: page.text.value, corrupt: corrupted, seed: seed() };
  page.card.classList.add("busy");
  try {
    const response = await fetch("/tokens", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
      signal,
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    if (!signal.aborted) show(answer);
  } catch (error) {
    if (!signal.aborted) trouble(error);
  } finally {
    if (!signal.aborted) page.card.classList.remove("busy");
  }
}

function trouble(error) {
  const disconnected = error instanceof TypeError;
  page.trouble.textContent = disconnected ? "The server has stopped. Start it again." : error.message;
  page.trouble.hidden = false;
}

function show(answer) {
  page.trouble.hidden = true;
  page.heading.textContent = corrupted
    ? "Your text with tokens replaced by the generator"
    : "Your text, token by token";
  notes(answer.notes);
  tokens(answer.tokens);
  counts(answer.counts);
  page.status.textContent = answer.tokens.length ? `${answer.said}.` : "";
  notable(answer.tokens);
}

function notes(list) {
  page.notes.replaceChildren(...list.map((note) => make("p", note, "note")));
}

function tokens(list) {
  page.heat.classList.toggle("empty", !list.length);
  if (!list.length) {
    page.heat.removeAttribute("role");
    page.heat.textContent = page.text.value ? "This text has no tokens." : "Type a text to see predictions.";
    return;
  }
  page.heat.setAttribute("role", "list");
  page.heat.replaceChildren(...list.flatMap((token) => [token.before, span(token)]));
  page.heat.querySelector(".token").tabIndex = 0;
}

function span(token) {
  const element = make("span", token.text, `token ${token.verdict}`);
  element.style.setProperty("--heat", token.probability);
  element.setAttribute("role", "listitem");
  element.setAttribute("aria-label", token.says);
  element.dataset.says = token.says;
  element.tabIndex = -1;
  return element;
}

function counts(number) {
  const shown = Object.keys(COUNTS).filter((name) => name in number);
  page.counts.replaceChildren(
    ...shown.map((name) => {
      const pair = document.createElement("div");
      pair.className = name;
      pair.append(make("dt", COUNTS[name]), make("dd", number[name]));
      return pair;
    }),
  );
  page.counts.hidden = !number.tokens;
}

function notable(list) {
  const shown = list.filter((token) => token.verdict in SIGNS);
  page.notable.replaceChildren(...shown.map(row));
  page.notable.hidden = !shown.length;
}

function row(token) {
  const element = document.createElement("li");
  const change = make("span", token.original ? " → " : "");
  if (token.original) change.prepend(make("del", token.original.trim()));
  change.append(token.text);
  element.append(
    make("span", SIGNS[token.verdict]),
    change,
    make("span", `${Math.round(100 * token.probability)} %`),
    make("span", token.words),
  );
  return element;
}

function seed() {
  const number = Math.trunc(Number(page.seed.value));
  return Number.isFinite(number) ? Math.min(Math.max(number, 0), 999999999) : 0;
}

function turn(on) {
  corrupted = on && corrupts;
  ready();
  ask();
}

function ready() {
  page.corrupt.disabled = !corrupts || page.text.value.trim() === "";
  page.corrupt.textContent = corrupted ? "Another sample" : "Corrupt";
  page.back.disabled = !corrupted;
  page.length.textContent = `${page.text.value.length.toLocaleString("en")} of 2,000 characters`;
}

page.text.addEventListener("input", () => {
  corrupted = false;
  ready();
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
});
page.corrupt.addEventListener("click", () => {
  if (corrupted) page.seed.value = seed() + 1;
  turn(true);
});
page.back.addEventListener("click", () => {
  turn(false);
  page.text.focus();
});
page.seed.addEventListener("change", () => {
  if (corrupted) ask();
});

// The tokens are one tab stop; the arrow keys move between them.
page.heat.addEventListener("keydown", (event) => {
  const all = [...page.heat.querySelectorAll(".token")];
  const current = all.indexOf(document.activeElement);
  const forward = getComputedStyle(page.heat).direction === "rtl" ? -1 : 1;
  const steps = { ArrowRight: forward, ArrowLeft: -forward, Home: -current, End: all.length - 1 - current };
  const next = all[current + steps[event.key]];
  if (current < 0 || !next) return;
  event.preventDefault();
  all[current].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

fetch("/model")
  .then((response) => response.json())
  .then((about) => {
    corrupts = about.corrupts;
    page.model.textContent = about.model;
    page.text.value ||= about.text;
    notes(about.notes);
    ready();
    if (page.text.value) ask();
  })
  .catch(trouble);
