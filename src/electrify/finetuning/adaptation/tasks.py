"""How the scores of labelled tasks changed, from the record of a suite."""

import math
from typing import NamedTuple

from electrify.finetuning.suite.record import SuiteRecord

NOTICEABLE = 2.0
"""Differences of more standard errors than this are called gains or losses."""


class TaskChange(NamedTuple):
    """A task before and after: mean scores over seeds, as fractions."""

    name: str
    metric: str
    before: float
    after: float
    error: float | None
    """Standard error of the difference; None with a single seed."""
    seeds: int

    @property
    def direction(self) -> int:
        """Return 1 for a gain, -1 for a loss, 0 if it may be noise."""
        if self.error is None:
            return 0
        gain = self.after - self.before
        return 0 if abs(gain) <= NOTICEABLE * self.error else int(math.copysign(1, gain))


def task_changes(record: SuiteRecord, before: str, after: str) -> list[TaskChange]:
    """Return the change of every task that both models have scores of."""
    found = []
    for task in record.tasks:
        summaries = [record.summary(model, task) for model in (before, after)]
        if not all(summary.n for summary in summaries):
            continue
        squares = [summary.deviation**2 / summary.n for summary in summaries]
        error = math.sqrt(sum(squares))
        first, second = (summary.aggregate("mean") for summary in summaries)
        seeds = min(summary.n for summary in summaries)
        known = None if math.isnan(error) else error
        found.append(TaskChange(task.name, task.metric, first, second, known, seeds))
    return found
