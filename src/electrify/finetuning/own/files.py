"""Read your tables: CSV, TSV and JSON lines, plain or compressed, with the line number of each row.

CSV follows RFC 4180: a quoted cell may contain commas, quotation marks (doubled) and line breaks.
In TSV a quotation mark is an ordinary character, as in GLUE, unless every name in the header is
quoted; then cells are read as in CSV. Blank lines at the end are ignored.
Plain text (.txt) is read as TSV if it contains tabs, otherwise as one text per line, without a
header unless the first line is a column name that the command requests. The columns of a file
without a header are numbered.
Question types (TREC, any other suffix): lines such as `NUM:date When was she born ?`, in Latin-1.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.corpora.archive import COMPRESSED, Truncated, read_blocks
from electrify.corpora.table import all_quoted
from electrify.errors import UserError
from electrify.finetuning.own.headers import (
    NO_TRAINING_INFO,
    TrainingInfo,
    column_names,
    lacks_header,
)
from electrify.storage.commit import parse_json

MAX_CHARACTERS = 100_000
"""Maximum length of a cell: a longer one is usually an unclosed quotation mark."""

MAX_EMPTY_CELLS, MAX_CELLS_PER_VALUE = 1_000_000, 20
"""Limits of the table that JSON lines with different keys would become."""

FileRow = tuple[int, list[Any]]
"""The line number where a row starts, and its cells."""


class DataTable(NamedTuple):
    """A table whose rows all have one cell per column; None where a JSON object lacks the key."""

    path: Path
    header: list[str]
    rows: list[list[Any]]
    lines: list[int]
    numbered: bool = False
    """Whether the file has no header, so that its columns are numbered."""

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        index = self.header.index(name)
        return [row[index] for row in self.rows]


def first_names(names: Sequence[str]) -> str:
    """Return the first names of a list, for a message."""
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


def line_error(path: Path, line: int, what: str, got: str, fix: str) -> UserError:
    """Return an error that names the file and the line."""
    return UserError(f"{path}, line {line}: {what}", got=got, fix=fix)


def suffix_of(path: Path) -> str:
    """Return the suffix that names a file's format, ignoring compression.

    >>> suffix_of(Path("a/train.TSV.gz"))
    '.tsv'
    """
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower()


def read_text(path: Path) -> str:
    """Return the content of a UTF-8 file, with or without a byte-order mark; TREC is Latin-1."""
    try:
        raw = b"".join(read_blocks(path))
    except Truncated as error:
        fix = "download or copy the file again"
        raise UserError(f"{path} cannot be read to the end", got=str(error), fix=fix) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if has_questions(latin := raw.decode("latin-1")):
            return latin
        raise line_error(
            path,
            raw.count(b"\n", 0, error.start) + 1,
            "not valid UTF-8",
            got=f"byte {raw[error.start]:#04x}",
            fix="convert the file: iconv -f ENCODING -t UTF-8, where ENCODING is its encoding",
        ) from error
    if not text.strip():
        raise UserError(f"{path} is empty", got=f"{len(raw)} bytes", fix="use a file with rows")
    return text


def read_table(
    path: Path,
    text: str,
    requested: Sequence[str] = (),
    training: TrainingInfo = NO_TRAINING_INFO,
) -> DataTable:
    """Parse the text of a file by the file's suffix; `requested` are columns the user named."""
    suffix = suffix_of(path)
    questions = suffix not in (*TABLES, *JSON_LINES) and has_questions(text)
    if suffix not in (*TABLES, *JSON_LINES) and not questions:
        raise UserError(
            f"{path} has an unknown format",
            got=suffix or "a name without suffix",
            fix=f"use a file that ends in {', '.join((*TABLES, *JSON_LINES))} "
            f"(compressed: {', '.join(COMPRESSED)}); "
            "--kind tags reads CoNLL-style files with any name",
        )
    numbered = False
    if questions:
        header, rows = _read_questions(text)
    elif suffix in JSON_LINES:
        header, rows = _read_json_lines(path, text)
    else:
        cells = TABLES[suffix](path, text)
        header, rows, numbered = _split_header(path, cells, requested, training)
    for name, count in Counter(header).items():
        if count > 1:
            what, got = "two columns have the same name", name or "an empty name"
            raise line_error(path, 1, what, got=got, fix="rename one of them")
    for line, cells in rows:
        for name, cell in zip(header, cells, strict=True):
            check_length(path, line, name, cell)
    if not rows:
        raise UserError(f"{path} has no rows", got="only a header", fix="use a file with rows")
    lines = [line for line, _ in rows]
    return DataTable(path, header, [cells for _, cells in rows], lines, numbered)


def check_length(path: Path, line: int, name: str, cell: Any) -> None:
    """Raise an error if a cell is too long to be a text."""
    if isinstance(cell, str) and len(cell) > MAX_CHARACTERS:
        raise _too_long(path, line, f"{len(cell):,} characters in column {name!r}")


def _too_long(path: Path, line: int, got: str) -> UserError:
    what = f"a cell has more than {MAX_CHARACTERS:,} characters"
    fix = "close the open quotation mark, or shorten the text"
    return line_error(path, line, what, got=got, fix=fix)


def split_lines(text: str) -> list[str]:
    """Split a text at line feeds only, not at characters such as U+2028."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read_tsv(path: Path, text: str) -> list[FileRow]:
    names = split_lines(text)[0].split("\t")
    if all_quoted(names):
        return _read_csv(path, text, "\t")
    lines = enumerate(split_lines(text), start=1)
    return [(n, line.split("\t") if line else []) for n, line in lines]


def _read_txt(path: Path, text: str) -> list[FileRow]:
    if "\t" in text:
        return _read_tsv(path, text)
    return [(n, [line]) for n, line in enumerate(split_lines(text), start=1) if line.strip()]


def _read_csv(path: Path, text: str, delimiter: str = ",") -> list[FileRow]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[FileRow] = []
    line = 1
    try:
        for cells in reader:
            rows.append((line, cells))
            line = reader.line_num + 1
        return rows
    except csv.Error as error:
        if "field limit" in str(error):
            raise _too_long(path, line, str(error)) from error
        fix = "double the quotation marks inside quoted cells"
        raise line_error(path, line, "not valid CSV", got=str(error), fix=fix) from error


def _split_header(
    path: Path, rows: list[FileRow], requested: Sequence[str], training: TrainingInfo
) -> tuple[list[str], list[FileRow], bool]:
    while rows and not rows[-1][1]:
        rows.pop()
    (_, first), *rest = rows
    if suffix_of(path) == ".txt" and len(first) == 1:  # a line of plain text is not a name
        numbered = first[0].strip().lower() not in {name.lower() for name in requested}
    else:
        numbered = lacks_header([cells for _, cells in rows], requested, training)
    header = column_names(len(first)) if numbered else [name.strip() for name in first]
    for line, cells in rest:
        if len(cells) != len(header):
            raise line_error(
                path,
                line,
                f"the row must have as many cells as the {'first line' if numbered else 'header'}",
                got=f"{len(cells)} cells instead of {len(header)} ({first_names(header)})",
                fix="fix the row" + ("" if numbered else "; the header must be the first line"),
            )
    return header, rows if numbered else rest, numbered


_QUESTION = re.compile(r"([A-Z]+):[a-z]+ +(\S.*)")


def has_questions(text: str) -> bool:
    """Return whether every line is a question after its coarse and fine type, as in TREC.

    >>> has_questions("NUM:date When was she born ?"), has_questions("Note: this is a text")
    (True, False)
    """
    return all(_QUESTION.fullmatch(line) for line in split_lines(text.strip("\r\n")))


def _read_questions(text: str) -> tuple[list[str], list[FileRow]]:
    """Return the questions, their coarse types as labels, and their complete types as `fine`."""
    rows: list[FileRow] = []
    for number, line in enumerate(split_lines(text), start=1):
        if found := _QUESTION.fullmatch(line):
            rows.append((number, [found[2], found[1], line.split(maxsplit=1)[0]]))
    return ["question", "label", "fine"], rows


def _read_json_lines(path: Path, text: str) -> tuple[list[str], list[FileRow]]:
    objects: list[tuple[int, dict[str, Any]]] = []
    fix = 'write one object per line, such as {"text": "…", "label": "…"}'
    for number, line in enumerate(split_lines(text), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise line_error(path, number, "not valid JSON", got=str(error), fix=fix) from error
        if not isinstance(value, dict):
            raise line_error(path, number, "not a JSON object", got=line[:40], fix=fix)
        objects.append((number, value))
    header = list(dict.fromkeys(name for _, value in objects for name in value))
    given = sum(len(value) for _, value in objects)
    if len(header) * len(objects) > MAX_EMPTY_CELLS + MAX_CELLS_PER_VALUE * given:
        raise UserError(
            f"{path}: most lines lack most of the keys",
            got=f"{len(header):,} different keys in {len(objects):,} lines",
            fix="use the same keys on every line",
        )
    return header, [(line, [value.get(name) for name in header]) for line, value in objects]


TABLES: dict[str, Callable[[Path, str], list[FileRow]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".txt": _read_txt,
}
JSON_LINES = (".jsonl", ".ndjson", ".json")
"""The only format whose cells may contain objects. Other formats except CSV are tab-separated."""


def cell_text(cell: Any) -> str:
    """Return a cell as text without surrounding whitespace; a missing cell is empty.

    >>> cell_text(" 3.80 "), cell_text(3), cell_text(True), cell_text(None)
    ('3.80', '3', 'true', '')
    """
    if cell is None:
        return ""
    return (cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)).strip()


def format_table(header: Sequence[str], rows: Sequence[Sequence[Any]], suffix: str) -> str:
    """Return a table as the text of a file; in TSV, tabs and line breaks become spaces."""
    if suffix == ".csv":
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
        return file.getvalue()
    if suffix not in JSON_LINES:
        return "".join("\t".join(map(_single_line, row)) + "\n" for row in [header, *rows])
    objects = (dict(zip(header, row, strict=True)) for row in rows)
    return "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in objects)


def add_columns(table: DataTable, added: Sequence[dict[str, Any]], suffix: str) -> str:
    """Return a table with more cells in every row, replacing columns of the same name."""
    kept = [index for index, name in enumerate(table.header) if name not in added[0]]
    header = [*(table.header[index] for index in kept), *added[0]]
    pairs = zip(table.rows, added, strict=True)
    rows = [[*(row[index] for index in kept), *cells.values()] for row, cells in pairs]
    return format_table(header, rows, suffix)


def _single_line(cell: Any) -> str:
    text = cell if isinstance(cell, str) else cell_text(cell)
    return text.translate({ord(character): " " for character in "\t\r\n"})
