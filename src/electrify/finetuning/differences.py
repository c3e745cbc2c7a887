"""The difference between two models on the same tasks and seeds, with its interval and p-value."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from electrify.finetuning.seeds import Summary, run_notes, seeds_text
from electrify.finetuning.stats import (
    FEWEST_FOR_INTERVAL,
    bounds,
    bounds_are,
    interval,
    sign_flip,
)
from electrify.finetuning.table import Cell, Notes, Table, percent


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


def paired_difference(
    name: str, groups: Sequence[Sequence[tuple[float, float]]], notes: tuple[str, ...]
) -> Difference:
    """Return the difference between pairs of scores, one group of pairs for each task."""
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


def pair_notes(
    first: Summary, second: Summary, names: tuple[str, str] = ("first", "second")
) -> list[str]:
    """Describe the seeds that only one model has, and the degenerate and failed runs of both."""
    notes = []
    unpaired = sorted(set(first.scores) ^ set(second.scores))
    if unpaired:
        notes.append(f"{seeds_text(unpaired)}: only one model has a score, left out")
    for summary, name in zip((first, second), names, strict=True):
        notes += [f"{name}: {note}" for note in run_notes(summary)]
    return notes


def differences_table(
    found: Sequence[Difference], first: str, second: str, titles: Mapping[str, str]
) -> Table:
    """Return a table that compares two models, paired by seed; `titles` are those of the tasks."""
    notes, rows = Notes(), []
    for row in found:
        title = titles.get(row.task, row.task)
        marks = notes.marks(f"{title}: {text}" for text in row.notes)
        tested = _TESTED if math.isnan(row.interval[0]) else f"{_BRACKETS}; {_TESTED}"
        rows.append(
            [
                Cell(title, marks=marks),
                Cell(str(row.pairs)),
                percent(row.first),
                percent(row.second),
                percent(row.difference, row.interval),
                Cell(f"{row.p:.4f}", marks=notes.marks([tested])),
            ]
        )
    columns = ("task", "pairs", first, second, "difference", "p")
    return Table(f"{second} minus {first}", columns, rows, list(notes.numbers))


_BRACKETS = (
    f"in brackets: {bounds_are(FEWEST_FOR_INTERVAL)}, or the range of fewer than "
    f"{FEWEST_FOR_INTERVAL} differences"
)
_TESTED = "p: sign-flip test, at least 2 / 2^pairs; it covers only the noise of fine-tuning"
