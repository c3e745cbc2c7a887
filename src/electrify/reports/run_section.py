"""What a page says of one pre-training run."""

import math
from typing import Any

from electrify.config import to_toml
from electrify.recipes.schema import OBJECTIVES
from electrify.reports import curves
from electrify.reports.page import (
    EMPTY_CELL,
    Html,
    Section,
    Tile,
    code,
    details,
    grid,
    name,
    pairs,
    paragraph,
    table,
    text,
    tiles,
)
from electrify.reports.plots import short
from electrify.reports.provenance import sources_table
from electrify.reports.run import COUNTS, TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord

MOST_ROWS = 24  # of the table of measurements


def run_section(run: RunRecord, key: str, examples: list[Html]) -> Section:
    """Everything about a run; `examples` are heat maps, or why there are none."""
    parts: list[Html | Section] = [
        headline(run),
        Section(text("Curves"), _curves(run, key), f"{key}-curves"),
        *([Section(text("Corrupted examples"), examples, f"{key}-examples")] if examples else []),
        Section(text("Data"), _data(run, key), f"{key}-data"),
        Section(text("Provenance"), _provenance(run), f"{key}-provenance"),
    ]
    return Section(name(run.name), parts, key)


def number(value: float | None, form: str) -> Html:
    """A measured number, or a dash where there is none."""
    return EMPTY_CELL if value is None or math.isnan(value) else text(f"{value:{form}}")


def capitalised(label: str) -> str:
    """Return a label with a capital first letter, its others as they are.

    >>> capitalised("masked-LM loss")
    'Masked-LM loss'
    """
    return label[:1].upper() + label[1:]


def state(run: RunRecord) -> Html:
    """Whether the run is over."""
    if run.finished:
        return Html('<span class="state">finished</span>')
    return Html(
        f'<span class="state open">not finished: step {run.step:,} of {run.steps:,}</span> '
        "The page shows what was measured so far."
    )


def headline(run: RunRecord) -> Html:
    """The numbers one asks for first."""
    latest = run.last(VALIDATION_SPLIT) or {}
    when = text(f"held-out, step {latest['step']:,}" if latest else "not measured on held-out text")
    body, maker = run.recipe.discriminator, run.recipe.generator
    pair = f"generator: {maker.width:g} × width, {maker.depth:g} × depth"
    has_generator = "generator" in run.objective.roles
    kind, share = run.recipe.objective.kind, 100 * run.step / run.steps
    rows = [
        Tile("Objective", text(kind.upper()), text(OBJECTIVES[kind].title)),
        Tile("Architecture", text(body.architecture), text(pair if has_generator else "")),
        Tile(
            "Parameters",
            EMPTY_CELL if run.parameters is None else text(short(run.parameters)),
            text("no checkpoint yet" if run.parameters is None else f"{run.parameters:,} together"),
        ),
        Tile("Steps", text(f"{run.step:,}"), text(f"of {run.steps:,} ({share:.0f} %)")),
        Tile("Tokens seen", _tokens(run), text("without padding")),
        *(
            Tile(capitalised(look.label), number(latest.get(name), look.form), when)
            for name, look in run.objective.shown.items()
            if look.curve
        ),
    ]
    speed = text("median; on the machine below")
    return tiles([*rows, Tile("Tokens a second", number(run.usual_speed, ",.0f"), speed)])


def _tokens(run: RunRecord) -> Html:
    return EMPTY_CELL if math.isnan(run.tokens_seen) else text(short(run.tokens_seen))


def _curves(run: RunRecord, key: str) -> list[Html]:
    drawn = [curves.drawn(run, n, key) for n, look in run.objective.shown.items() if look.curve]
    drawn += [
        curves.simple("Learning rate", run.series(TRAIN_SPLIT, "learning_rate"), f"{key}-rate"),
        curves.simple("Tokens a second", run.speed, f"{key}-speed"),
    ]
    found = [one for one in drawn if one]
    if not found:
        return [paragraph(text("Nothing was measured yet."))]
    parts = [grid(found)]
    if (latest := run.last(VALIDATION_SPLIT)) and not latest.keys().isdisjoint(run.objective.shown):
        numbers = {n: math.nan if v is None else v for n, v in latest.items() if n != "split"}
        said = run.objective.reading(run.sizes, latest["step"], numbers)
        parts.append(paragraph(text(f"On held-out text at step {latest['step']:,}: {said}.")))
    return [*parts, *_measurements(run)]


def _measurements(run: RunRecord) -> list[Html]:
    split = VALIDATION_SPLIT if run.last(VALIDATION_SPLIT) else TRAIN_SPLIT
    records = [record for record in run.metrics if record["split"] == split]
    shown = _thinned(records)
    known = {n: m for n, m in run.objective.shown.items() if any(n in record for record in shown)}
    words = "held-out" if split == VALIDATION_SPLIT else "training"
    caption = f"{len(shown)} of {len(records)} measurements on {words} text"
    rows = [
        [text(f"{r['step']:,}"), *(number(r.get(n), look.form) for n, look in known.items())]
        for r in shown
    ]
    columns = [text("step"), *(text(look.label) for look in known.values())]
    return [details(text("The numbers as a table"), table(caption, columns, rows))]


def _thinned(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of many, evenly, with the last."""
    every = math.ceil(len(records) / MOST_ROWS)
    return [r for at, r in enumerate(reversed(records)) if at % every == 0][::-1] if records else []


def _data(run: RunRecord, key: str) -> list[Html]:
    rows = []
    for split, counts in run.splits.items():
        unknown = counts["unknown_tokens"] / max(1, counts["tokens"])
        mean = curves.mean_length(counts["lengths"])
        cells = [text(f"{counts[name]:,}") for name in COUNTS]
        rows.append([text(split), *cells, number(mean, ".1f"), text(f"{100 * unknown:.3f} %")])
    columns = ["split", *(name.replace("_", " ") for name in COUNTS), "mean length", "unknown"]
    identity = run.about["shards"]["identity"]
    made = identity["settings"]
    epochs = run.step * run.recipe.run.batch_size / max(1, run.splits["train"]["examples"])
    words = (
        f"A vocabulary of {identity['tokenizer']['vocab_size']:,}, examples of up to "
        f"{made['length']} tokens; the run has seen the training examples {epochs:.2f} times. "
        f"The shards are {run.data_state}."
    )
    histogram = curves.lengths(run.splits["train"]["lengths"], f"{key}-lengths")
    return [
        paragraph(text(words)),
        table("What the shards hold", [text(c) for c in columns], rows),
        *([grid([histogram])] if histogram else []),
    ]


def _provenance(run: RunRecord) -> list[Html]:
    about = run.about
    git, machine = about.get("git") or {}, about.get("machine") or {}
    commit = f"{git['commit']}{', with changes' if git.get('changed') else ''}" if git else "none"
    inputs = about["shards"]["identity"].get("inputs", [])
    rows = [
        ("Data", name(about["data"])),
        ("Fingerprint of the data", code(about["identity"]["data"]["manifest_sha256"])),
        *((f"Documents: {i['name']}", code(i["manifest_sha256"])) for i in inputs),
        ("Versions", text(", ".join(f"{n} {v}" for n, v in about.get("made_with", {}).items()))),
        ("Machine", text(", ".join([machine.get("platform", ""), *machine.get("devices", [])]))),
        ("Code under git", text(commit)),
        ("Seed", text(run.recipe.run.seed)),
    ]
    if about["identity"].get("budget"):
        rows.append(("Budget of time", text(about["identity"]["budget"])))
    recipe = Html(f'<pre tabindex="0">{text(to_toml(run.recipe).strip())}</pre>')
    return [
        pairs(rows),
        details(text("The recipe"), recipe),
        sources_table(run.sources),
    ]
