"""Statistics of the scores of several seeds: intervals and p-values.

They are about the noise of fine-tuning, on the same examples and from the same weights, and say
nothing of other pre-training seeds, nor of other examples.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregate = Literal["mean", "median", "best"]
"""Of the scores of a task's seeds."""
ScoreArray = NDArray[np.float64]

RESAMPLES = 10_000
FEWEST_FOR_INTERVAL = 6
"""Below it even the range of all scores covers a median in less than 95 % of cases, 1 - 2^(1-n)."""
COVERAGE: dict[Aggregate, dict[int, int]] = {
    "mean": {6: 86, 8: 89, 10: 89, 20: 93},
    "median": {6: 93, 8: 92, 10: 94, 20: 94},
}
"""In how many % of normal samples of so many scores the 95 % interval holds the true value."""
EXACT = 16
"""Up to so many pairs all patterns of signs are tried."""


AGGREGATES: dict[Aggregate, Callable[..., ScoreArray]] = {
    "mean": np.mean,
    "median": np.median,
    "best": np.max,
}


def bounds(values: ScoreArray, aggregate: Aggregate = "mean") -> tuple[float, float]:
    """The range of few scores, or an interval of their mean or median; `bounds_are` says which.

    >>> bounds(np.array([0.5, 0.25]))
    (0.25, 0.5)
    """
    if len(values) < 2:
        return math.nan, math.nan
    if len(values) < FEWEST_FOR_INTERVAL:
        return float(values.min()), float(values.max())
    return interval([values], aggregate)


def bounds_are(count: int, aggregate: Aggregate = "mean") -> str:
    """Name what `bounds` gives for so many scores."""
    if count < FEWEST_FOR_INTERVAL:
        return "the range of the seeds"
    said = f"the 95 % bootstrap interval of the {aggregate}"
    measured = COVERAGE.get(aggregate, {})
    least = max((n for n in measured if n <= count), default=None)
    if least is None:
        return said
    return f"{said} (nominal; {measured[least]} % measured with {least} normal scores)"


def interval(groups: Sequence[ScoreArray], aggregate: Aggregate = "mean") -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over groups of each group's mean or median.

    Every group is drawn from by itself; always the same draws. None for groups of few scores, of
    which it would be far too narrow, nor for the best, of which the bootstrap says nothing.
    """
    few = any(len(values) < FEWEST_FOR_INTERVAL for values in groups)
    if aggregate == "best" or not groups or few:
        return math.nan, math.nan
    draw = np.random.default_rng(0)
    total = np.zeros(RESAMPLES)
    for values in groups:
        chosen = draw.integers(len(values), size=(RESAMPLES, len(values)))
        total += AGGREGATES[aggregate](values[chosen], axis=1)
    low, high = np.quantile(total / len(groups), [0.025, 0.975])
    return float(low), float(high)


def sign_flip(groups: Sequence[ScoreArray]) -> float:
    """The share of sign patterns that take the mean of the groups' means as far from 0, or further.

    >>> sign_flip([np.array([1.0, 2.0, 3.0])])
    0.25
    """
    parts = np.concatenate([values / (len(values) * len(groups)) for values in groups])
    exact = len(parts) <= EXACT
    if exact:
        signs = 1 - 2 * (np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], size=(RESAMPLES, len(parts)))
    rounding = 1e-9 * np.abs(parts).sum()
    reached = int((np.abs(signs @ parts) >= abs(parts.sum()) - rounding).sum())
    return reached / len(signs) if exact else (reached + 1) / (len(signs) + 1)


def deviation(values: Sequence[float] | ScoreArray) -> float:
    """Return the standard deviation, with n - 1; not a number for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
