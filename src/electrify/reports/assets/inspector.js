"use strict";

// What is typed and what is answered reach the page through textContent and attributes alone.

const WAIT = 250; // milliseconds without a key before the model is asked
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
  const question = { text: page.text.value, corrupt: corrupted, seed: seed() };
  page.card.classList.add("busy");
  try {
    const response = await fetch("/tokens", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(question),
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
  const gone = error instanceof TypeError;
  page.trouble.textContent = gone ? "The server has ended. Start it again." : error.message;
  page.trouble.hidden = false;
}

function show(answer) {
  page.trouble.hidden = true;
  page.heading.textContent = corrupted
    ? "What the generator made of it"
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
    page.heat.textContent = page.text.value ? "No tokens in this text." : "Nothing to look at yet.";
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
  const some = list.filter((token) => token.verdict in SIGNS);
  page.notable.replaceChildren(...some.map(row));
  page.notable.hidden = !some.length;
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
  const some = page.text.value.trim() !== "";
  page.corrupt.disabled = !corrupts || !some;
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

// One stop for Tab; the arrow keys go from token to token.
page.heat.addEventListener("keydown", (event) => {
  const all = [...page.heat.querySelectorAll(".token")];
  const here = all.indexOf(document.activeElement);
  const onward = getComputedStyle(page.heat).direction === "rtl" ? -1 : 1;
  const steps = { ArrowRight: onward, ArrowLeft: -onward, Home: -here, End: all.length - 1 - here };
  const next = all[here + steps[event.key]];
  if (here < 0 || !next) return;
  event.preventDefault();
  all[here].tabIndex = -1;
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
