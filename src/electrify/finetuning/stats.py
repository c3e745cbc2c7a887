"""Statistics of the scores of several seeds: intervals and p-values.

They cover the noise of fine-tuning with the same examples and the same pre-trained weights, not the
noise of other pre-training seeds or other examples.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregate = Literal["mean", "median", "best"]
"""How the scores of the seeds of a task are aggregated."""
ScoreArray = NDArray[np.float64]

RESAMPLES = 10_000
FEWEST_FOR_INTERVAL = 6
"""With fewer scores, even their range covers the median in less than 95 % of cases, 1 - 2^(1-n)."""
COVERAGE: dict[Aggregate, dict[int, int]] = {
    "mean": {6: 86, 8: 89, 10: 89, 20: 93},
    "median": {6: 93, 8: 92, 10: 94, 20: 94},
}
"""Measured coverage of the 95 % interval in %, by the number of normally distributed scores."""
EXACT = 16
"""Up to this many pairs, all sign patterns are tried."""
NORMAL_95 = 1.959964
"""Quantile of the normal distribution for two-sided 95 % intervals."""


AGGREGATES: dict[Aggregate, Callable[..., ScoreArray]] = {
    "mean": np.mean,
    "median": np.median,
    "best": np.max,
}


def bounds(values: ScoreArray, aggregate: Aggregate = "mean") -> tuple[float, float]:
    """Return the range of few scores, or an interval of their mean or median; see `bounds_are`.

    >>> bounds(np.array([0.5, 0.25]))
    (0.25, 0.5)
    """
    if len(values) < 2:
        return math.nan, math.nan
    if len(values) < FEWEST_FOR_INTERVAL:
        return float(values.min()), float(values.max())
    return interval([values], aggregate)


def bounds_are(count: int, aggregate: Aggregate = "mean") -> str:
    """Describe the bounds that `bounds` returns for this many scores."""
    if count < FEWEST_FOR_INTERVAL:
        return "the range over the seeds"
    name = f"the nominal 95 % bootstrap interval of the {aggregate}"
    coverage = COVERAGE.get(aggregate, {})
    nearest = max((n for n in coverage if n <= count), default=None)
    if nearest is None:
        return name
    return f"{name} (measured coverage: {coverage[nearest]} % for {nearest} normal scores)"


def interval(groups: Sequence[ScoreArray], aggregate: Aggregate = "mean") -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean over the groups' means or medians.

    Each group is resampled separately, with a fixed seed. The interval is NaN if a group has few
    scores, because it would be far too narrow, and for the best, which cannot be bootstrapped.
    """
    few = any(len(values) < FEWEST_FOR_INTERVAL for values in groups)
    if aggregate == "best" or not groups or few:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    total = np.zeros(RESAMPLES)
    for values in groups:
        chosen = rng.integers(len(values), size=(RESAMPLES, len(values)))
        total += AGGREGATES[aggregate](values[chosen], axis=1)
    low, high = np.quantile(total / len(groups), [0.025, 0.975])
    return float(low), float(high)


def wilson(fraction: float, count: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a fraction of independent cases.

    >>> [round(bound, 3) for bound in wilson(0.9, 100)]
    [0.826, 0.945]
    """
    z = NORMAL_95 / math.sqrt(count)
    middle = fraction + z * z / 2
    half = z * math.sqrt(fraction * (1 - fraction) + z * z / 4)
    return (middle - half) / (1 + z * z), (middle + half) / (1 + z * z)


def sign_flip(groups: Sequence[ScoreArray]) -> float:
    """Return the two-sided p-value of a sign-flip permutation test of the mean of group means.

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
    """Return the sample standard deviation (n - 1); NaN for a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
