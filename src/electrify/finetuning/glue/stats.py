"""Statistics of the scores of several seeds, of one model or of two.

No run is left out of a statistic unless it has no score: a degenerate run's score counts, and the
run is listed; a failed run (or an undefined metric) has no score, and is listed with the reason.

Intervals and p-values are about the noise of fine-tuning, on these tasks and from these weights.
They say nothing of other pre-training seeds, nor of other examples.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.errors import UserError
from electrify.finetuning.glue.presets import average_of
from electrify.finetuning.glue.reading import AVERAGES, Aggregate, AverageName, Reading
from electrify.finetuning.glue.results import Result
from electrify.finetuning.glue.tasks import TASKS, GlueTask

Scores = NDArray[np.float64]

RESAMPLES = 10_000
FEWEST_FOR_INTERVAL = 6
"""Below it even the range of all scores covers a median in less than 95 % of cases, 1 - 2^(1-n)."""
COVERAGE: dict[Aggregate, dict[int, int]] = {
    "mean": {6: 86, 8: 89, 10: 89, 20: 93},
    "median": {6: 93, 8: 92, 10: 94, 20: 94},
}
"""In how many % of normal samples of so many scores the 95 % interval holds the true value."""
EXACT = 16
"""Up to so many pairs all patterns of signs are tried."""


_AGGREGATES: dict[Aggregate, Callable[..., Scores]] = {
    "mean": np.mean,
    "median": np.median,
    "best": np.max,
}


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
    def values(self) -> Scores:
        """The scores by themselves."""
        return np.array(list(self.scores.values()))

    @property
    def deviation(self) -> float:
        """Standard deviation, with n - 1."""
        return float(np.std(self.values, ddof=1)) if self.n > 1 else math.nan

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
        return float(_AGGREGATES[how](self.values)) if self.n else math.nan


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
    """The mean over the eight tasks of each task's mean, median or best."""
    summaries = [summarise(results, t.name, name) for t in TASKS.values() if t.averaged]
    missing = tuple(TASKS[s.task].title for s in summaries if not s.n)
    if missing:
        return Average(name, math.nan, (math.nan, math.nan), missing)
    value = float(np.mean([s.aggregate(aggregate) for s in summaries]))
    return Average(name, value, interval([s.values for s in summaries], aggregate), ())


def bounds(values: Scores, aggregate: Aggregate = "mean") -> tuple[float, float]:
    """The range of few scores, or an interval of their mean or median; `bounds_are` says which.

    >>> bounds(np.array([0.5, 0.25]))
    (0.25, 0.5)
    """
    if len(values) < 2:
        return math.nan, math.nan
    if len(values) < FEWEST_FOR_INTERVAL:
        return float(values.min()), float(values.max())
    return interval([values], aggregate)


def bounds_are(count: int, aggregate: Aggregate = "mean") -> str:
    """Name what `bounds` gives for so many scores."""
    if count < FEWEST_FOR_INTERVAL:
        return "the range of the seeds"
    said = f"the 95 % bootstrap interval of the {aggregate}"
    measured = COVERAGE.get(aggregate, {})
    least = max((n for n in measured if n <= count), default=None)
    if least is None:
        return said
    return f"{said} (nominal; {measured[least]} % measured with {least} normal scores)"


def interval(groups: Sequence[Scores], aggregate: Aggregate = "mean") -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over groups of each group's mean or median.

    Every group is drawn from by itself; always the same draws. None for groups of few scores, of
    which it would be far too narrow, nor for the best, of which the bootstrap says nothing.
    """
    few = any(len(values) < FEWEST_FOR_INTERVAL for values in groups)
    if aggregate == "best" or not groups or few:
        return math.nan, math.nan
    draw = np.random.default_rng(0)
    total = np.zeros(RESAMPLES)
    for values in groups:
        chosen = draw.integers(len(values), size=(RESAMPLES, len(values)))
        total += _AGGREGATES[aggregate](values[chosen], axis=1)
    low, high = np.quantile(total / len(groups), [0.025, 0.975])
    return float(low), float(high)


def sign_flip(groups: Sequence[Scores]) -> float:
    """The share of sign patterns that take the mean of the groups' means as far from 0, or further.

    >>> sign_flip([np.array([1.0, 2.0, 3.0])])
    0.25
    """
    parts = np.concatenate([values / (len(values) * len(groups)) for values in groups])
    exact = len(parts) <= EXACT
    if exact:
        signs = 1 - 2 * (np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts)) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1, 1], size=(RESAMPLES, len(parts)))
    rounding = 1e-9 * np.abs(parts).sum()
    reached = int((np.abs(signs @ parts) >= abs(parts.sum()) - rounding).sum())
    return reached / len(signs) if exact else (reached + 1) / (len(signs) + 1)


def compare(
    first: Sequence[Result],
    second: Sequence[Result],
    *,
    average: AverageName | None = None,
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
