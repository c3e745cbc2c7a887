"""The scores of a task over its seeds.

Every run with a score is included. Degenerate runs are included and listed; failed runs (and those
with an undefined metric) have no score and are listed with the reason.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electrify.errors import UserError
from electrify.finetuning.results import Result
from electrify.finetuning.stats import AGGREGATES, Aggregate, ScoreArray, bounds, deviation

ReadingOf = Callable[[Result], Sequence[tuple[str, str]]]
"""Returns the (split, metric) pairs whose mean is the score of a run."""


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


def summarise_runs(
    results: Iterable[Result], task: str, title: str, reading_of_run: ReadingOf
) -> Summary:
    """Summarize the runs of a task, which errors call by its title."""
    scores: dict[int, float] = {}
    degenerate: dict[int, str] = {}
    failed: dict[int, str] = {}
    for result in sorted((r for r in results if r.task == task), key=lambda r: r.seed):
        if result.seed in scores or result.seed in failed:
            raise UserError(
                f"two results of {title} with seed {result.seed}",
                got=f"a second one, with preset {result.preset}",
                fix="use the results of one folder at a time",
            )
        reading = reading_of_run(result)
        reason = result.failed or _no_score(result, reading)
        if reason:
            failed[result.seed] = reason
            continue
        scores[result.seed] = float(np.mean([result.scores[s][m] for s, m in reading]))
        if result.degenerate:
            degenerate[result.seed] = result.degenerate
    return Summary(task, scores, degenerate, failed, bounds(np.array(list(scores.values()))))


def _no_score(result: Result, reading: Sequence[tuple[str, str]]) -> str:
    for split, metric in reading:
        score = result.scores.get(split, {}).get(metric)
        if score is None or not math.isfinite(score):
            name = f"{metric} on {split.replace('_', ' ')}"
            return f"no {name}" if score is None else f"{name} is undefined"
    return ""


def run_notes(summary: Summary) -> list[str]:
    """Describe the degenerate and the failed runs of a task."""
    degenerate, failed = _by_reason(summary.degenerate), _by_reason(summary.failed)
    return [
        *(f"{seeds_text(seeds)} degenerate ({reason}), included" for reason, seeds in degenerate),
        *(f"{seeds_text(seeds)} failed ({reason}), no score" for reason, seeds in failed),
    ]


def _by_reason(reasons: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    distinct = dict.fromkeys(reasons.values())
    return [(reason, [seed for seed in reasons if reasons[seed] == reason]) for reason in distinct]


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds as text, such as "seeds 0, 2"."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
