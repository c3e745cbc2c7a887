"""Your texts and their labels: find their columns and what there is to learn.

Labels are strings. Classes are numbered in sorted order, numerically if all are integers.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.errors import UserError
from electrify.finetuning.own.files import (
    JSON_LINES,
    DataTable,
    cell_text,
    first_names,
    line_error,
    suffix_of,
)
from electrify.finetuning.own.headers import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    all_numbers,
    has_common_name,
    to_number,
)

MAX_INTEGER_CLASSES = 20
"""More distinct integers than this are scores, not classes."""
MAX_SCORE = 1e30
"""The scale of the scores goes into weights, which are float32."""


class Columns(NamedTuple):
    """Names of columns; in settings, an empty name means that the column is to be found."""

    text: str = ""
    pair: str = ""
    """The second text; empty if there is none."""
    label: str = ""
    """Empty if there is none."""

    def __str__(self) -> str:
        return ", ".join(f"{role} = {name}" for role, name in self._asdict().items() if name)


class Texts(NamedTuple):
    """The texts and labels of a table."""

    path: Path
    first: list[str]
    second: list[str] | None
    labels: list[str] | None
    """Empty strings for rows without a label."""
    lines: list[int]


def find_columns(table: DataTable, requested: Columns) -> Columns:
    """Return the columns of texts and labels, by the requested names or by common ones."""
    by_case = {name.lower(): name for name in reversed(table.header)}

    def resolve(name: str) -> str:
        if name in table.header:
            return name
        if table.numbered and f"column {name}" in table.header:
            return f"column {name}"
        if name.lower() in by_case:
            return by_case[name.lower()]
        raise _column_error(table, f"no column {name!r}")

    if table.numbered and not any(requested):
        return _columns_by_content(table)
    label = requested.label and resolve(requested.label)
    if requested.text or requested.pair:
        text = resolve(requested.text or "text")
        pair = requested.pair and resolve(requested.pair)
    else:
        text, pair = _common_texts(table, by_case, label)
    if not label and not pair and table.numbered and len(table.header) == 2:
        (label,) = (name for name in table.header if name != text)
    elif not label:
        common = (by_case[name] for name in LABEL_COLUMNS if name in by_case)
        label = next((name for name in common if name not in (text, pair)), "")
    return Columns(text, pair, label)


def _columns_by_content(table: DataTable) -> Columns:
    """Return the columns of a table without a header: texts, or texts and labels in any order."""
    if len(table.header) > 2:
        got = " | ".join(cell_text(cell)[:20] for cell in table.rows[0])
        fix = "add a header, or give the columns by number: --text 1 --label 2"
        raise line_error(table.path, 1, "no header and more than two columns", got=got, fix=fix)
    if len(table.header) == 1:
        return Columns(table.header[0])

    def text_likeness(name: str) -> tuple[bool, int]:
        cells = [cell_text(cell) for cell in table.column(name)]
        return not all_numbers(cells), len(set(cells))

    label = min(reversed(table.header), key=text_likeness)
    (text,) = (name for name in table.header if name != label)
    return Columns(text, "", label)


def _common_texts(table: DataTable, by_case: dict[str, str], label: str) -> tuple[str, str]:
    for names in TEXT_COLUMNS:
        found = [by_case[name] for name in names if name in by_case and by_case[name] != label]
        if len(found) == len(names):
            return found[0], found[1] if len(found) == 2 else ""
    others = [n for n in table.header if n != label and n and n.lower() not in LABEL_COLUMNS]
    if len(others) == 1:
        return others[0], ""
    raise _column_error(table, "cannot tell which column contains the text")


def _column_error(table: DataTable, what: str) -> UserError:
    got = f"columns: {first_names(table.header)}"
    fix = (
        "name the columns: --text A, --pair B for a second text, --label L; "
        "by number if there is no header: --text 1 --label 2"
    )
    return line_error(table.path, 1, what, got=got, fix=fix)


def describe_header(table: DataTable, columns: Columns, expected: Sequence[str]) -> str:
    """Return a note on whether the first line is a header, unless its names make it obvious."""
    if table.numbered and suffix_of(table.path) == ".txt" and len(table.header) == 1:
        return f"{table.path}: plain text, one text per line"
    if table.numbered:
        return f"{table.path}: no header line; columns are numbered"
    obvious = columns.text in expected or has_common_name(table.header)
    if obvious or suffix_of(table.path) in JSON_LINES:
        return ""
    return f"{table.path}: the first line is a header; columns: {columns}"


def extract_texts(table: DataTable, columns: Columns) -> Texts:
    """Return the texts and labels of the given columns; no text may be empty."""
    if {*_WORD_IN_CONTEXT} <= {*table.header}:
        table = _with_marked_words(table)
    first = _texts(table, columns.text)
    second = _texts(table, columns.pair) if columns.pair else None
    labels = [cell_text(cell) for cell in table.column(columns.label)] if columns.label else None
    return Texts(table.path, first, second, labels, table.lines)


_WORD_IN_CONTEXT = ("sentence1", "start1", "end1", "sentence2", "start2", "end2")
"""Columns of WiC (SuperGLUE): does a word, which the offsets mark, mean the same in both?"""


def _with_marked_words(table: DataTable) -> DataTable:
    """Return a table whose sentences have asterisks around the word that the offsets mark."""
    indices = [table.header.index(name) for name in _WORD_IN_CONTEXT]
    rows = []
    for line, cells in zip(table.lines, table.rows, strict=True):
        row = list(cells)
        for sentence, start, end in (indices[:3], indices[3:]):
            row[sentence] = _marked(table.path, line, *(cells[i] for i in (sentence, start, end)))
        rows.append(row)
    return table._replace(rows=rows)


def _marked(path: Path, line: int, text: Any, start: Any, end: Any) -> str:
    try:
        first, last = int(start), int(end)
        valid = isinstance(text, str) and 0 <= first < last <= len(text)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        got = f"characters {start!r} to {end!r} of {text!r:.60}"
        fix = "count characters from 0; the end is the first one after the word"
        raise line_error(path, line, "the offsets mark no word", got=got, fix=fix)
    return f"{text[:first]}* {text[first:last]} *{text[last:]}"


def _texts(table: DataTable, name: str) -> list[str]:
    texts = []
    for line, cell in zip(table.lines, table.column(name), strict=True):
        text = cell_text(cell)
        if isinstance(cell, list | dict):
            fix = "provide text, or choose another column with --text"
            what = f"column {name!r} must contain text"
            raise line_error(table.path, line, what, got=text[:40], fix=fix)
        if not text:
            got = "an empty cell" if cell is not None else "a missing key"
            fix = "fill it in, or remove the row"
            raise line_error(table.path, line, f"no text in column {name!r}", got=got, fix=fix)
        texts.append(text)
    return texts


def require_labels(texts: Texts) -> list[str]:
    """Return the labels of a file, or raise an error if any is missing."""
    if texts.labels is None:
        got, fix = "no column with a common name for labels", "name the column with --label"
        raise line_error(texts.path, 1, "no label column", got=got, fix=fix)
    for line, label in zip(texts.lines, texts.labels, strict=True):
        if not label:
            fix = "fill it in, or remove the row"
            raise line_error(texts.path, line, "no label", got="an empty cell", fix=fix)
    return texts.labels


def infer_kind(labels: Sequence[str]) -> tuple[Literal["classes", "score"], str]:
    """Return the kind of some labels, and the reason.

    >>> infer_kind(["yes", "no"])[0], infer_kind(["0", "1"])[0], infer_kind(["3.8", "5.0"])[0]
    ('classes', 'classes', 'score')
    """
    numbers = [number for number in map(to_number, labels) if number is not None]
    if len(numbers) <= len(labels) / 2:
        return "classes", "labels are words"
    if any(not number.is_integer() for number in numbers):
        return "score", "most labels are numbers, some of them not integers"
    distinct = len(set(numbers))
    reason = f"labels are {distinct} distinct integers"
    return "score" if distinct > MAX_INTEGER_CLASSES else "classes", reason


def sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels in the order of their class indices.

    >>> sorted_labels(["10", "9", "9"]), sorted_labels(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    distinct = set(labels)
    if all(label.lstrip("+-").isdecimal() for label in distinct):
        return tuple(sorted(distinct, key=lambda label: (int(label), label)))
    return tuple(sorted(distinct))


def find_classes(texts: Texts) -> tuple[str, ...]:
    """Return the classes of a training file."""
    classes = sorted_labels(require_labels(texts))
    if len(classes) < 2:
        raise nothing_to_learn(texts.path, "row", "label", repr(classes[0]), texts.lines)
    return classes


def nothing_to_learn(
    path: Path, unit: str, label: str, value: str, lines: Sequence[int]
) -> UserError:
    """Return the error for a training file whose labels are all the same."""
    return UserError(
        f"{path}: every {unit} has the same {label}, so there is nothing to learn",
        got=f"{value} from line {lines[0]} to line {lines[-1]}",
        fix=f"provide {unit}s with different {label}s, or choose another column with --label",
    )


def class_indices(texts: Texts, classes: Sequence[str]) -> NDArray[np.float64]:
    """Return the class index of every row."""
    labels = zip(texts.lines, require_labels(texts), strict=True)
    return np.array(label_indices(texts.path, labels, classes), dtype=np.float64)


def label_indices(path: Path, labels: Iterable[tuple[int, str]], known: Sequence[str]) -> list[int]:
    """Return the indices of labels, which are given with their lines; all must be known."""
    indices = {label: index for index, label in enumerate(known)}
    result = []
    for line, label in labels:
        if label not in indices:
            listed = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
            what = "the label is not in the training file"
            fix = f"fix the label, or add rows with it to the training file; known labels: {listed}"
            raise line_error(path, line, what, got=repr(label), fix=fix)
        result.append(indices[label])
    return result


def parse_scores(texts: Texts) -> NDArray[np.float64]:
    """Return the score of every row: a finite number."""
    scores = []
    for line, label in zip(texts.lines, require_labels(texts), strict=True):
        number = to_number(label)
        if number is None or not math.isfinite(number) or abs(number) > MAX_SCORE:
            what = f"the score must be a number between -{MAX_SCORE:g} and {MAX_SCORE:g}"
            fix = "use numbers such as 3.5; --kind classes if the labels are classes"
            raise line_error(texts.path, line, what, got=repr(label), fix=fix)
        scores.append(number)
    return np.array(scores)


def mean_and_std(texts: Texts) -> tuple[float, float]:
    """Return the mean and standard deviation of the scores of a training file."""
    scores = parse_scores(texts)
    if np.ptp(scores) == 0:
        raise nothing_to_learn(texts.path, "row", "score", f"{scores[0]:g}", texts.lines)
    return float(scores.mean()), float(scores.std())
