"""Which scores of a run are its score: papers differ in metrics and in the halves of MNLI."""

from collections.abc import Callable
from typing import Literal

from electrify.finetuning.glue.tasks import GlueTask, Metric, Split

Aggregate = Literal["mean", "median", "best"]
"""Of the scores of a task's seeds."""
AverageName = Literal["average of 8 tasks", "seed-003 style", "GLUE"]
Reading = tuple[tuple[Split, Metric], ...]
"""The scores of a run whose mean is its score."""


def _first(task: GlueTask) -> Reading:
    return (("dev", task.metrics[0]),)


def _first_of_both(task: GlueTask) -> Reading:
    return tuple((split, task.metrics[0]) for split in _dev_splits(task))


def _all_of_both(task: GlueTask) -> Reading:
    return tuple((split, metric) for split in _dev_splits(task) for metric in task.metrics)


def _dev_splits(task: GlueTask) -> list[Split]:
    return [split for split in task.files if split.startswith("dev")]


AVERAGES: dict[AverageName, Callable[[GlueTask], Reading]] = {
    "average of 8 tasks": _first,
    "seed-003 style": _first_of_both,
    "GLUE": _all_of_both,
}
"""How a task's score is read for each average: the first metric, MNLI matched; the first metric,
MNLI matched and mismatched (lmtuners); the mean of all metrics (the GLUE server). None has WNLI."""


def described(reading: Reading) -> str:
    """Name the metrics of a reading, and both halves of a development set if it has both.

    >>> from electrify.finetuning.glue.tasks import TASKS
    >>> described(AVERAGES["seed-003 style"](TASKS["mnli"]))
    'accuracy, mean of matched and mismatched'
    """
    metrics = " and ".join(dict.fromkeys(metric for _, metric in reading))
    both = len({split for split, _ in reading}) > 1
    return f"{metrics}, mean of matched and mismatched" if both else metrics
