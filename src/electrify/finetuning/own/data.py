"""One's own texts and their labels: which columns they are in, and what is to be learned.

Labels are words. Classes are numbered in sorted order, numerically if all are whole numbers.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.errors import UserError
from electrify.finetuning.own.files import DataTable, cell_text, fault
from electrify.finetuning.own.headers import LABEL_COLUMNS, TEXT_COLUMNS, is_number

MOST_WHOLE_CLASSES = 20
"""More different whole numbers than these are scores."""
LARGEST_SCORE = 1e30
"""Weights are stored in 32 bits."""


class Columns(NamedTuple):
    """Names of columns; as settings, empty means: to be found."""

    text: str = ""
    pair: str = ""
    """Of the second text; empty where there is none."""
    label: str = ""
    """Empty where there is none."""

    def __str__(self) -> str:
        return ", ".join(f"{role} = {name}" for role, name in self._asdict().items() if name)


class Texts(NamedTuple):
    """The rows of a table that were asked for."""

    path: Path
    first: list[str]
    second: list[str] | None
    labels: list[str] | None
    """Empty where a row has none."""
    lines: list[int]


def find_columns(table: DataTable, named: Columns) -> Columns:
    """The columns of texts and labels, by the names that were given or by those that are usual."""
    by_case = {name.lower(): name for name in reversed(table.header)}

    def there(name: str) -> str:
        if name in table.header:
            return name
        if table.numbered and f"column {name}" in table.header:
            return f"column {name}"
        if name.lower() in by_case:
            return by_case[name.lower()]
        got = f"columns: {', '.join(table.header)}"
        fix = "name the columns: --text A, --pair B for a second text, --label L"
        raise fault(table.path, 1, f"no column {name!r}", got=got, fix=fix)

    if table.numbered and not any(named):
        return _by_content(table)
    label = there(named.label) if named.label else ""
    if named.text or named.pair:
        text = there(named.text or "text")
        pair = there(named.pair) if named.pair else ""
    else:
        text, pair = _usual_texts(table, by_case, label)
    if not label and table.numbered and len(table.header) == 2:
        (label,) = (name for name in table.header if name != text)
    elif not label:
        usual = (by_case[name] for name in LABEL_COLUMNS if name in by_case)
        label = next((name for name in usual if name not in (text, pair)), "")
    return Columns(text, pair, label)


def _by_content(table: DataTable) -> Columns:
    """The columns of a table without a header: texts, or texts and labels, in either order."""
    if len(table.header) > 2:
        got = " | ".join(cell_text(cell)[:20] for cell in table.rows[0])
        fix = "add a header, or give the columns by number: --text 1 --label 2"
        raise fault(table.path, 1, "no header, and more than two columns", got=got, fix=fix)
    if len(table.header) == 1:
        return Columns(table.header[0])

    def least_like_texts(name: str) -> tuple[bool, int]:
        cells = [cell_text(cell) for cell in table.column(name)]
        return not all(map(is_number, cells)), len(set(cells))

    label = min(reversed(table.header), key=least_like_texts)
    (text,) = (name for name in table.header if name != label)
    return Columns(text, "", label)


def _usual_texts(table: DataTable, by_case: dict[str, str], label: str) -> tuple[str, str]:
    for names in TEXT_COLUMNS:
        found = [by_case[name] for name in names if name in by_case and by_case[name] != label]
        if len(found) == len(names):
            return found[0], found[1] if len(found) == 2 else ""
    others = [n for n in table.header if n != label and n and n.lower() not in LABEL_COLUMNS]
    if len(others) == 1:
        return others[0], ""
    raise fault(
        table.path,
        1,
        "no column whose name says that it holds the text",
        got=f"columns: {', '.join(table.header)}",
        fix="name the columns: --text A, --pair B for a second text, --label L; "
        "by number if there is no header: --text 1 --label 2",
    )


def texts_of(table: DataTable, columns: Columns) -> Texts:
    """The texts and labels under some columns; no text may be empty."""
    first = _texts(table, columns.text)
    second = _texts(table, columns.pair) if columns.pair else None
    labels = [cell_text(cell) for cell in table.column(columns.label)] if columns.label else None
    return Texts(table.path, first, second, labels, table.lines)


def _texts(table: DataTable, name: str) -> list[str]:
    found = []
    for line, cell in zip(table.lines, table.column(name), strict=True):
        if isinstance(cell, list | dict):
            got = f"{cell_text(cell)[:40]}"
            fix = "give text, or name another column with --text"
            raise fault(table.path, line, f"{name!r} is no text", got=got, fix=fix)
        text = cell_text(cell)
        if not text:
            got = "an empty cell" if cell is not None else "no such key"
            fix = "fill it, or leave the row out"
            raise fault(table.path, line, f"no text under {name!r}", got=got, fix=fix)
        found.append(text)
    return found


def need_labels(texts: Texts) -> list[str]:
    """The labels of a file where every row must have one."""
    if texts.labels is None:
        fix = "name it: --label L"
        raise fault(texts.path, 1, "no column with labels", got="none of the usual names", fix=fix)
    for line, label in zip(texts.lines, texts.labels, strict=True):
        if not label:
            raise fault(
                texts.path, line, "no label", got="an empty cell", fix="fill it or drop the row"
            )
    return texts.labels


def kind_of(labels: Sequence[str]) -> tuple[Literal["classes", "score"], str]:
    """What labels are, and how one can tell.

    >>> kind_of(["yes", "no"])[0], kind_of(["0", "1"])[0], kind_of(["3.8", "5.0"])[0]
    ('classes', 'classes', 'score')
    """
    numbers = [number for number in map(_number, labels) if number is not None]
    if len(numbers) <= len(labels) / 2:
        return "classes", "labels are words"
    if any(not number.is_integer() for number in numbers):
        return "score", "most labels are numbers, some with fractions"
    different = len(set(numbers))
    if different > MOST_WHOLE_CLASSES:
        return "score", f"labels are {different} different whole numbers"
    return "classes", f"labels are {different} different whole numbers"


def _number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def label_order(labels: Sequence[str]) -> tuple[str, ...]:
    """The different labels in the order of their numbers.

    >>> label_order(["10", "9", "9"]), label_order(["b", "10", "9"])
    (('9', '10'), ('10', '9', 'b'))
    """
    different = set(labels)
    if all(label.lstrip("+-").isdecimal() for label in different):
        return tuple(sorted(different, key=lambda label: (int(label), label)))
    return tuple(sorted(different))


def classes_of(texts: Texts) -> tuple[str, ...]:
    """The classes of a training file."""
    classes = label_order(need_labels(texts))
    if len(classes) < 2:
        raise UserError(
            f"{texts.path}: every row has the same label, so there is nothing to learn",
            got=f"{classes[0]!r} from line {texts.lines[0]} to line {texts.lines[-1]}",
            fix="give rows of two classes at least, or name another column with --label",
        )
    return classes


def class_numbers(texts: Texts, classes: Sequence[str]) -> NDArray[np.float64]:
    """The number of every row's class."""
    number = {label: place for place, label in enumerate(classes)}
    for line, label in zip(texts.lines, need_labels(texts), strict=True):
        if label not in number:
            raise unknown_label(texts.path, line, label, classes)
    return np.array([number[label] for label in need_labels(texts)], dtype=np.float64)


def unknown_label(path: Path, line: int, label: str, known: Sequence[Any]) -> UserError:
    """The error for a label that the model does not have."""
    shown = ", ".join(map(str, known[:10])) + (" …" if len(known) > 10 else "")
    return fault(
        path,
        line,
        "a label that the training file does not have",
        got=repr(label),
        fix=f"mend it, or add such rows to the training file; known: {shown}",
    )


def scores_of(texts: Texts) -> NDArray[np.float64]:
    """The score of every row: a number, neither NaN nor infinite."""
    found = []
    for line, label in zip(texts.lines, need_labels(texts), strict=True):
        number = _number(label)
        if number is None or not math.isfinite(number) or abs(number) > LARGEST_SCORE:
            got = repr(label)
            fix = "give numbers such as 3.5; --kind classes if labels are classes"
            raise fault(texts.path, line, "a score that is no number to learn", got=got, fix=fix)
        found.append(number)
    return np.array(found)


def centre_and_spread(texts: Texts) -> tuple[float, float]:
    """Mean and standard deviation of the scores of a training file."""
    scores = scores_of(texts)
    if np.ptp(scores) == 0:
        raise UserError(
            f"{texts.path}: every row has the same score, so there is nothing to learn",
            got=f"{scores[0]:g} from line {texts.lines[0]} to line {texts.lines[-1]}",
            fix="give rows of different scores, or name another column with --label",
        )
    return float(scores.mean()), float(scores.std())
