"""GLUE's metrics from class numbers or scores, equal to scikit-learn's and SciPy's.

Where a metric has no value the convention of those libraries holds: the Matthews correlation of a
constant is 0, F1 without any positive is 0, the correlation of a constant is not a number.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from electrify.errors import UserError

MetricName = Literal["mcc", "accuracy", "f1", "pearson", "spearman"]


def scores(
    title: str, metrics: Sequence[MetricName], predictions: ArrayLike, labels: ArrayLike
) -> dict[str, float]:
    """Some metrics, as fractions, of predicted against true class numbers or scores."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or predictions.ndim != 1 or not len(labels):
        got = f"shapes {predictions.shape} and {labels.shape}"
        fix = "give one prediction for each label, and at least one"
        raise UserError(f"{title}: predictions and labels do not match", got=got, fix=fix)
    return {name: METRICS[name](predictions, labels) for name in metrics}


def accuracy(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """The share that is right."""
    return float(np.mean(predictions == labels))


def f1(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """The harmonic mean of precision and recall of class 1."""
    found, true = predictions == 1, labels == 1
    both = int(found.sum() + true.sum())
    return 2 * int((found & true).sum()) / both if both else 0.0


def mcc(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Matthews correlation, of any number of classes (Gorodkin's R_K)."""
    _, numbers = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    found, true = np.split(numbers, [len(predictions)])
    classes = int(numbers.max()) + 1
    found_C = np.bincount(found, minlength=classes).astype(np.float64)
    true_C = np.bincount(true, minlength=classes).astype(np.float64)
    count = float(len(labels))
    covariance = float((found == true).sum()) * count - found_C @ true_C
    spread = (count**2 - found_C @ found_C) * (count**2 - true_C @ true_C)
    return float(covariance / math.sqrt(spread)) if spread else 0.0


def pearson(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Pearson's correlation; not a number where one side is constant."""
    sides = [np.asarray(side, dtype=np.float64) for side in (predictions, labels)]
    if any(not np.isfinite(side).all() or np.ptp(side) == 0 for side in sides):
        return math.nan
    first, second = (_unit(side) for side in sides)
    return float(np.clip(first @ second, -1, 1))


def spearman(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Spearman's correlation: Pearson's of the ranks, equal values sharing their mean rank."""
    if np.isnan(predictions).any() or np.isnan(labels).any():
        return math.nan
    return pearson(_ranks(predictions), _ranks(labels))


def _unit(side: NDArray[np.float64]) -> NDArray[np.float64]:
    apart = side - side.mean()
    apart /= np.abs(apart).max()  # so that squares of tiny or huge numbers are numbers, too
    unit: NDArray[np.float64] = apart / np.linalg.norm(apart)
    return unit


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[numbers]
    return ranks


METRICS: dict[MetricName, Callable[[NDArray[np.generic], NDArray[np.generic]], float]] = {
    "mcc": mcc,
    "accuracy": accuracy,
    "f1": f1,
    "pearson": pearson,
    "spearman": spearman,
}
