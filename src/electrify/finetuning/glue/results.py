"""The results of GLUE jobs, and statistics of the scores of several seeds, of one model or of two.

No run is left out of a statistic unless it has no score: a degenerate run's score counts, and the
run is listed; a failed run (or an undefined metric) has no score, and is listed with the reason.
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
    """The score on the development examples, as the run's preset reads it.

    An undefined or missing one is never the best.
    """
    reading = reading_of(result.preset, TASKS[result.task])
    scores = [result.scores.get(split, {}).get(metric, math.nan) for split, metric in reading]
    score = sum(scores) / len(scores)
    return -math.inf if math.isnan(score) else score


def read_results(folder: Path) -> list[Result]:
    """The results of all finished jobs of a folder, in the order of the tasks and the seeds."""
    results = []
    for path in (folder / "jobs").glob("*/result.json"):
        result = read_result(path)
        if result.task not in TASKS or path.parent.name != f"{result.task}-{result.seed}":
            raise damaged_result(path, f"the result of task {result.task}, seed {result.seed}")
        results.append(result)
    tasks = list(TASKS)
    return sorted(results, key=lambda result: (tasks.index(result.task), result.seed))


def need_results(folder: Path) -> list[Result]:
    """The results of a folder that must have some."""
    results = read_results(folder)
    if not results:
        fix = "give the --out of electrify glue, which must have finished a job"
        raise UserError(f"{folder} holds no results", got=f"{folder}", fix=fix)
    return results


def best_jobs(results: Iterable[Result]) -> dict[str, Result]:
    """The run of each task that is best on its development examples."""
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    best = {task: best_of(some, main_score) for task, some in by_task.items()}
    return {task: result for task, result in best.items() if result is not None}


class Summary(NamedTuple):
    """A task's scores over seeds."""

    task: str
    scores: dict[int, float]
    """By seed."""
    degenerate: dict[int, str]
    """Seeds whose score counts although the run learned nothing, and why."""
    failed: dict[int, str]
    """Seeds without a score, and why."""
    interval: tuple[float, float]
    """Of the mean: `bounds`."""

    @property
    def n(self) -> int:
        """How many seeds have a score."""
        return len(self.scores)

    @property
    def values(self) -> ScoreArray:
        """The scores by themselves."""
        return np.array(list(self.scores.values()))

    @property
    def deviation(self) -> float:
        """Standard deviation, with n - 1."""
        return deviation(self.values)

    @property
    def best_seed(self) -> int | None:
        """The seed with the highest score, of equal ones the first."""
        return max(self.scores, key=lambda seed: (self.scores[seed], -seed), default=None)

    @property
    def best(self) -> float:
        """The highest score."""
        return max(self.scores.values(), default=math.nan)

    def aggregate(self, how: Aggregate) -> float:
        """Mean, median or best."""
        return float(AGGREGATES[how](self.values)) if self.n else math.nan


class Average(NamedTuple):
    """One number for several tasks, or the reason why there is none."""

    name: AverageName
    value: float
    interval: tuple[float, float]
    missing: tuple[str, ...]
    """Tasks without a score, by title; if there are any there is no average."""


class Difference(NamedTuple):
    """The second model's scores less the first's, seed by seed."""

    task: str
    """Its name, or "overall"."""
    pairs: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p: float
    """Sign-flip permutation, two-sided; with n pairs it is never below 2 / 2^n."""
    notes: tuple[str, ...] = ()


def summarise(results: Iterable[Result], task: str, average: AverageName | None = None) -> Summary:
    """The runs of a task, read as for an average; by default, as their own presets read them."""
    scores: dict[int, float] = {}
    degenerate: dict[int, str] = {}
    failed: dict[int, str] = {}
    for result in sorted((r for r in results if r.task == task), key=lambda r: r.seed):
        if result.seed in scores or result.seed in failed:
            raise UserError(
                f"two results of {TASKS[task].title} with seed {result.seed}",
                got=f"presets {result.preset} and the like",
                fix="give the results of one folder at a time",
            )
        reading = AVERAGES[average or average_of([result.preset])](TASKS[task])
        why = result.failed or _no_score(result, reading)
        if why:
            failed[result.seed] = why
            continue
        scores[result.seed] = float(np.mean([result.scores[s][m] for s, m in reading]))
        if result.degenerate:
            degenerate[result.seed] = result.degenerate
    return Summary(task, scores, degenerate, failed, bounds(np.array(list(scores.values()))))


def _no_score(result: Result, reading: Reading) -> str:
    for split, metric in reading:
        score = result.scores.get(split, {}).get(metric)
        if score is None or not math.isfinite(score):
            kind = f"{metric} of {split.replace('_', ' ')}"
            return f"no {kind}" if score is None else f"{kind} undefined"
    return ""


def averaged(
    results: Sequence[Result], name: AverageName, aggregate: Aggregate = "mean"
) -> Average:
    """The mean over the tasks that count of each task's mean, median or best."""
    summaries = [summarise(results, task, name) for task in averaged_tasks()]
    missing = tuple(TASKS[s.task].title for s in summaries if not s.n)
    if missing:
        return Average(name, math.nan, (math.nan, math.nan), missing)
    value = float(np.mean([s.aggregate(aggregate) for s in summaries]))
    return Average(name, value, interval([s.values for s in summaries], aggregate), ())


def paired_differences(
    first: Sequence[Result], second: Sequence[Result], *, average: AverageName | None = None
) -> list[Difference]:
    """Each task that both have, seed by seed, then all of them together (WNLI left out).

    Both are read alike: as their presets do if they agree, otherwise as for the usual average.
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
        notes = _unlike(task, both, first, second)
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


def _unlike(
    task: GlueTask, both: Sequence[Summary], first: Sequence[Result], second: Sequence[Result]
) -> tuple[str, ...]:
    notes = []
    alone = sorted(set(both[0].scores) ^ set(both[1].scores))
    if alone:
        notes.append(f"{_seeds(alone)}: without a partner, left out")
    for summary, side in zip(both, ("first", "second"), strict=True):
        notes += [f"{side}: {note}" for note in marked(summary)]
    for field in ("preset", "train_rows"):
        kinds = [_kinds(results, task, field) for results in (first, second)]
        if kinds[0] != kinds[1]:
            notes.append(f"{field.replace('_', ' ')}: {kinds[0]} against {kinds[1]}")
    return tuple(notes)


def _kinds(results: Sequence[Result], task: GlueTask, field: str) -> str:
    found = {getattr(r, field) for r in results if r.task == task.name and not r.failed}
    return ", ".join(map(str, sorted(found)))


def marked(summary: Summary) -> list[str]:
    """In words, the degenerate and the failed runs of a task."""
    return [
        *(f"{_seeds(seeds)} degenerate ({why}), counted" for why, seeds in _by(summary.degenerate)),
        *(f"{_seeds(seeds)} failed ({why}), without a score" for why, seeds in _by(summary.failed)),
    ]


def _by(reasons: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    whys = dict.fromkeys(reasons.values())
    return [(why, [seed for seed in reasons if reasons[seed] == why]) for why in whys]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
