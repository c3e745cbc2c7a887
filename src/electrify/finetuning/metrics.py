"""GLUE's metrics, equal to those of scikit-learn and SciPy.

Undefined metrics follow these libraries: the Matthews correlation of a constant is 0, F1 without
any positive is 0, and the correlation with a constant is NaN.
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
    """Return metrics, as fractions, of predicted against true class indices or scores."""
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or predictions.ndim != 1 or not len(labels):
        got = f"shapes {predictions.shape} and {labels.shape}"
        fix = "give one prediction for each label, and at least one label"
        raise UserError(f"{title}: predictions and labels do not match", got=got, fix=fix)
    return {name: METRICS[name](predictions, labels) for name in metrics}


def accuracy(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Return the fraction of correct predictions."""
    return float(np.mean(predictions == labels))


def f1(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Return the harmonic mean of precision and recall of class 1."""
    predicted, true = predictions == 1, labels == 1
    total = int(predicted.sum() + true.sum())
    return 2 * int((predicted & true).sum()) / total if total else 0.0


def mcc(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Return the Matthews correlation for any number of classes (Gorodkin's R_K)."""
    _, classes = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    predicted, true = np.split(classes, [len(predictions)])
    count = int(classes.max()) + 1
    predicted_C = np.bincount(predicted, minlength=count).astype(np.float64)
    true_C = np.bincount(true, minlength=count).astype(np.float64)
    total = float(len(labels))
    covariance = float((predicted == true).sum()) * total - predicted_C @ true_C
    variances = (total**2 - predicted_C @ predicted_C) * (total**2 - true_C @ true_C)
    return float(covariance / math.sqrt(variances)) if variances else 0.0


def pearson(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Return Pearson's correlation; NaN if one side is constant."""
    sides = [np.asarray(side, dtype=np.float64) for side in (predictions, labels)]
    if any(not np.isfinite(side).all() or np.ptp(side) == 0 for side in sides):
        return math.nan
    first, second = (_normalized(side) for side in sides)
    return float(np.clip(first @ second, -1, 1))


def spearman(predictions: NDArray[np.generic], labels: NDArray[np.generic]) -> float:
    """Return Spearman's correlation: Pearson's of the ranks, where ties share their mean rank."""
    if np.isnan(predictions).any() or np.isnan(labels).any():
        return math.nan
    return pearson(_ranks(predictions), _ranks(labels))


def _normalized(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = values - values.mean()
    centered /= np.abs(centered).max()  # squares of tiny or huge values would under- or overflow
    unit: NDArray[np.float64] = centered / np.linalg.norm(centered)
    return unit


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


METRICS: dict[MetricName, Callable[[NDArray[np.generic], NDArray[np.generic]], float]] = {
    "mcc": mcc,
    "accuracy": accuracy,
    "f1": f1,
    "pearson": pearson,
    "spearman": spearman,
}
