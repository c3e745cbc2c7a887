"""Results of GLUE jobs: statistics over seeds, averages over tasks, comparisons of two models."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from electrify.errors import UserError
from electrify.finetuning.differences import Difference, pair_notes, paired_difference
from electrify.finetuning.glue.presets import AVERAGES, AverageName, Reading, average_of, reading_of
from electrify.finetuning.glue.tasks import TASKS, GlueTask, averaged_tasks
from electrify.finetuning.results import Result, best_of, damaged_result, read_result
from electrify.finetuning.seeds import Summary, summarise_runs
from electrify.finetuning.stats import Aggregate, interval


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


class Average(NamedTuple):
    """The average over tasks, or the tasks that are missing for it."""

    name: AverageName
    value: float
    interval: tuple[float, float]
    missing: tuple[str, ...]
    """Titles of the tasks without a score; the value is NaN if there are any."""


def summarise(results: Iterable[Result], task: str, average: AverageName | None = None) -> Summary:
    """Summarize the runs of a task; scores are defined by `average`, by default the preset's."""

    def reading(result: Result) -> Reading:
        return AVERAGES[average or average_of([result.preset])](TASKS[task])

    return summarise_runs(results, task, TASKS[task].title, reading)


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
        differences.append(paired_difference(task.name, [pairs[task.name]], notes))
    groups = [pairs[name] for name in pairs if TASKS[name].averaged]
    if groups:
        without = (f"without {', '.join(absent)}",) if absent else ()
        differences.append(paired_difference("overall", groups, without))
    return differences


def _comparison_notes(
    task: GlueTask, both: Sequence[Summary], first: Sequence[Result], second: Sequence[Result]
) -> tuple[str, ...]:
    notes = pair_notes(both[0], both[1])
    for field in ("preset", "train_rows"):
        values = [_values(results, task, field) for results in (first, second)]
        if values[0] != values[1]:
            notes.append(f"{field.replace('_', ' ')}: {values[0]} vs. {values[1]}")
    return tuple(notes)


def _values(results: Sequence[Result], task: GlueTask, field: str) -> str:
    values = {getattr(r, field) for r in results if r.task == task.name and not r.failed}
    return ", ".join(map(str, sorted(values)))
