"""Results of GLUE jobs: statistics over seeds, averages over tasks, comparisons of two models.

Every run with a score is included. Degenerate runs are included and listed; failed runs (and those
with an undefined metric) have no score and are listed with the reason.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electrify.errors import UserError
from electrify.finetuning.glue.presets import AVERAGES, AverageName, Reading, average_of, reading_of
from electrify.finetuning.glue.tasks import TASKS, GlueTask, averaged_tasks
from electrify.finetuning.results import Result, best_of, damaged_result, read_result
from electrify.finetuning.stats import (
    AGGREGATES,
    Aggregate,
    ScoreArray,
    bounds,
    deviation,
    interval,
    sign_flip,
)


def main_score(result: Result) -> float:
    """Return the development score as defined by the run's preset.

    An undefined or missing score is -inf, so that it is never the best.
    """
    reading = reading_of(result.preset, TASKS[result.task])
    scores = [result.scores.get(split, {}).get(metric, math.nan) for split, metric in reading]
    score = sum(scores) / len(scores)
    return -math.inf if math.isnan(score) else score


def read_results(folder: Path) -> list[Result]:
    """Read the results of all finished jobs of a folder, sorted by task and seed."""
    results = []
    for path in (folder / "jobs").glob("*/result.json"):
        result = read_result(path)
        if result.task not in TASKS or path.parent.name != f"{result.task}-{result.seed}":
            raise damaged_result(path, f"the result of task {result.task}, seed {result.seed}")
        results.append(result)
    tasks = list(TASKS)
    return sorted(results, key=lambda result: (tasks.index(result.task), result.seed))


def need_results(folder: Path) -> list[Result]:
    """Read the results of a folder, which must have some."""
    results = read_results(folder)
    if not results:
        fix = "use the --out of electrify glue, after it has finished at least one job"
        raise UserError(f"{folder} contains no results", got=f"{folder}", fix=fix)
    return results


def best_jobs(results: Iterable[Result]) -> dict[str, Result]:
    """Return the run of each task with the best development score."""
    results = list(results)
    tasks = dict.fromkeys(result.task for result in results)
    best = {task: best_of((r for r in results if r.task == task), main_score) for task in tasks}
    return {task: result for task, result in best.items() if result is not None}


class Summary(NamedTuple):
    """The scores of a task over its seeds."""

    task: str
    scores: dict[int, float]
    """By seed."""
    degenerate: dict[int, str]
    """Why runs are degenerate, by seed; their scores are included."""
    failed: dict[int, str]
    """Why runs have no score, by seed."""
    interval: tuple[float, float]
    """Bounds of the mean, from `bounds`."""

    @property
    def n(self) -> int:
        """Return the number of seeds with a score."""
        return len(self.scores)

    @property
    def values(self) -> ScoreArray:
        """Return the scores as an array."""
        return np.array([*self.scores.values()])

    @property
    def deviation(self) -> float:
        """Return the sample standard deviation."""
        return deviation(self.values)

    @property
    def best_seed(self) -> int | None:
        """Return the seed with the highest score; the first of equals."""
        return max(self.scores, key=lambda seed: (self.scores[seed], -seed), default=None)

    @property
    def best(self) -> float:
        """Return the highest score."""
        return max(self.scores.values(), default=math.nan)

    def aggregate(self, how: Aggregate) -> float:
        """Return the mean, median or best score."""
        return float(AGGREGATES[how](self.values)) if self.n else math.nan


class Average(NamedTuple):
    """The average over tasks, or the tasks that are missing for it."""

    name: AverageName
    value: float
    interval: tuple[float, float]
    missing: tuple[str, ...]
    """Titles of the tasks without a score; the value is NaN if there are any."""


class Difference(NamedTuple):
    """The scores of the second model minus those of the first, paired by seed."""

    task: str
    """Task name, or "overall"."""
    pairs: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p: float
    """Two-sided p-value of a sign-flip permutation test; with n pairs it is at least 2 / 2^n."""
    notes: tuple[str, ...] = ()


def summarise(results: Iterable[Result], task: str, average: AverageName | None = None) -> Summary:
    """Summarize the runs of a task; scores are defined by `average`, by default the preset's."""
    scores: dict[int, float] = {}
    degenerate: dict[int, str] = {}
    failed: dict[int, str] = {}
    for result in sorted((r for r in results if r.task == task), key=lambda r: r.seed):
        if result.seed in scores or result.seed in failed:
            raise UserError(
                f"two results of {TASKS[task].title} with seed {result.seed}",
                got=f"a second one, with preset {result.preset}",
                fix="use the results of one folder at a time",
            )
        reading = AVERAGES[average or average_of([result.preset])](TASKS[task])
        reason = result.failed or _no_score(result, reading)
        if reason:
            failed[result.seed] = reason
            continue
        scores[result.seed] = float(np.mean([result.scores[s][m] for s, m in reading]))
        if result.degenerate:
            degenerate[result.seed] = result.degenerate
    return Summary(task, scores, degenerate, failed, bounds(np.array(list(scores.values()))))


def _no_score(result: Result, reading: Reading) -> str:
    for split, metric in reading:
        score = result.scores.get(split, {}).get(metric)
        if score is None or not math.isfinite(score):
            name = f"{metric} on {split.replace('_', ' ')}"
            return f"no {name}" if score is None else f"{name} is undefined"
    return ""


def averaged(
    results: Sequence[Result], name: AverageName, aggregate: Aggregate = "mean"
) -> Average:
    """Return the mean over all averaged tasks of each task's mean, median or best."""
    summaries = [summarise(results, task, name) for task in averaged_tasks()]
    missing = tuple(TASKS[s.task].title for s in summaries if not s.n)
    if missing:
        return Average(name, math.nan, (math.nan, math.nan), missing)
    value = float(np.mean([s.aggregate(aggregate) for s in summaries]))
    return Average(name, value, interval([s.values for s in summaries], aggregate), ())


def paired_differences(
    first: Sequence[Result], second: Sequence[Result], *, average: AverageName | None = None
) -> list[Difference]:
    """Compare two models by task, paired by seed, and over all tasks (without WNLI).

    Both are scored alike: as their presets define it if they agree, else by the default average.
    """
    average = average or average_of(result.preset for result in [*first, *second])
    pairs: dict[str, list[tuple[float, float]]] = {}
    differences, absent = [], []
    for task in TASKS.values():
        both = [summarise(results, task.name, average) for results in (first, second)]
        seeds = sorted(both[0].scores.keys() & both[1].scores.keys())
        if not seeds:
            absent += [task.title] if task.averaged else []
            continue
        pairs[task.name] = [(both[0].scores[seed], both[1].scores[seed]) for seed in seeds]
        notes = _comparison_notes(task, both, first, second)
        differences.append(_difference(task.name, [pairs[task.name]], notes))
    groups = [pairs[name] for name in pairs if TASKS[name].averaged]
    if groups:
        without = (f"without {', '.join(absent)}",) if absent else ()
        differences.append(_difference("overall", groups, without))
    return differences


def _difference(
    name: str, groups: Sequence[Sequence[tuple[float, float]]], notes: tuple[str, ...]
) -> Difference:
    arrays = [np.array(pairs) for pairs in groups]
    changes = [array[:, 1] - array[:, 0] for array in arrays]
    means = np.mean([array.mean(axis=0) for array in arrays], axis=0)
    return Difference(
        name,
        sum(len(array) for array in arrays),
        float(means[0]),
        float(means[1]),
        float(means[1] - means[0]),
        bounds(changes[0]) if len(changes) == 1 else interval(changes),
        sign_flip(changes),
        notes,
    )


def _comparison_notes(
    task: GlueTask, both: Sequence[Summary], first: Sequence[Result], second: Sequence[Result]
) -> tuple[str, ...]:
    notes = []
    unpaired = sorted(set(both[0].scores) ^ set(both[1].scores))
    if unpaired:
        notes.append(f"{_seeds(unpaired)}: only one model has a score, left out")
    for summary, side in zip(both, ("first", "second"), strict=True):
        notes += [f"{side}: {note}" for note in run_notes(summary)]
    for field in ("preset", "train_rows"):
        values = [_values(results, task, field) for results in (first, second)]
        if values[0] != values[1]:
            notes.append(f"{field.replace('_', ' ')}: {values[0]} vs. {values[1]}")
    return tuple(notes)


def _values(results: Sequence[Result], task: GlueTask, field: str) -> str:
    values = {getattr(r, field) for r in results if r.task == task.name and not r.failed}
    return ", ".join(map(str, sorted(values)))


def run_notes(summary: Summary) -> list[str]:
    """Describe the degenerate and the failed runs of a task."""
    degenerate, failed = _by_reason(summary.degenerate), _by_reason(summary.failed)
    return [
        *(f"{_seeds(seeds)} degenerate ({reason}), included" for reason, seeds in degenerate),
        *(f"{_seeds(seeds)} failed ({reason}), no score" for reason, seeds in failed),
    ]


def _by_reason(reasons: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    distinct = dict.fromkeys(reasons.values())
    return [(reason, [seed for seed in reasons if reasons[seed] == reason]) for reason in distinct]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
