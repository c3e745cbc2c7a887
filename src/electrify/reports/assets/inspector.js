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
let cards = []; // one per model
let corrupts = false; // whether a model has a generator
let corrupted = false; // whether a corrupted text is shown
let timer = 0;

function make(name, text, className) {
  const element = document.createElement(name);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)} %`;
}

// The predictions of one model, with its own threshold: probabilities of two models mean different things.
class Card {
  constructor(about, index) {
    this.index = index;
    this.threshold = null; // the model's own
    this.running = null;
    this.root = page.blank.content.firstElementChild.cloneNode(true);
    const find = (selector) => this.root.querySelector(selector);
    this.heat = find(".heat");
    this.flagging = find(".flagging");
    this.slider = find("input");
    this.output = find("output");
    this.reset = find(".reset");
    this.alarms = find(".alarms");
    this.counts = find(".counts");
    this.status = find(".status");
    this.notable = find(".notable");
    this.notes = find(".notes");
    find(".name").textContent = about.model;
    this.root.setAttribute("aria-label", about.model);
    this.note(about.notes);
    this.slider.addEventListener("input", () => this.flag(this.slider.valueAsNumber / 100));
    this.reset.addEventListener("click", () => {
      this.flag(null);
      this.slider.focus();
    });
    this.heat.addEventListener("keydown", (event) => this.step(event));
  }

  async ask() {
    this.running?.abort();
    this.running = new AbortController();
    const { signal } = this.running;
    const { index: model, threshold } = this;
    const request = { text: page.text.value, corrupt: corrupted, seed: seed(), model, threshold };
    this.root.classList.add("busy");
    try {
      const response = await fetch("/tokens", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(request),
        signal,
      });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error);
      if (!signal.aborted) this.show(answer);
    } catch (error) {
      if (!signal.aborted) trouble(error);
    } finally {
      if (!signal.aborted) this.root.classList.remove("busy");
    }
  }

  flag(threshold) {
    this.threshold = threshold;
    this.reset.disabled = threshold === null;
    if (threshold !== null) this.output.textContent = percent(threshold);
    this.ask();
  }

  show(answer) {
    page.trouble.hidden = true;
    const empty = !answer.tokens.length;
    this.note(answer.notes);
    this.draw(answer.tokens);
    this.flagging.hidden = empty;
    this.output.textContent = percent(answer.threshold);
    if (this.threshold === null) this.slider.value = 100 * answer.threshold;
    this.slider.setAttribute("aria-valuetext", percent(answer.threshold));
    const { rate, source } = answer.false_alarms;
    this.alarms.replaceChildren(make("strong", rate), ` false-alarm rate, ${source}`);
    this.count(answer.counts);
    this.status.textContent = empty ? "" : `${answer.said}.`;
    const shown = answer.tokens.filter((token) => token.verdict in SIGNS);
    this.notable.replaceChildren(...shown.map(row));
    this.notable.hidden = !shown.length;
  }

  note(list) {
    this.notes.replaceChildren(...list.map((note) => make("p", note, "note")));
  }

  draw(list) {
    this.heat.classList.toggle("empty", !list.length);
    if (!list.length) {
      this.heat.removeAttribute("role");
      this.heat.textContent = page.text.value ? "This text has no tokens." : "Type a text to see predictions.";
      return;
    }
    this.heat.setAttribute("role", "list");
    this.heat.replaceChildren(...list.flatMap((token) => [token.before, span(token)]));
    this.heat.querySelector(".token").tabIndex = 0;
  }

  count(number) {
    const shown = Object.keys(COUNTS).filter((name) => name in number);
    this.counts.replaceChildren(
      ...shown.map((name) => {
        const pair = document.createElement("div");
        pair.className = name;
        pair.append(make("dt", COUNTS[name]), make("dd", number[name]));
        return pair;
      }),
    );
    this.counts.hidden = !number.tokens;
  }

  // The tokens are one tab stop; the arrow keys move between them.
  step(event) {
    const all = [...this.heat.querySelectorAll(".token")];
    const current = all.indexOf(document.activeElement);
    const forward = getComputedStyle(this.heat).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: forward, ArrowLeft: -forward, Home: -current, End: all.length - 1 - current };
    const next = all[current + steps[event.key]];
    if (current < 0 || !next) return;
    event.preventDefault();
    all[current].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

function ask() {
  clearTimeout(timer);
  cards.forEach((card) => card.ask());
}

function trouble(error) {
  const disconnected = error instanceof TypeError;
  page.trouble.textContent = disconnected ? "The server has stopped. Start it again." : error.message;
  page.trouble.hidden = false;
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

function sentence(example) {
  const button = make("button", example.text);
  button.type = "button";
  button.dir = "auto";
  if (example.note) button.append(" ", make("small", example.note));
  button.addEventListener("click", () => {
    page.text.value = example.text;
    page.examples.open = false;
    turn(false);
    page.corrupt.focus();
  });
  const item = document.createElement("li");
  item.append(button);
  return item;
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
  page.heading.textContent = corrupted
    ? "Your text with tokens replaced by the generator"
    : "Your text, token by token";
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

fetch("/model")
  .then((response) => response.json())
  .then((about) => {
    corrupts = about.corrupts;
    cards = about.models.map((model, index) => new Card(model, index));
    page.main.classList.toggle("compared", cards.length > 1);
    page.cards.replaceChildren(...cards.map((card) => card.root));
    page.sentences.replaceChildren(...about.examples.map(sentence));
    page.examples.hidden = !about.examples.length;
    page.text.value ||= about.text;
    page.examples.open = !page.text.value;
    ready();
    if (page.text.value) ask();
  })
  .catch(trouble);
