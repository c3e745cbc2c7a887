"""Several runs beside each other."""

import math
from collections.abc import Sequence

from electrify.config import to_dict
from electrify.objectives.objective import Metric
from electrify.reports import plots
from electrify.reports.curves import MOST_DOTS, in_words
from electrify.reports.page import Html, Key, Section, figure, grid, name, paragraph, table, text
from electrify.reports.plots import DASHES, SERIES, Line, short
from electrify.reports.run import TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord
from electrify.reports.run_section import number
from electrify.storage.commit import flat
from electrify.training.folder import FREE


def comparison_section(runs: Sequence[RunRecord]) -> Section:
    """Headline numbers, curves over each other, and where the recipes differ."""
    figures = [drawn for n, m in _metrics(runs).items() if (drawn := _together(runs, n, m))]
    parts = [_headlines(runs), *([grid(figures)] if figures else []), *_notes(runs)]
    parts += _recipes(runs)
    return Section(text("Comparison"), parts, "comparison")


def _headlines(runs: Sequence[RunRecord]) -> Html:
    rows = []
    for run in runs:
        latest = run.last(VALIDATION_SPLIT) or {}
        rows.append(
            [
                name(run.name),
                text(run.recipe.discriminator.architecture),
                text("–" if run.parameters is None else short(run.parameters)),
                text(f"{run.step:,} of {run.steps:,}"),
                text("–" if math.isnan(run.tokens_seen) else short(run.tokens_seen)),
                *(number(latest.get(name), look.form) for name, look in _metrics(runs).items()),
                number(run.usual_speed, ",.0f"),
            ]
        )
    titles = ["run", "architecture", "parameters", "steps", "tokens seen"]
    titles += [*(look.label for look in _metrics(runs).values()), "tokens/s"]
    caption = "Metrics are the last on held-out text"
    return table(caption, [text(title) for title in titles], rows, left=(0, 1))


def _metrics(runs: Sequence[RunRecord]) -> dict[str, Metric]:
    """Return the metrics that any of the runs draws."""
    shown = (item for run in runs for item in run.objective.shown.items())
    return {name: look for name, look in shown if look.curve}


def _together(runs: Sequence[RunRecord], metric: str, look: Metric) -> Html | None:
    """One metric of all runs, on training text and, stronger, on held-out text."""
    lines, keys, said = [], [], [f"{look.curve} over steps."]
    for place, run in enumerate(runs):
        train, validation_batches = (
            run.series(split, metric) for split in (TRAIN_SPLIT, VALIDATION_SPLIT)
        )
        if not train.steps and not validation_batches.steps:
            continue
        dashes = DASHES[place % len(DASHES)]
        lines.append(
            Line(train.steps, train.values, place, dashes, faint=bool(validation_batches.steps))
        )
        dots = len(validation_batches.steps) <= MOST_DOTS
        lines.append(
            Line(validation_batches.steps, validation_batches.values, place, dashes, dots=dots)
        )
        keys.append(Key(name(run.name), place % SERIES, dashes))
        said.append(in_words(f"{run.name} on training text", train, look.form))
        said.append(in_words(f"{run.name} on held-out text", validation_batches, look.form))
    if not lines:
        return None
    svg = plots.curves(f"comparison-{metric}", lines)
    return figure(text(look.curve), svg, " ".join(filter(None, said)), keys)


def _notes(runs: Sequence[RunRecord]) -> list[Html]:
    said = ["Thin lines are on training text, thick ones with dots on held-out text."]
    if len({run.sizes.vocab_size for run in runs}) > 1:
        said.append("Vocabularies differ, so losses of masked tokens are not of the same thing.")
    if len({run.about["identity"]["data"]["manifest_sha256"] for run in runs}) > 1:
        said.append("The shards differ, so held-out losses are on different text.")
    return [paragraph(text(" ".join(said)))]


def _recipes(runs: Sequence[RunRecord]) -> list[Html]:
    """The fields that move weights and in which the recipes differ."""
    fields = [flat(to_dict(run.recipe)) for run in runs]
    names = sorted({name for one in fields for name in one})
    rows = [
        [text(field), *(text(one.get(field, "–")) for one in fields)]
        for field in names
        if field.rpartition(".")[2] not in FREE and len({str(one.get(field)) for one in fields}) > 1
    ]
    if not rows:
        return [paragraph(text("The recipes are the same, cadences aside."))]
    columns = [text("field"), *(name(run.name) for run in runs)]
    return [table("Where the recipes differ", columns, rows)]
