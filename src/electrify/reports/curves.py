"""The curves of a run: what is drawn over its steps, what it is compared with, and in words."""

import math
from collections.abc import Sequence

from electrify.reports import plots
from electrify.reports.page import Html, Key, figure, text
from electrify.reports.plots import Band, Level, Line, Point
from electrify.reports.run import TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord, Series

MOST_DOTS = 40  # on a line; more would hide it


def drawn(run: RunRecord, metric: str, key: str) -> Html | None:
    """Draw a metric on the training and the validation set; None if it was never measured."""
    look = run.objective.shown[metric]
    train, validation_batches = (
        run.series(split, metric) for split in (TRAIN_SPLIT, VALIDATION_SPLIT)
    )
    lines = [
        Line(train.steps, train.values, 0, faint=bool(validation_batches.steps)),
        Line(
            validation_batches.steps,
            validation_batches.values,
            1,
            dots=len(validation_batches.steps) <= MOST_DOTS,
        ),
    ]
    lines = [line for line in lines if line.steps]
    if not lines:
        return None
    levels = [Level(*level) for level in look.levels(run.sizes, run.latest)]
    bands, points = [Band(*band) for band in look.bands(run.sizes)], _points(run, metric)
    svg = plots.curves(f"{key}-{metric}", lines, levels, bands, points)
    keys = [
        Key(text("training text"), 0, faint=bool(validation_batches.steps)),
        Key(text("held-out text"), 1),
    ]
    keys = [k for k, series in zip(keys, (train, validation_batches), strict=True) if series.steps]
    keys += [Key(text(point.label), 0, diamond=True) for point in points]
    said = [f"{look.curve} over steps."]
    said += [in_words("Training text", train, look.form)]
    said += [in_words("Held-out text", validation_batches, look.form)]
    marks = [*(level.label for level in levels), *(point.label for point in points)]
    said += [f"To compare with: {mark}." for mark in marks]
    said += [f"From {b.low:.2f} to {b.high:.2f}: {b.label}." for b in bands]
    return figure(text(look.curve), svg, " ".join(filter(None, said)), keys)


def _points(run: RunRecord, metric: str) -> list[Point]:
    """The public reading, where the run is like it and has come that far."""
    reading = run.objective.reference(run.sizes)
    if reading is None or metric not in reading.metrics or run.step < reading.step:
        return []
    value = reading.metrics[metric]
    return [Point(reading.step, value, f"official code at step {reading.step:,}: {value}")]


def in_words(label: str, series: Series, form: str) -> str:
    """A curve for those who do not see it; empty if there is none.

    >>> in_words("Loss", Series([1, 2, 3], [9.0, 4.0, 5.0]), ".1f")
    'Loss: 9.0 at step 1, 5.0 at step 3, between 4.0 and 9.0.'
    """
    if not series.steps:
        return ""
    (first, *_), (*_, last) = series.values, series.values
    if len(series.steps) == 1:
        return f"{label}: {first:{form}} at step {series.steps[0]:,}."
    low, high = min(series.values), max(series.values)
    return (
        f"{label}: {first:{form}} at step {series.steps[0]:,}, {last:{form}} at step "
        f"{series.steps[-1]:,}, between {low:{form}} and {high:{form}}."
    )


def simple(title: str, series: Series, key: str) -> Html | None:
    """One curve with nothing beside it; None if there is nothing to draw."""
    if not series.steps:
        return None
    svg = plots.curves(key, [Line(series.steps, series.values)])
    return figure(text(title), svg, in_words(f"{title} over steps", series, ".6g"))


def lengths(counts: Sequence[int], key: str) -> Html | None:
    """How long the examples are."""
    total = sum(counts)
    if not total:
        return None
    longest = max(length for length, count in enumerate(counts) if count)
    full, middle = counts[longest] / total, _median(counts)
    said = (
        f"Lengths of the training examples in tokens: {total:,} examples, half of them up to "
        f"{middle} tokens; {full:.0%} have the most, {longest}."
    )
    svg = plots.bars(key, counts, "tokens in an example")
    return figure(text("Training examples by length"), svg, said)


def _median(counts: Sequence[int]) -> int:
    half, seen = sum(counts) / 2, 0
    for length, count in enumerate(counts):
        seen += count
        if seen >= half:
            return length
    return 0


def mean_length(counts: Sequence[int]) -> float:
    """Tokens an example has on average; not a number for no examples."""
    total = sum(counts)
    return sum(n * count for n, count in enumerate(counts)) / total if total else math.nan
