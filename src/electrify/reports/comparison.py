"""The report section that compares runs."""

from collections.abc import Sequence

from electrify.config import to_dict
from electrify.objectives.objective import Metric
from electrify.reports import plots
from electrify.reports.curves import describe, splits_drawn
from electrify.reports.page import Html, Key, Section, figure, grid, name, paragraph, table, text
from electrify.reports.plots import DASHES, SERIES, Line
from electrify.reports.run import TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord
from electrify.reports.run_section import number, short_number
from electrify.storage.commit import flat
from electrify.training.folder import FREE


def comparison_section(runs: Sequence[RunRecord]) -> Section:
    """Return headline numbers, overlaid curves, and the differences between recipes."""
    figures = [drawn for n, m in _metrics(runs).items() if (drawn := _overlaid(runs, n, m))]
    curves = [grid(figures)] if figures else []
    parts = [_headlines(runs), *curves, _notes(runs), _recipes(runs)]
    return Section(text("Comparison"), parts, "comparison")


def _headlines(runs: Sequence[RunRecord]) -> Html:
    metrics, rows = _metrics(runs), []
    for run in runs:
        latest = run.last(VALIDATION_SPLIT) or {}
        rows.append(
            [
                name(run.name),
                text(run.recipe.discriminator.architecture),
                short_number(run.parameters),
                text(f"{run.step:,} of {run.steps:,}"),
                short_number(run.tokens_seen),
                *(number(latest.get(n), metric.form) for n, metric in metrics.items()),
                number(run.median_speed, ",.0f"),
            ]
        )
    titles = ["run", "architecture", "parameters", "steps", "tokens seen"]
    titles += [*(metric.label for metric in metrics.values()), "tokens/s"]
    caption = "Latest validation metrics"
    return table(caption, [text(title) for title in titles], rows, left=(0, 1))


def _metrics(runs: Sequence[RunRecord]) -> dict[str, Metric]:
    """Return the metrics that any of the runs draws."""
    shown = (item for run in runs for item in run.objective.shown.items())
    return {name: metric for name, metric in shown if metric.curve}


def _overlaid(runs: Sequence[RunRecord], metric: str, shown: Metric) -> Html | None:
    """Draw one metric of all runs: training as thin lines, validation as thick ones."""
    lines, keys, sentences = list[Line](), [], [f"{shown.curve} over steps."]
    for series, run in enumerate(runs):
        train, validation = (run.series(split, metric) for split in (TRAIN_SPLIT, VALIDATION_SPLIT))
        dashes = DASHES[series % len(DASHES)]
        if not (drawn := splits_drawn(train, validation, (series, series), dashes)):
            continue
        lines += drawn
        keys.append(Key(name(run.name), series % SERIES, dashes))
        sentences += [
            describe(f"{run.name}, training", train, shown.form),
            describe(f"{run.name}, validation", validation, shown.form),
        ]
    if not lines:
        return None
    svg = plots.curves(f"comparison-{metric}", lines)
    return figure(text(shown.curve), svg, " ".join(filter(None, sentences)), keys)


def _notes(runs: Sequence[RunRecord]) -> Html:
    notes = ["Thin lines show training metrics, thick lines validation metrics."]
    if len({run.sizes.vocab_size for run in runs}) > 1:
        notes.append("The vocabularies differ, so masked-LM losses are not comparable.")
    if len({run.about["identity"]["data"]["manifest_sha256"] for run in runs}) > 1:
        notes.append("The shards differ, so validation losses are on different text.")
    return paragraph(text(" ".join(notes)))


def _recipes(runs: Sequence[RunRecord]) -> Html:
    """Return the fields that affect training and differ between the recipes."""
    recipes = [flat(to_dict(run.recipe)) for run in runs]
    names = sorted({field for recipe in recipes for field in recipe})
    rows = [
        [text(field), *(text(recipe.get(field, "–")) for recipe in recipes)]
        for field in names
        if field.rpartition(".")[2] not in FREE
        and len({str(recipe.get(field)) for recipe in recipes}) > 1
    ]
    if not rows:
        return paragraph(text("The recipes differ at most in logging and checkpointing."))
    columns = [text("field"), *(name(run.name) for run in runs)]
    return table("Differences between the recipes", columns, rows)
