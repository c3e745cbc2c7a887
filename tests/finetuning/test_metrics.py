"""The metrics equal those of scikit-learn and SciPy, in random cases and edge cases."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn import metrics as sklearn_metrics

from electrify.errors import UserError
from electrify.finetuning import metrics
from electrify.finetuning.glue.tasks import TASKS

CASES = 1_000
REFERENCES = {
    "mcc": lambda found, true: sklearn_metrics.matthews_corrcoef(true, found),
    "accuracy": lambda found, true: sklearn_metrics.accuracy_score(true, found),
    "f1": lambda found, true: sklearn_metrics.f1_score(true, found, zero_division=0.0),
    "pearson": lambda found, true: scipy_stats.pearsonr(found, true).statistic,
    "spearman": lambda found, true: scipy_stats.spearmanr(found, true).statistic,
}


def classes(rng: np.random.Generator, max_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return skewed labels and predictions that partly agree; sometimes only one class."""
    size, kinds = rng.integers(1, 60), rng.integers(1, max_classes + 1)
    true = rng.choice(kinds, size=size, p=rng.dirichlet(np.ones(kinds)))
    found = np.where(rng.random(size) < rng.random(), true, rng.integers(kinds, size=size))
    return found, true


def numbers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return scores with and without ties, from tiny to huge; sometimes constant."""
    size = rng.integers(2, 60)
    true = rng.random(size) * 5
    found = true * rng.normal() + rng.normal(size=size)
    if rng.random() < 0.4:
        true, found = np.round(true), np.round(found)
    if rng.random() < 0.05:
        found = np.full(size, 0.1)
    return found * 10.0 ** rng.integers(-12, 13), true


@pytest.mark.parametrize("name", metrics.METRICS)
def test_each_metric_equals_its_reference(name):
    rng = np.random.default_rng(3)
    constant = 0
    for _ in range(CASES):
        found, true = (
            numbers(rng)
            if name in ("pearson", "spearman")
            else classes(rng, 4 if name in ("mcc", "accuracy") else 2)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = REFERENCES[name](found, true)
        got = metrics.METRICS[name](found, true)
        constant += len(set(found)) == 1 or len(set(true)) == 1
        assert got == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), (found, true)
    assert constant > 10  # edge cases are included


def test_undefined_metrics():
    ones, mixed = np.ones(4, dtype=int), np.array([0, 1, 1, 0])
    assert metrics.mcc(ones, mixed) == 0 == metrics.mcc(mixed, ones)
    assert metrics.f1(np.zeros(4), np.zeros(4)) == 0
    assert math.isnan(metrics.pearson(np.full(4, 0.1), mixed))
    assert math.isnan(metrics.spearman(mixed, ones))
    assert math.isnan(metrics.pearson(np.array([0.1, np.nan]), np.array([0.0, 1.0])))
    assert math.isnan(metrics.spearman(np.array([0.1, np.nan]), np.array([0.0, 1.0])))
    assert math.isnan(metrics.pearson(np.array([0.1]), np.array([1.0])))


def test_counts_as_large_as_qqp_do_not_overflow():
    rng = np.random.default_rng(0)
    true, found = rng.integers(2, size=(2, 390_965))
    assert metrics.mcc(found, true) == pytest.approx(
        sklearn_metrics.matthews_corrcoef(true, found), abs=1e-12
    )


def test_a_task_gets_its_metrics_in_order():
    assert list(
        metrics.scores("STS-B", TASKS["stsb"].metrics, [0.1, 0.2, 0.4], [1.0, 2.0, 3.0])
    ) == [
        "spearman",
        "pearson",
    ]
    assert metrics.scores("MRPC", TASKS["mrpc"].metrics, [1, 0, 1], [1, 1, 1]) == {
        "accuracy": pytest.approx(2 / 3),
        "f1": pytest.approx(0.8),
    }


@pytest.mark.parametrize(("found", "true"), [([1, 0], [1]), ([], []), ([[1, 0]], [[1, 0]])])
def test_predictions_must_match_the_labels(found, true):
    with pytest.raises(UserError, match="CoLA"):
        metrics.scores("CoLA", TASKS["cola"].metrics, found, true)
