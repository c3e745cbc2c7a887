"""The curves of a run, with reference values and text descriptions."""

import math
from collections.abc import Sequence
from itertools import accumulate

from electrify.reports import plots
from electrify.reports.page import Html, Key, figure, text
from electrify.reports.plots import Band, Level, Line, Point
from electrify.reports.run import TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord, Series

MOST_DOTS = 40  # per line; more would hide it


def drawn(run: RunRecord, metric: str, key: str) -> Html | None:
    """Draw a metric on the training and validation sets; None if it was never measured."""
    shown = run.objective.shown[metric]
    train, validation = (run.series(split, metric) for split in (TRAIN_SPLIT, VALIDATION_SPLIT))
    lines = splits_drawn(train, validation, (0, 1))
    if not lines:
        return None
    levels = [Level(*level) for level in shown.levels(run.sizes, run.latest)]
    bands, points = [Band(*band) for band in shown.bands(run.sizes)], _points(run, metric)
    svg = plots.curves(f"{key}-{metric}", lines, levels, bands, points)
    keys = [Key(text("training"), 0, faint=bool(validation.steps))] if train.steps else []
    keys += [Key(text("validation"), 1)] if validation.steps else []
    keys += [Key(text(point.label), 0, diamond=True) for point in points]
    sentences = [
        f"{shown.curve} over steps.",
        describe("Training", train, shown.form),
        describe("Validation", validation, shown.form),
        *(f"For comparison: {level.label}." for level in levels),
        *(f"For comparison: {point.label}." for point in points),
        *(f"From {band.low:.2f} to {band.high:.2f}: {band.label}." for band in bands),
    ]
    return figure(text(shown.curve), svg, " ".join(filter(None, sentences)), keys)


def splits_drawn(
    train: Series, validation: Series, series: tuple[int, int], dashes: tuple[float, ...] = ()
) -> list[Line]:
    """Return the lines of a metric: validation stands out, training is faint beside it."""
    dots = len(validation.steps) <= MOST_DOTS
    lines = [
        Line(train.steps, train.values, series[0], dashes, faint=bool(validation.steps)),
        Line(validation.steps, validation.values, series[1], dashes, dots=dots),
    ]
    return [line for line in lines if line.steps]


def _points(run: RunRecord, metric: str) -> list[Point]:
    """Return the published reference, if the run is comparable and has reached its step."""
    reference = run.objective.reference(run.sizes)
    if reference is None or metric not in reference.metrics or run.step < reference.step:
        return []
    value = reference.metrics[metric]
    return [Point(reference.step, value, f"official code at step {reference.step:,}: {value}")]


def describe(label: str, series: Series, form: str) -> str:
    """Return a description of a curve for screen readers; empty if it has no points.

    >>> describe("Loss", Series([1, 2, 3], [9.0, 4.0, 5.0]), ".1f")
    'Loss: 9.0 at step 1, 5.0 at step 3, between 4.0 and 9.0.'
    """
    if not series.steps:
        return ""
    first, last = series.values[0], series.values[-1]
    if len(series.steps) == 1:
        return f"{label}: {first:{form}} at step {series.steps[0]:,}."
    low, high = min(series.values), max(series.values)
    return (
        f"{label}: {first:{form}} at step {series.steps[0]:,}, {last:{form}} at step "
        f"{series.steps[-1]:,}, between {low:{form}} and {high:{form}}."
    )


def simple(title: str, series: Series, key: str) -> Html | None:
    """Draw a single curve; None if it has no points."""
    if not series.steps:
        return None
    svg = plots.curves(key, [Line(series.steps, series.values)])
    return figure(text(title), svg, describe(f"{title} over steps", series, ".6g"))


def lengths(counts: Sequence[int], key: str) -> Html | None:
    """Draw a histogram of example lengths; None if there are no examples."""
    total = sum(counts)
    if not total:
        return None
    longest = max(length for length, count in enumerate(counts) if count)
    full, median = counts[longest] / total, _median(counts)
    description = (
        f"Lengths of the training examples in tokens: {total:,} examples, half of them up to "
        f"{median} tokens; {full:.0%} have the maximum, {longest}."
    )
    svg = plots.bars(key, counts, "tokens per example")
    return figure(text("Training examples by length"), svg, description)


def _median(counts: Sequence[int]) -> int:
    half = sum(counts) / 2
    return next(length for length, seen in enumerate(accumulate(counts)) if seen >= half)


def mean_length(counts: Sequence[int]) -> float:
    """Return the mean tokens per example; NaN without examples."""
    total = sum(counts)
    return sum(n * count for n, count in enumerate(counts)) / total if total else math.nan
