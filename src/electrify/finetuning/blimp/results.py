"""Accuracies on minimal pairs, by paradigm, by phenomenon and overall, with intervals."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from electrify.finetuning.stats import FEWEST_FOR_INTERVAL, interval, wilson
from electrify.finetuning.table import DASH, Cell, Notes, Table, percent

Bounds = tuple[float, float]


class PairCounts(TypedDict):
    """What was counted in the pairs of one paradigm."""

    name: str
    phenomenon: str
    field: str
    pairs: int
    correct: float
    """Pairs whose acceptable sentence has the higher score; ties count one half."""
    ties: int
    shorter: float
    """Pairs whose acceptable sentence has fewer tokens; equal numbers count one half."""


class PairScore(TypedDict):
    """The accuracy on the pairs of a paradigm, of a phenomenon, or on all pairs."""

    name: str
    field: str
    paradigms: int
    pairs: int
    accuracy: float
    """Fraction of pairs whose acceptable sentence has the higher score; ties count one half."""
    interval: Bounds
    """95 % Wilson interval, as if the pairs were independent."""
    paradigm_mean: float
    """The mean of the accuracies of its paradigms."""
    over_paradigms: Bounds
    """95 % bootstrap interval of the mean over paradigms; NaN for fewer than six."""
    ties: int
    shorter: float
    """The accuracy of a model that always prefers the sentence with fewer tokens."""


class BlimpResult(TypedDict):
    """The result of `electrify blimp`."""

    model: str
    fingerprint: str
    """A hash of the model's files."""
    score: str
    """How sentences were scored: original or pseudo-likelihood."""
    seconds: float
    overall: PairScore
    phenomena: list[PairScore]
    paradigms: list[PairScore]


def compared(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return in how many pairs the first number is higher; equal ones count one half.

    >>> compared(np.array([2.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0]))
    1.5
    """
    return float((first > second).sum() + (first == second).sum() / 2)


def accuracies(counts: Sequence[PairCounts]) -> dict[str, PairScore | list[PairScore]]:
    """Return the accuracies overall, by phenomenon and by paradigm, in alphabetical order."""

    def grouped(key: Callable[[PairCounts], str]) -> list[PairScore]:
        return [
            _score(name, [one for one in counts if key(one) == name])
            for name in sorted(set(map(key, counts)))
        ]

    return {
        "overall": _score("all", counts),
        "phenomena": grouped(lambda one: one["phenomenon"]),
        "paradigms": grouped(lambda one: one["name"]),
    }


def _score(name: str, counts: Sequence[PairCounts]) -> PairScore:
    pairs = sum(one["pairs"] for one in counts)
    accuracy = sum(one["correct"] for one in counts) / pairs
    by_paradigm = np.array([one["correct"] / one["pairs"] for one in counts])
    return PairScore(
        name=name,
        field=", ".join(sorted({one["field"] for one in counts})) if name != "all" else "",
        paradigms=len(counts),
        pairs=pairs,
        accuracy=accuracy,
        interval=wilson(accuracy, pairs),
        paradigm_mean=float(by_paradigm.mean()),
        over_paradigms=interval([by_paradigm]),
        ties=sum(one["ties"] for one in counts),
        shorter=sum(one["shorter"] for one in counts) / pairs,
    )


def blimp_table(result: BlimpResult, rows: Iterable[PairScore], first: str) -> Table:
    """Return a table of accuracies with the overall one below; `first` names its first column."""
    notes, pairs = Notes(), result["overall"]["pairs"]
    cells = [_row(score, notes) for score in [*rows, result["overall"]]]
    title = f"{pairs:,} minimal pairs, scored by the {SCORES[result['score']]}"
    columns = (first, "paradigms", "accuracy", "over paradigms", "fewer tokens", "ties")
    return Table(title, columns, cells, list(notes.numbers))


def _row(score: PairScore, notes: Notes) -> list[Cell]:
    over = _bounds(score["over_paradigms"])
    few = math.isnan(over[0])
    return [
        Cell(score["name"].replace("_", " ")),
        Cell(str(score["paradigms"])),
        pair_cell(score, notes.marks([OVER_PAIRS])),
        Cell(DASH) if few else percent(score["paradigm_mean"], over, notes.marks([OVER_PARADIGMS])),
        percent(score["shorter"], marks=notes.marks([SHORTER])),
        Cell(f"{score['ties']:,}"),
    ]


def pair_cell(score: PairScore, marks: tuple[int, ...] = ()) -> Cell:
    """Return an accuracy with its interval over pairs."""
    return percent(score["accuracy"], _bounds(score["interval"]), marks)


def _bounds(stored: Sequence[float | None]) -> Bounds:
    """Return bounds as they are in memory or, with null for NaN, in a JSON file."""
    low, high = (math.nan if bound is None else bound for bound in stored)
    return low, high


SCORES = {
    "original": "sum of log P(original) over their tokens",
    "pseudo-likelihood": "sum of log P(token) with each token masked in turn",
}
"""What each kind of score is, for the title of a table."""
OVER_PAIRS = (
    "percent of the pairs whose acceptable sentence has the higher score, ties count one half "
    "(chance: 50); in brackets: 95 % Wilson interval, as if all pairs were independent. The pairs "
    "of a paradigm share a template, so it says nothing about other paradigms"
)
OVER_PARADIGMS = (
    "the mean over paradigms with its nominal 95 % bootstrap interval, which says what "
    f"similar paradigms could give; from {FEWEST_FOR_INTERVAL} paradigms on"
)
SHORTER = "accuracy of always preferring the sentence with fewer tokens, for comparison"
