"""Summaries, averages and comparisons, checked by hand and against SciPy."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from electrify.errors import UserError
from electrify.finetuning import stats as statistics
from electrify.finetuning.glue import results as glue_results
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result
from electrify.finetuning.seeds import run_notes


def runs(task, values, **fields):
    """Return a run per value of the first metric; others are 0.1 lower, mismatched 0.2."""
    results = []
    for seed, value in enumerate(values):
        scores = {"dev": {m: value - 0.1 * n for n, m in enumerate(TASKS[task].metrics)}}
        if "dev_mismatched" in TASKS[task].files:
            scores["dev_mismatched"] = {"accuracy": value - 0.2}
        results.append(Result(task, seed, "paper", scores, **fields))
    return results


def all_tasks(value):
    return [r for t in TASKS.values() for r in runs(t.name, [value, value])]


def test_a_summary_of_five_seeds():
    values = [0.5, 0.7, 0.6, 0.7, 0.2]
    found = glue_results.summarise(runs("cola", values), "cola")
    assert found.n == 5
    assert found.aggregate("mean") == pytest.approx(0.54)
    assert found.aggregate("median") == pytest.approx(0.6)
    assert found.deviation == pytest.approx(np.std(values, ddof=1))
    assert (found.best, found.best_seed) == (0.7, 1)
    assert found.interval == glue_results.summarise(runs("cola", values), "cola").interval


def test_the_interval_equals_scipys():
    values = np.random.default_rng(1).normal(size=10)
    expected = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=5
    ).confidence_interval
    assert statistics.interval([values]) == pytest.approx(tuple(expected), abs=0.02)


@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_the_coverage_of_intervals_is_as_documented(aggregate, monkeypatch):
    """It is less than the nominal 95 %, especially for the mean of few scores."""
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    samples = np.random.default_rng(0).standard_normal((600, 6))
    found = [statistics.interval([values], aggregate) for values in samples]
    covered = 100 * np.mean([low <= 0 <= high for low, high in found])
    assert covered == pytest.approx(statistics.COVERAGE[aggregate][6], abs=4)
    assert f"coverage: {statistics.COVERAGE[aggregate][10]} % for 10" in statistics.bounds_are(
        15, aggregate
    )


def test_one_seed_has_no_deviation_and_no_interval():
    found = glue_results.summarise(runs("cola", [0.5]), "cola")
    assert found.aggregate("mean") == 0.5
    assert math.isnan(found.deviation)
    assert all(math.isnan(end) for end in found.interval)


def test_a_degenerate_run_is_included_and_a_failed_one_has_no_score():
    results = runs("cola", [0.6, 0.0, 0.9])
    results[1] = results[1]._replace(degenerate="one class only")
    results.append(Result("cola", 3, "paper", failed="loss is not a number"))
    found = glue_results.summarise(results, "cola")
    assert found.n == 3
    assert found.aggregate("mean") == pytest.approx(0.5)
    assert found.degenerate == {1: "one class only"}
    assert found.failed == {3: "loss is not a number"}
    assert run_notes(found) == [
        "seed 1 degenerate (one class only), included",
        "seed 3 failed (loss is not a number), no score",
    ]


def test_an_undefined_metric_is_not_a_score():
    results = [
        Result("stsb", 0, "paper", {"dev": {"spearman": 0.8, "pearson": 0.7}}),
        Result("stsb", 1, "paper", {"dev": {"spearman": math.nan, "pearson": math.nan}}),
    ]
    found = glue_results.summarise(results, "stsb")
    assert found.aggregate("mean") == 0.8
    assert found.failed == {1: "spearman on dev is undefined"}


def test_a_summary_without_runs():
    found = glue_results.summarise([], "cola")
    assert (found.n, found.best_seed) == (0, None)
    assert math.isnan(found.aggregate("mean"))
    assert math.isnan(found.best)


def test_the_same_seed_twice_is_an_error():
    with pytest.raises(UserError, match="CoLA with seed 0"):
        glue_results.summarise(runs("cola", [0.5]) * 2, "cola")


def test_averages_by_name():
    # by hand: MNLI 0.9 and mismatched 0.7; MRPC, QQP and STS-B have a second metric 0.1 lower
    results = [r for t in TASKS.values() for r in runs(t.name, [0.9])]
    assert glue_results.averaged(results, "average").value == pytest.approx(0.9)
    assert glue_results.averaged(results, "seed-003 style").value == pytest.approx(
        (7 * 0.9 + 0.8) / 8
    )
    assert glue_results.averaged(results, "GLUE").value == pytest.approx(
        (4 * 0.9 + 3 * 0.85 + 0.8) / 8
    )


@pytest.mark.parametrize("name", glue_results.AVERAGES)
def test_wnli_is_in_no_average(name):
    results = all_tasks(0.8)
    low = [
        r._replace(scores={"dev": {"accuracy": 0.1}}) if r.task == "wnli" else r for r in results
    ]
    assert glue_results.averaged(low, name) == glue_results.averaged(results, name)


def test_the_aggregate_of_an_average_is_per_task():
    results = [r for t in TASKS.values() for r in runs(t.name, [0.1, 0.8, 0.9])]
    assert glue_results.averaged(results, "average", "median").value == pytest.approx(0.8)
    assert glue_results.averaged(results, "average", "mean").value == pytest.approx(0.6)


def test_the_average_lists_missing_tasks():
    results = [r for r in all_tasks(0.8) if r.task not in ("qqp", "rte")]
    found = glue_results.averaged(results, "GLUE")
    assert math.isnan(found.value)
    assert found.missing == ("QQP", "RTE")


def test_mnli_without_mismatched_scores_is_missing_from_some_averages():
    results = all_tasks(0.8)
    results = [r._replace(scores={"dev": r.scores["dev"]}) for r in results]
    assert glue_results.averaged(results, "average").value == pytest.approx(0.8)
    assert glue_results.averaged(results, "seed-003 style").missing == ("MNLI",)
    assert (
        glue_results.summarise(results, "mnli", "GLUE").failed[0] == "no accuracy on dev mismatched"
    )


@pytest.mark.parametrize("size", [1, 3, 8, 12])
def test_the_p_value_equals_scipys(size):
    values = np.random.default_rng(size).normal(0.4, 1, size=size)
    expected = scipy_stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=np.inf
    ).pvalue if size > 1 else 1.0  # fmt: skip
    assert statistics.sign_flip([values]) == pytest.approx(expected)


def test_the_p_value_weights_groups_equally():
    groups = [np.array([0.3, -0.1]), np.array([0.2, 0.1, -0.4, 0.25])]
    parts = [0.3 / 4, -0.1 / 4, 0.2 / 8, 0.1 / 8, -0.4 / 8, 0.25 / 8]
    reached = [
        abs(sum(s * p for s, p in zip(signs, parts, strict=True))) >= abs(sum(parts)) - 1e-12
        for signs in itertools.product((-1, 1), repeat=6)
    ]
    assert statistics.sign_flip(groups) == sum(reached) / 2**6


def test_with_many_pairs_the_sampled_p_value_agrees_with_the_t_test():
    values = np.random.default_rng(2).normal(0.3, 1, size=40)
    expected = scipy_stats.ttest_1samp(values, 0).pvalue
    assert statistics.sign_flip([values]) == pytest.approx(expected, abs=0.01)


def test_p_values_without_a_difference_are_uniform():
    rng = np.random.default_rng(0)
    found = [statistics.sign_flip([rng.normal(size=4), rng.normal(size=5)]) for _ in range(400)]
    assert np.mean(np.array(found) <= 0.1) == pytest.approx(0.1, abs=0.04)


def test_a_comparison_scores_both_models_alike():
    lmtuners = [r._replace(preset="seed-003") for r in runs("mnli", [0.8, 0.9])]
    for second, expected in ((lmtuners, 0.75), (runs("mnli", [0.8, 0.9]), 0.85)):
        [row, _] = glue_results.paired_differences(lmtuners, second)
        assert (row.first, row.second) == pytest.approx((expected, expected))


def test_a_comparison_is_paired_by_seed():
    first = runs("cola", [0.5, 0.6, 0.7])
    second = runs("cola", [0.51, 0.61, 0.71])
    cola, overall = glue_results.paired_differences(first, second)
    assert (cola.task, cola.pairs) == ("cola", 3)
    assert cola.difference == pytest.approx(0.01)
    assert cola.interval == pytest.approx((0.01, 0.01))  # every pair has the same difference
    assert cola.p == 2 / 2**3
    assert overall.task == "overall"
    assert overall.notes[0].startswith("without SST-2, MRPC")
    assert glue_results.paired_differences(second, first)[0].difference == pytest.approx(-0.01)


def test_a_comparison_notes_differences():
    first = runs("cola", [0.5, 0.6, 0.7], train_rows=8551)
    second = [r._replace(preset="official-code") for r in runs("cola", [0.5, 0.6], train_rows=100)]
    first[0] = first[0]._replace(degenerate="one class only")
    cola, _ = glue_results.paired_differences(first, second)
    assert cola.pairs == 2
    assert cola.first == pytest.approx(0.55)  # the third is unpaired
    assert cola.notes == (
        "seed 2: only one model has a score, left out",
        "first: seed 0 degenerate (one class only), included",
        "preset: paper vs. official-code",
        "train rows: 8551 vs. 100",
    )


def test_overall_weights_tasks_equally_and_excludes_wnli():
    first = runs("cola", [0.5] * 2) + runs("rte", [0.5] * 6) + runs("wnli", [0.1] * 2)
    second = runs("cola", [0.7] * 2) + runs("rte", [0.5] * 6) + runs("wnli", [0.9] * 2)
    *tasks, overall = glue_results.paired_differences(first, second)
    assert [row.task for row in tasks] == ["cola", "rte", "wnli"]
    assert overall.difference == pytest.approx(0.1)
    assert overall.pairs == 8


def test_no_common_task_gives_no_comparison():
    assert glue_results.paired_differences(runs("cola", [0.5]), runs("rte", [0.5])) == []
