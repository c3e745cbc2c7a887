"""The first line of a table: names of columns, or a row like the others."""

import re
from collections.abc import Sequence

TEXTS: tuple[tuple[str, ...], ...] = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("question", "context"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("#1 string", "#2 string"),
    ("text",),
    ("sentence",),
    ("review",),
    ("content",),
    ("comment",),
    ("document",),
    ("utterance",),
    ("tweet",),
    ("question",),
    ("query",),
    ("title",),
)
"""Names of columns with texts; the first row of which all are there is taken."""
LABELS = (
    "label",
    "labels",
    "gold_label",
    "class",
    "category",
    "score",
    "target",
    "tag",
    "similarity",
    "relatedness_score",
    "rating",
    "stars",
    "sentiment",
    "intent",
    "quality",
    "is_duplicate",
)
NUMBERED = re.compile(r"(?:column )?[1-9]\d*")
"""How columns are named where a table has no header."""


def column_names(width: int) -> list[str]:
    """Names for the columns of a table without a header.

    >>> column_names(2)
    ['column 1', 'column 2']
    """
    return [f"column {number}" for number in range(1, width + 1)]


def lacks_header(rows: Sequence[Sequence[str]], named: Sequence[str]) -> bool:
    """Whether the first row of a table is one like the others; `named` are columns asked for.

    A header has a usual name, or the names that were asked for. Without either, the first row is no
    header if one of its cells is a label: one that recurs below, or a number above numbers.

    >>> lacks_header([["a film", "good"], ["no film", "bad"], ["my film", "good"]], [])
    True
    >>> lacks_header([["text", "label"], ["a film", "good"], ["no film", "good"]], [])
    False
    """
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = [[row[place].strip() for row in rest] for place in range(len(first))]
    pairs = [(cell.strip(), column) for cell, column in zip(first, columns, strict=True)]
    usual = {name for names in (*TEXTS, LABELS) for name in names}
    asked = {name.lower() for name in named if name}
    if any(cell.lower() in usual | asked and cell not in column for cell, column in pairs):
        return False
    if asked and all(map(NUMBERED.fullmatch, asked)):
        return True
    if all(is_number(cell) for cell, _ in pairs):
        return False
    return any(_is_label(cell, column) for cell, column in pairs)


def _is_label(cell: str, column: Sequence[str]) -> bool:
    if is_number(cell):
        return bool(column) and all(map(is_number, column))
    return cell in column and len(set(column)) <= max(2, len(column) / 2)


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
