"""Read CSV and TSV from files or folders, compressed or not.

A quoted cell may contain delimiters, line ends and doubled quotation marks (RFC 4180), so only
parsing from the start shows where a row ends. Rows are parsed as Latin-1, in which every byte is a
character; the cells of a document are then decoded on their own.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import MAX_DOCUMENT_BYTES, PART_BYTES, Truncated, compressed_suffixes
from electrify.corpora.clean import decode_utf8
from electrify.corpora.document import Document, Part
from electrify.corpora.plaintext import (
    CHUNK_BYTES,
    Chunk,
    TextFields,
    as_utf8,
    chunks_of,
    split_files,
)
from electrify.corpora.troubles import NOTE, TOO_LARGE, missing, several_columns
from electrify.errors import UserError

_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
_TSV = compressed_suffixes(".tsv")
SAMPLED_ROWS = 100  # that show which delimiter a file has
COMMON_NAMES = (
    "text", "content", "contents", "body", "document", "article", "passage", "paragraph",
    "sentence", "review", "comment", "post", "message", "tweet", "abstract", "story",
)  # fmt: skip
"""Names of columns that are read if no other is named and there is no column "text"."""
OTHER_WIDTH = "row has another number of cells than the first row"
NOT_CSV = "row has text after a closing quotation mark"
# What the messages of the csv module contain.
_OPEN, _TOO_LONG = "unexpected end of data", "field limit"


class _Dialect(NamedTuple):
    delimiter: str
    quotes: bool


class _Layout(NamedTuple):
    """Where the cells of a document are in the rows of a file; None for a column it lacks."""

    dialect: _Dialect
    header: bool
    width: int
    text: int
    id: int | None
    title: int | None
    note: str
    """Which column was found, if it is not the one that the settings name."""


class _Row(NamedTuple):
    """A row, where it starts and stops, and the numbers of lines before it and in it."""

    start: int
    stop: int
    line: int
    lines: int
    cells: list[str]
    error: str


def _rows(data: bytes, dialect: _Dialect) -> Iterator[_Row]:
    """Parse rows; after one with an error, continue at the next line."""
    file = io.BytesIO(data)
    reader = csv.reader(
        (line.decode("latin-1") for line in file),
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
        strict=True,  # an open quotation mark then ends at the next cell in quotation marks
    )
    while True:
        start, line, error = file.tell(), reader.line_num, ""
        try:
            cells = _next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            cells, error = [], str(problem)
        yield _Row(start, file.tell(), line, reader.line_num - line, cells, error)


def _next(reader: Iterator[list[str]]) -> list[str]:
    """Return the next row; the limit of a cell is a global setting, so it is set back."""
    limit = csv.field_size_limit(MAX_DOCUMENT_BYTES)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(limit)


def all_quoted(cells: Sequence[str]) -> bool:
    """Return whether every cell is in quotation marks.

    >>> all_quoted(['"id"', '"text"']), all_quoted(['id', '"text"'])
    (True, False)
    """
    return all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells)


def _blocks(path: Path, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Yield a file as UTF-8 with LF line ends and without NUL."""
    kept = b""
    for block in as_utf8(archive.read_blocks(path, on_read)):
        data = kept + block.replace(b"\0", b"")
        kept = b"\r" if data.endswith(b"\r") else b""  # LF may follow in the next block
        yield data.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    yield b"\n" if kept else b""


def _beginning(path: Path) -> bytes:
    """Return the complete lines at the beginning of a file."""
    data = b""
    with suppress(Truncated):  # counted when the file is read
        for block in _blocks(path):
            data += block
            if len(data) > archive.BLOCK_BYTES:
                return data[: data.rfind(b"\n") + 1] or data
    return data


def _unclosed(path: Path, line: int) -> UserError:
    return UserError(
        f"{path}, line {line}: a quotation mark in the row that starts here is not closed",
        got=f"no closing one before the end of the file or within {MAX_DOCUMENT_BYTES:,} bytes",
        fix="close it, or remove the row; if quotation marks enclose no cells in this file, "
        "use --quotes False",
    )


def _first_line(data: bytes) -> str:
    return data.lstrip(b"\n").partition(b"\n")[0].decode(errors="replace")


def _decoded(cell: str) -> str:
    return cell.encode("latin-1").decode(errors="replace")


def _end_of_rows(data: bytes, dialect: _Dialect) -> tuple[int, bool]:
    """Return where an open row at the end starts, and whether it is certainly not closed."""
    if dialect.quotes and b'"' in data:
        for row in _rows(data, dialect):
            too_long = _TOO_LONG in row.error and row.lines > 1
            if too_long or _OPEN in row.error:
                return row.start, too_long or len(data) - row.start > MAX_DOCUMENT_BYTES
    return len(data), False


@dataclass(frozen=True)
class Csv(TextFields):
    """Comma-, semicolon- or tab-separated values: .csv or .tsv files, compressed or not.

    The first row must be a header, unless --text is a number. Rows with another number of cells
    are left out and counted.
    """

    suffixes: ClassVar[Sequence[str]] = compressed_suffixes(".csv", ".tsv")
    text: str = "text"
    """Column with the text: its name, or its number (from 1) if the file has no header; without
    a column "text", the only one with another common name is read, such as content or review."""
    delimiter: Literal["comma", "semicolon", "tab"] | None = None
    """What separates cells; by default a tab in .tsv files, otherwise detected."""
    quotes: bool | None = None
    """Whether quotation marks enclose cells; by default yes, but with tabs only if the header has
    them."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        for path, _ in files:
            self._layout(path)  # an error before anything is read
        yield from split_files(files, self._chunks)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        for name, chunks in chunks_of(part, self._chunks, tally):
            for chunk in chunks:
                if chunk.data:
                    yield from self._row_documents(name, chunk, chunk.layout, tally)

    def _row_documents(
        self, name: str, chunk: Chunk, layout: _Layout, tally: Counter[str]
    ) -> Iterator[Document]:
        for row in _rows(chunk.data, layout.dialect):
            if row.error:
                tally[TOO_LARGE if _TOO_LONG in row.error else NOT_CSV] += 1
            elif row.cells and len(row.cells) != layout.width:
                tally[OTHER_WIDTH] += 1
            elif row.cells:
                if layout.note:
                    tally[layout.note] += 1
                text = decode_utf8(row.cells[layout.text].encode("latin-1"), tally)
                row_id, title = (
                    None if column is None else _decoded(row.cells[column]) or None
                    for column in (layout.id, layout.title)
                )
                yield self.document(name, chunk.first + row.line, text, row_id, title)

    def _chunks(self, path: Path, on_read: Callable[[int], None] | None) -> Iterator[Chunk]:
        """Split a file into chunks of complete rows, without the header."""
        layout = self._layout(path)
        if layout is None:
            return
        size = PART_BYTES if on_read else CHUNK_BYTES
        has_header, kept, line = layout.header, b"", 1
        for lines, left_out in archive.cut_after(
            _blocks(path, on_read), b"\n", size, MAX_DOCUMENT_BYTES
        ):
            data = kept + lines
            end, certain = _end_of_rows(data, layout.dialect)
            kept = data[end:]
            if certain or (kept and left_out):
                raise _unclosed(path, line + data.count(b"\n", 0, end))
            start = 0
            if has_header and data[:end].strip():
                start = next(row.stop for row in _rows(data, layout.dialect) if row.cells)
                has_header = False
            first = line + data.count(b"\n", 0, start)
            yield Chunk(data[start:end], first, left_out, layout)
            line += data.count(b"\n", 0, end) + left_out
        if kept:
            raise _unclosed(path, line)

    def _layout(self, path: Path) -> _Layout | None:
        """Find the delimiter and the columns; None for a file without rows."""
        data = _beginning(path)
        if not data.strip():
            return None
        known = self.delimiter or ("tab" if path.name.lower().endswith(_TSV) else None)
        found = []
        possible = [sign for sign in _DELIMITERS.values() if sign in _first_line(data)] or [","]
        for delimiter in [_DELIMITERS[known]] if known else possible:
            dialect = self._dialect(delimiter, data)
            rows = islice(_rows(data, dialect), SAMPLED_ROWS)
            cells = [
                row.cells for row in rows if row.cells or (row.error and _OPEN not in row.error)
            ]
            names = self._names(cells[0] if cells else [])
            same_width = len({len(row) for row in cells}) == 1
            found.append(((self._found(names) in names, same_width, len(names)), dialect, names))
        _, dialect, names = max(found, key=lambda item: item[0])
        if not names:
            raise UserError(
                f"{path}: the first row cannot be parsed",
                got=_first_line(data)[:80],
                fix="close the quotation marks, and double those inside cells; if they enclose no "
                "cells, use --quotes False",
            )
        text = self._found(names)
        self._require_text(path, names, text)
        row_id, title = (names.index(n) if n in names else None for n in (self.id, self.title))
        note = "" if text == self.text else f"{NOTE}no column {self.text!r}; read column {text!r}"
        header = not self._is_number
        return _Layout(dialect, header, len(names), names.index(text), row_id, title, note)

    def _dialect(self, delimiter: str, data: bytes) -> _Dialect:
        by_default = delimiter != "\t" or all_quoted(_first_line(data).split("\t"))
        return _Dialect(delimiter, by_default if self.quotes is None else self.quotes)

    @property
    def _is_number(self) -> bool:
        return bool(re.fullmatch("[1-9][0-9]*", self.text))

    def _names(self, first: Sequence[str]) -> list[str]:
        if self._is_number:
            return [str(number) for number in range(1, len(first) + 1)]
        return [_decoded(cell).strip() for cell in first]

    def _found(self, names: Sequence[str]) -> str:
        """Return the text column: the one in the settings, or else the only common name."""
        common = [name for name in names if name.lower() in COMMON_NAMES]
        guess = self.text == COMMON_NAMES[0] and self.text not in names and len(common) == 1
        return common[0] if guess else self.text

    def _require_text(self, path: Path, names: Sequence[str], text: str) -> None:
        if text not in names:
            error = missing(str(path), "column", "--text", text, [n[:40] for n in names])
            hint = "" if self._is_number else "; without a header, give a number, such as --text 1"
            raise UserError(error.what, got=error.got, fix=error.fix + hint)
        if names.count(text) > 1:
            raise several_columns(str(path), text, names)
