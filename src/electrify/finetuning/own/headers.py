"""Decide whether the first line of a table is a header or a row of data."""

import re
from collections.abc import Sequence
from typing import NamedTuple

TEXT_COLUMNS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("question", "sentence"), ("question", "answer"), ("question", "context"),
    ("question", "passage"), ("query", "passage"), ("query", "document"), ("text1", "text2"),
    ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("#1 string", "#2 string"),
    ("anchor", "positive"), ("query", "positive"),
    ("text",), ("sentence",), ("review",), ("content",), ("comment",), ("document",),
    ("utterance",), ("tweet",), ("question",), ("query",), ("title",),
)  # fmt: skip
"""Common names of text columns; the first entry whose names are all in the header is used."""
LABEL_COLUMNS = (
    "label", "labels", "gold_label", "class", "category", "score", "target", "tag",
    "similarity", "relatedness_score", "rating", "stars", "sentiment", "intent", "quality",
    "is_duplicate",
)  # fmt: skip
COLUMN_NUMBER = re.compile(r"(?:column )?[1-9]\d*")
"""Names of the columns of a table without a header."""


class TrainingInfo(NamedTuple):
    """What a fine-tuned model records about its training file."""

    columns: Sequence[str] = ()
    """The column names; numbers if the file had no header."""
    classes: Sequence[str] = ()

    @property
    def numbered(self) -> bool:
        """Return whether the file had no header."""
        names = [name for name in self.columns if name]
        return bool(names) and all(map(COLUMN_NUMBER.fullmatch, names))


NO_TRAINING_INFO = TrainingInfo()


def column_names(width: int) -> list[str]:
    """Return names for the columns of a table without a header.

    >>> column_names(2)
    ['column 1', 'column 2']
    """
    return [f"column {number}" for number in range(1, width + 1)]


def has_common_name(header: Sequence[str]) -> bool:
    """Return whether any column has a common name for texts.

    >>> has_common_name(["id", "Sentence"]), has_common_name(["question_text", "coarse"])
    (True, False)
    """
    return any(name.lower() in names for name in header for names in TEXT_COLUMNS)


def lacks_header(
    rows: Sequence[Sequence[str]],
    requested: Sequence[str],
    training: TrainingInfo = NO_TRAINING_INFO,
) -> bool:
    """Return whether the first row of a table is data; `requested` are columns the user named.

    A header has a common name, a requested one, or one from the training file. Otherwise the first
    row is data if columns are requested by number, or if one of its cells is a label: a value that
    recurs below, a number above numbers, or a class of the model. If nothing in the table decides,
    the table is assumed to be like the training file.

    >>> lacks_header([["a film", "good"], ["no film", "bad"], ["my film", "good"]], [])
    True
    >>> lacks_header([["text", "label"], ["a film", "good"], ["no film", "good"]], [])
    False
    """
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    pairs = [(cell.strip(), [row[i].strip() for row in rest]) for i, cell in enumerate(first)]
    common = {name for names in (*TEXT_COLUMNS, LABEL_COLUMNS) for name in names}
    requested_names = {name.lower() for name in requested if name}
    names = common | requested_names | {name.lower() for name in training.columns if name}
    if any(cell.lower() in names and cell not in column for cell, column in pairs):
        return False
    if requested_names and all(map(COLUMN_NUMBER.fullmatch, requested_names)):
        return True
    if all_numbers(first) and not training.numbered:
        return False
    classes = training.classes
    if any(cell in classes or _is_label(cell, column) for cell, column in pairs):
        return True
    return training.numbered and not any(_is_name(*pair, classes) for pair in pairs)


def _is_label(cell: str, column: Sequence[str]) -> bool:
    if to_number(cell) is not None:
        return all_numbers(column)
    return cell in column and len(set(column)) <= max(2, len(column) / 2)


def _is_name(cell: str, column: Sequence[str], classes: Sequence[str]) -> bool:
    """Return whether a cell that is not a label is above labels: numbers or known classes."""
    if all_numbers(column):
        return to_number(cell) is None
    return sum(label in classes for label in column) > len(column) / 2


def to_number(cell: str) -> float | None:
    """Return a cell as a number, or None if it is not one.

    >>> to_number("3.80"), to_number("three")
    (3.8, None)
    """
    try:
        return float(cell)
    except ValueError:
        return None


def all_numbers(cells: Sequence[str]) -> bool:
    """Return whether there are cells and all are numbers."""
    return bool(cells) and all(to_number(cell) is not None for cell in cells)
