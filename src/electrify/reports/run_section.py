"""The report section of one pre-training run."""

import math
from typing import Any

from electrify.batches.packing import compositions
from electrify.config import to_toml
from electrify.progress import duration
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
    joined,
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
from electrify.training.extension import REPLANNED

MOST_ROWS = 24  # in the table of metrics
SIMPLE_CURVES = {
    "learning_rate": (
        "Learning rate",
        "How far each step may move the weights; the recipe sets it.",
    ),
    "gradient_norm": (
        "Gradient norm",
        "How strongly a batch pulls at the weights. A few spikes are harmless; steady growth means "
        "that training is becoming unstable.",
    ),
    "speed": (
        "Tokens per second",
        "Dips are evaluations, checkpoints or other programs on the machine.",
    ),
}
"""Curves that every objective has: title, and how to read it."""


def run_section(run: RunRecord, key: str, examples: list[Html], caught: str = "") -> Section:
    """Return everything about a run.

    `examples` are heat maps, or why there are none; `caught` are a few detected tokens of them.
    """
    parts: list[Html | Section] = [
        *_verdict(run, caught),
        headline(run),
        Section(text("Curves"), _curves(run, key), f"{key}-curves"),
        *([Section(text("Corrupted examples"), examples, f"{key}-examples")] if examples else []),
        Section(text("Data"), _data(run, key), f"{key}-data"),
        Section(text("Provenance"), _provenance(run), f"{key}-provenance"),
    ]
    return Section(name(run.name), parts, key)


def verdict_headline(run: RunRecord) -> Html:
    """Return the verdict on a run in one sentence; empty if there is none."""
    found = run.verdict
    return text(found.headline.replace(" %", "\N{NO-BREAK SPACE}%") if found else "")


def _verdict(run: RunRecord, caught: str) -> list[Html]:
    if (found := run.verdict) is None:
        return []
    reasons = [text(reason) for reason in (*found.reasons, caught) if reason]
    inner = joined(map(paragraph, [Html(f"<strong>{verdict_headline(run)}</strong>"), *reasons]))
    return [Html(f'<div class="verdict {found.grade}">\n{inner}\n</div>')]


def number(value: float | None, form: str) -> Html:
    """Return a number, or a dash if it is missing or NaN."""
    return EMPTY_CELL if value is None or math.isnan(value) else text(f"{value:{form}}")


def short_number(value: float | None) -> Html:
    """Return a number such as 1.5M, or a dash if it is missing or NaN."""
    return EMPTY_CELL if value is None or math.isnan(value) else text(short(value))


def capitalised(label: str) -> str:
    """Return a label with a capital first letter, the others unchanged.

    >>> capitalised("masked-LM loss")
    'Masked-LM loss'
    """
    return label[:1].upper() + label[1:]


def state(run: RunRecord) -> Html:
    """Return whether the run is finished."""
    if run.finished:
        return Html('<span class="state">finished</span>')
    return Html(
        f'<span class="state open">not finished: step {run.step:,} of {run.steps:,}</span> '
        "The page shows what was logged so far."
    )


def headline(run: RunRecord) -> Html:
    """Return the main numbers of a run."""
    latest = run.last(VALIDATION_SPLIT) or {}
    when = text(f"validation, step {latest['step']:,}" if latest else "not evaluated yet")
    encoder, generator = run.recipe.discriminator, run.recipe.generator
    sizes = f"generator: {generator.width:g} × width, {generator.depth:g} × depth"
    has_generator = "generator" in run.objective.roles
    spent = duration(run.seconds) if run.timing else EMPTY_CELL
    kind, percent = run.recipe.objective.kind, 100 * run.step / run.steps
    rows = [
        Tile("Objective", text(kind.upper()), text(OBJECTIVES[kind].title)),
        Tile("Architecture", text(encoder.architecture), text(sizes if has_generator else "")),
        Tile(
            "Parameters",
            short_number(run.parameters),
            text("no checkpoint yet" if run.parameters is None else f"{run.parameters:,} in total"),
        ),
        Tile("Steps", text(f"{run.step:,}"), text(f"of {run.steps:,} ({percent:.0f} %)")),
        Tile("Training time", text(spent), text("without set-up and pauses")),
        Tile("Tokens seen", short_number(run.tokens_seen), text("without padding")),
        *(
            Tile(capitalised(metric.label), number(latest.get(name), metric.form), when)
            for name, metric in run.objective.shown.items()
            if metric.curve
        ),
    ]
    speed = text("median, on the machine below")
    return tiles([*rows, Tile("Tokens per second", number(run.median_speed, ",.0f"), speed)])


def _curves(run: RunRecord, key: str) -> list[Html]:
    drawn = [curves.drawn(run, n, key) for n, metric in run.objective.shown.items() if metric.curve]
    drawn.append(curves.calibration(run.objective.calibration(run.latest), f"{key}-calibration"))
    for metric, (title, hint) in SIMPLE_CURVES.items():
        series = run.speed if metric == "speed" else run.series(TRAIN_SPLIT, metric)
        drawn.append(curves.simple(title, series, f"{key}-{metric}", hint, run.tokens_per_step))
    drawn.append(curves.time_breakdown(run.time_shares, f"{key}-time"))
    figures = [figure for figure in drawn if figure]
    if not figures:
        return [paragraph(text("Nothing was logged yet."))]
    parts = [grid(figures)]
    if (latest := run.last(VALIDATION_SPLIT)) and not latest.keys().isdisjoint(run.objective.shown):
        numbers = {n: math.nan if v is None else v for n, v in latest.items() if n != "split"}
        metrics, step = run.objective.headline(run.sizes, numbers), latest["step"]
        reading = run.objective.reading(run.sizes, step, numbers)
        parts.append(
            paragraph(text(f"Validation at step {step:,}: {', '.join(metrics)}. {reading}"))
        )
        if comparisons := run.objective.details(run.sizes, step, numbers):
            items = joined(f"<li>{text(comparison)}</li>" for comparison in comparisons)
            parts.append(Html(f'<ul class="soft">\n{items}\n</ul>'))
    return [*parts, _metrics_table(run)]


def _metrics_table(run: RunRecord) -> Html:
    split = VALIDATION_SPLIT if run.last(VALIDATION_SPLIT) else TRAIN_SPLIT
    records = [record for record in run.metrics if record["split"] == split]
    shown = _thinned(records)
    known = {n: m for n, m in run.objective.shown.items() if any(n in record for record in shown)}
    words = "validation" if split == VALIDATION_SPLIT else "training"
    caption = f"{len(shown)} of {len(records)} records of {words} metrics"
    rows = [
        [text(f"{r['step']:,}"), *(number(r.get(n), metric.form) for n, metric in known.items())]
        for r in shown
    ]
    columns = [text("step"), *(text(metric.label) for metric in known.values())]
    return details(text("Metrics as a table"), table(caption, columns, rows))


def _thinned(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return at most `MOST_ROWS` records, evenly spaced, including the last."""
    return records[:: -max(1, math.ceil(len(records) / MOST_ROWS))][::-1]


def _data(run: RunRecord, key: str) -> list[Html]:
    rows = []
    for split, counts in run.splits.items():
        unknown_rate = counts["unknown_tokens"] / max(1, counts["tokens"])
        mean = curves.mean_length(counts["lengths"])
        cells = [text(f"{counts[name]:,}") for name in COUNTS]
        rows.append([text(split), *cells, number(mean, ".1f"), text(f"{100 * unknown_rate:.3f} %")])
    columns = ["split", *(name.replace("_", " ") for name in COUNTS), "mean length", "unknown rate"]
    identity = run.about["shards"]["identity"]
    per_epoch = run.splits["train"]["examples"]
    if run.recipe.run.packing:
        lengths = run.splits["train"]["lengths"]
        per_epoch = sum(n for n, _ in compositions(lengths, identity["settings"]["length"]))
    epochs = run.examples_seen / max(1, per_epoch)
    words = (
        f"Vocabulary size {identity['tokenizer']['vocab_size']:,}, examples of up to "
        f"{identity['settings']['length']} tokens; the run has trained for {epochs:.2f} epochs. "
        f"The shards are {run.data_state}."
    )
    histogram = curves.lengths(run.splits["train"]["lengths"], f"{key}-lengths")
    return [
        paragraph(text(words)),
        table("Contents of the shards", [text(c) for c in columns], rows),
        *([grid([histogram])] if histogram else []),
    ]


def _provenance(run: RunRecord) -> list[Html]:
    about = run.about
    git, machine = about.get("git") or {}, about.get("machine") or {}
    changes = ", with uncommitted changes" if git.get("changed") else ""
    commit = f"{git['commit']}{changes}" if git else "none"
    inputs = about["shards"]["identity"].get("inputs", [])
    rows = [
        ("Data", name(about["data"])),
        ("Data fingerprint", code(about["identity"]["data"]["manifest_sha256"])),
        *((f"Documents: {i['name']}", code(i["manifest_sha256"])) for i in inputs),
        ("Versions", text(", ".join(f"{n} {v}" for n, v in about.get("made_with", {}).items()))),
        ("Machine", text(", ".join([machine.get("platform", ""), *machine.get("devices", [])]))),
        ("Git commit", text(commit)),
        ("Seed", text(run.recipe.run.seed)),
    ]
    if about["identity"].get("budget"):
        rows.append(("Time budget", text(about["identity"]["budget"])))
    for extension in run.extensions:
        label = "Re-planned" if extension.schedule == REPLANNED else "Extension"
        rows.append((label, text(str(extension))))
    recipe = Html(f'<pre tabindex="0">{text(to_toml(run.recipe).strip())}</pre>')
    return [
        pairs(rows),
        details(text("Recipe"), recipe),
        sources_table(run.sources),
    ]
