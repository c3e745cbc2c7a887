"""The curves of a run, with reference values and text descriptions."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from electrify.reports import plots
from electrify.reports.page import Html, Key, figure, text
from electrify.reports.plots import Band, Level, Line, Point
from electrify.reports.run import TRAIN_SPLIT, VALIDATION_SPLIT, RunRecord, Series

MOSTLY_FULL = 0.3  # the bar of the longest examples would dwarf the others
MOST_DOTS = 40  # per line; more would hide it


def drawn(run: RunRecord, metric: str, key: str) -> Html | None:
    """Draw a metric on the training and validation sets; None if it was never measured."""
    shown = run.objective.shown[metric]
    train, validation = (run.series(split, metric) for split in (TRAIN_SPLIT, VALIDATION_SPLIT))
    lines = splits_drawn(train, validation, (0, 1))
    if not lines:
        return None
    levels = [Level(*level) for level in shown.levels(run.sizes, run.latest)]
    bands = [Band(*band) for band in shown.bands(run.sizes, run.latest)]
    points = _points(run, metric)
    svg = plots.curves(f"{key}-{metric}", lines, levels, bands, points, run.tokens_per_step)
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
    description = " ".join(filter(None, sentences))
    return figure(text(shown.curve), svg, description, keys, hint=shown.hint)


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


def simple(title: str, series: Series, key: str, hint: str, tokens_per_step: float) -> Html | None:
    """Draw a single curve; None if it has no points."""
    if not series.steps:
        return None
    lines = [Line(series.steps, series.values)]
    svg = plots.curves(key, lines, tokens_per_step=tokens_per_step)
    description = describe(f"{title} over steps", series, ".6g")
    return figure(text(title), svg, description, hint=hint)


def time_breakdown(shares: Mapping[str, float], key: str) -> Html | None:
    """Draw what the time was spent on; None if it was not measured."""
    if not shares:
        return None
    parts = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    hint = "Most of the time should go to forward and backward passes: there the model learns."
    svg = plots.share_bars(key, shares)
    return figure(text("Time breakdown"), svg, f"Shares of the time: {parts}.", hint=hint)


def calibration(rates: Sequence[tuple[float, float]], key: str) -> Html | None:
    """Draw how often tokens were replaced, by their predicted probability; None if unknown."""
    if not rates:
        return None
    hint = (
        "How often tokens were replaced (bars) at each predicted probability. Where a bar ends at "
        "the dashed line, the probability can be trusted."
    )
    svg = plots.reliability(key, rates, "predicted probability")
    found = ", ".join(f"at {predicted:.0%} {observed:.0%}" for predicted, observed in rates)
    description = f"Fraction of tokens that were replaced by predicted probability: {found}."
    return figure(text("Calibration of the probabilities"), svg, description, hint=hint)


def lengths(counts: Sequence[int], key: str) -> Html | None:
    """Draw a histogram of example lengths; None if there are no examples."""
    total = sum(counts)
    if not total:
        return None
    longest = max(length for length, count in enumerate(counts) if count)
    full, median = counts[longest] / total, _median(counts)
    hint = f"{full:.0%} of the examples have the maximum, {longest} tokens"
    if mostly_full := full > MOSTLY_FULL and full < 1:
        hint += "; the bars show the others"
    description = (
        f"Lengths of the training examples in tokens: {total:,} examples, half of them up to "
        f"{median} tokens; {full:.0%} have the maximum, {longest}."
    )
    svg = plots.bars(key, counts[:longest] if mostly_full else counts, "tokens per example")
    return figure(text("Training examples by length"), svg, description, hint=f"{hint}.")


def _median(counts: Sequence[int]) -> int:
    half = sum(counts) / 2
    return next(length for length, seen in enumerate(accumulate(counts)) if seen >= half)


def mean_length(counts: Sequence[int]) -> float:
    """Return the mean tokens per example; NaN without examples."""
    total = sum(counts)
    return sum(n * count for n, count in enumerate(counts)) / total if total else math.nan
