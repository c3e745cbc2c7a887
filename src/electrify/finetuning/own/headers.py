"""The first line of a table: names of columns, or a row like the others."""

import re
from collections.abc import Sequence
from typing import NamedTuple

TEXT_COLUMNS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("question", "sentence"), ("question", "answer"), ("question", "context"),
    ("question", "passage"), ("query", "passage"), ("query", "document"), ("text1", "text2"),
    ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("#1 string", "#2 string"),
    ("text",), ("sentence",), ("review",), ("content",), ("comment",), ("document",),
    ("utterance",), ("tweet",), ("question",), ("query",), ("title",),
)  # fmt: skip
"""Names of columns with texts; the first row of which all are there is taken."""
LABEL_COLUMNS = (
    "label", "labels", "gold_label", "class", "category", "score", "target", "tag",
    "similarity", "relatedness_score", "rating", "stars", "sentiment", "intent", "quality",
    "is_duplicate",
)  # fmt: skip
NUMBERED = re.compile(r"(?:column )?[1-9]\d*")
"""How columns are named where a table has no header."""


class Remembered(NamedTuple):
    """What a model knows about the file that it was fine-tuned on."""

    columns: Sequence[str] = ()
    """Their names; numbers where the file had no header."""
    classes: Sequence[str] = ()

    @property
    def numbered(self) -> bool:
        """Whether the file had no header."""
        names = [name for name in self.columns if name]
        return bool(names) and all(map(NUMBERED.fullmatch, names))


NO_MEMORY = Remembered()


def column_names(width: int) -> list[str]:
    """Names for the columns of a table without a header.

    >>> column_names(2)
    ['column 1', 'column 2']
    """
    return [f"column {number}" for number in range(1, width + 1)]


def has_usual(header: Sequence[str]) -> bool:
    """Whether one of some columns has a usual name for texts.

    >>> has_usual(["id", "Sentence"]), has_usual(["question_text", "coarse"])
    (True, False)
    """
    return any(name.lower() in names for name in header for names in TEXT_COLUMNS)


def lacks_header(
    rows: Sequence[Sequence[str]], named: Sequence[str], remembered: Remembered = NO_MEMORY
) -> bool:
    """Whether the first row of a table is one like the others; `named` are columns asked for.

    A header has a usual name, or one that was asked for or is remembered. Without either, the first
    row is no header if columns are asked for by number, or if one of its cells is a label: one that
    recurs below, a number above numbers, or a class of the model. If nothing in the table decides,
    it is like the file that the model was fine-tuned on.

    >>> lacks_header([["a film", "good"], ["no film", "bad"], ["my film", "good"]], [])
    True
    >>> lacks_header([["text", "label"], ["a film", "good"], ["no film", "good"]], [])
    False
    """
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = [[row[place].strip() for row in rest] for place in range(len(first))]
    pairs = [(cell.strip(), column) for cell, column in zip(first, columns, strict=True)]
    usual = {name for names in (*TEXT_COLUMNS, LABEL_COLUMNS) for name in names}
    asked = {name.lower() for name in named if name}
    names = usual | asked | {name.lower() for name in remembered.columns if name}
    if any(cell.lower() in names and cell not in column for cell, column in pairs):
        return False
    if asked and all(map(NUMBERED.fullmatch, asked)):
        return True
    if all(is_number(cell) for cell, _ in pairs) and not remembered.numbered:
        return False
    classes = remembered.classes
    if any(cell in classes or _is_label(cell, column) for cell, column in pairs):
        return True
    return remembered.numbered and not any(_is_name(*pair, classes) for pair in pairs)


def _is_label(cell: str, column: Sequence[str]) -> bool:
    if is_number(cell):
        return bool(column) and all(map(is_number, column))
    return cell in column and len(set(column)) <= max(2, len(column) / 2)


def _is_name(cell: str, column: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether a cell that is no label stands above labels: numbers, or classes of the model."""
    if column and all(map(is_number, column)):
        return not is_number(cell)
    return sum(label in classes for label in column) > len(column) / 2


def is_number(cell: str) -> bool:
    """Whether a cell is a number.

    >>> is_number("3.80"), is_number("three")
    (True, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return True
