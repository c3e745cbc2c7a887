"""One's own tables: CSV, TSV and JSON lines, plain or packed, with the line every row begins at.

CSV is read by RFC 4180: a cell may be quoted, and then holds commas, quotation marks (doubled) and
line ends. In TSV a quotation mark is an ordinary character, as in GLUE; only where every name in
the header is quoted are the cells read as in CSV. Blank lines at the end do not count.
Plain text (.txt) is read as TSV if it has tabs, otherwise as one text a line, without a header
unless the first line is a name that the command asks for. Where a file has no header, its columns
have numbers.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.corpora.archive import COMPRESSED, Truncated, read_blocks
from electrify.errors import UserError
from electrify.finetuning.own.headers import NO_MEMORY, Remembered, column_names, lacks_header

MOST_CHARACTERS = 100_000
"""In one cell: more is most often a quotation mark that was never closed."""

FileRow = tuple[int, list[Any]]
"""The line it begins at, and its cells."""


class DataTable(NamedTuple):
    """A table whose rows all have a cell for each name of the header; None where JSON has none."""

    path: Path
    header: list[str]
    rows: list[list[Any]]
    lines: list[int]
    numbered: bool = False
    """Whether the file has no header, so that columns have numbers for names."""

    def column(self, name: str) -> list[Any]:
        """The cells under a name."""
        place = self.header.index(name)
        return [row[place] for row in self.rows]


def fault(path: Path, line: int, what: str, got: str, fix: str) -> UserError:
    """An error that names the file and the line."""
    return UserError(f"{path}, line {line}: {what}", got=got, fix=fix)


def suffix_of(path: Path) -> str:
    """What a file's name says about its format, without the compression.

    >>> suffix_of(Path("a/train.TSV.gz"))
    '.tsv'
    """
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    return plain.suffix.lower()


def read_text(path: Path) -> str:
    """A whole file of UTF-8, with or without a byte-order mark."""
    try:
        raw = b"".join(read_blocks(path))
    except Truncated as error:
        raise UserError(
            f"{path} cannot be read to its end", got=str(error), fix="get the file anew"
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise fault(
            path,
            raw.count(b"\n", 0, error.start) + 1,
            "no UTF-8",
            got=f"byte {raw[error.start]:#04x}",
            fix="iconv -f ENCODING -t UTF-8, with the encoding it was written in",
        ) from error
    if not text.strip():
        raise UserError(f"{path} is empty", got=f"{len(raw)} bytes", fix="give a file with rows")
    return text


def read_table(
    path: Path, text: str, named: Sequence[str] = (), remembered: Remembered = NO_MEMORY
) -> DataTable:
    """The text of a file as a table, by the file's suffix; `named` are columns asked for."""
    suffix = suffix_of(path)
    if suffix not in (*TABLES, *JSON_LINES):
        raise UserError(
            f"{path} is in no known format",
            got=suffix or "a name without suffix",
            fix=f"give a file that ends in {', '.join((*TABLES, *JSON_LINES))} "
            f"(packed: {', '.join(COMPRESSED)}); "
            "--kind tags reads CoNLL-style files of any name",
        )
    numbered = False
    if suffix in JSON_LINES:
        header, rows = _read_json_lines(path, text)
    else:
        header, rows, numbered = _with_header(path, TABLES[suffix](path, text), named, remembered)
    for name in header:
        if header.count(name) > 1:
            got = name or "an empty name"
            fix = "rename one of them"
            raise fault(path, 1, "two columns have the same name", got=got, fix=fix)
    for line, cells in rows:
        for name, cell in zip(header, cells, strict=True):
            check_length(path, line, name, cell)
    if not rows:
        raise UserError(f"{path} has no rows", got="a header alone", fix="give a file with rows")
    lines = [line for line, _ in rows]
    return DataTable(path, header, [cells for _, cells in rows], lines, numbered)


def check_length(path: Path, line: int, name: str, cell: Any) -> None:
    """Refuse a cell that no text of a row is as long as."""
    if isinstance(cell, str) and len(cell) > MOST_CHARACTERS:
        raise _too_long(path, line, f"{len(cell):,} characters under {name!r}")


def _too_long(path: Path, line: int, got: str) -> UserError:
    return fault(
        path,
        line,
        f"a cell of more than {MOST_CHARACTERS:,} characters",
        got=got,
        fix="close the quotation mark that is open, or cut the text",
    )


def lines_of(text: str) -> list[str]:
    """Lines as files have them: characters such as U+2028 end none."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def _read_csv(path: Path, text: str) -> list[FileRow]:
    return list(_quoted(path, text, ","))


def _read_tsv(path: Path, text: str) -> list[FileRow]:
    names = lines_of(text)[0].split("\t")
    if all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        return list(_quoted(path, text, "\t"))
    lines = enumerate(lines_of(text), start=1)
    return [(n, line.split("\t") if line else []) for n, line in lines]


def _read_txt(path: Path, text: str) -> list[FileRow]:
    if "\t" in text:
        return _read_tsv(path, text)
    return [(n, [line]) for n, line in enumerate(lines_of(text), start=1) if line.strip()]


def _quoted(path: Path, text: str, delimiter: str) -> Iterator[FileRow]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        if "field limit" in str(error):
            raise _too_long(path, line, str(error)) from error
        raise fault(
            path, line, "no CSV", got=str(error), fix="double quotation marks within quoted cells"
        ) from error


def _with_header(
    path: Path, rows: list[FileRow], named: Sequence[str], remembered: Remembered
) -> tuple[list[str], list[FileRow], bool]:
    while rows and not rows[-1][1]:
        rows.pop()
    (_, first), *rest = rows
    if suffix_of(path) == ".txt" and len(first) == 1:  # a line of plain text is no name
        numbered = first[0].strip().lower() not in {name.lower() for name in named}
    else:
        numbered = lacks_header([cells for _, cells in rows], named, remembered)
    header = column_names(len(first)) if numbered else [name.strip() for name in first]
    for line, cells in rest:
        if len(cells) != len(header):
            raise fault(
                path,
                line,
                f"not as many cells as the {'first line' if numbered else 'header'} has",
                got=f"{len(cells)} cells, not {len(header)}: {', '.join(header)}",
                fix="fix the row" + ("" if numbered else "; the header must be the first line"),
            )
    return header, rows if numbered else rest, numbered


def _read_json_lines(path: Path, text: str) -> tuple[list[str], list[FileRow]]:
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines_of(text), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise fault(
                path, number, "no JSON", got=str(error), fix="give one object a line"
            ) from error
        if not isinstance(found, dict):
            fix = 'give one object a line, such as {"text": "…", "label": "…"}'
            raise fault(path, number, "no JSON object", got=f"{line[:40]}", fix=fix)
        objects.append((number, found))
    header = list(dict.fromkeys(name for _, found in objects for name in found))
    return header, [(line, [found.get(name) for name in header]) for line, found in objects]


TABLES: dict[str, Callable[[Path, str], list[FileRow]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".txt": _read_txt,
}
JSON_LINES = (".jsonl", ".ndjson", ".json")
"""A cell may hold an object here alone; other formats are written with tabs, but for CSV."""


def cell_text(cell: Any) -> str:
    """A cell as text, without blanks around it; one that is missing is empty.

    >>> cell_text(" 3.80 "), cell_text(3), cell_text(True), cell_text(None)
    ('3.80', '3', 'true', '')
    """
    if cell is None:
        return ""
    return (cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)).strip()


def written(header: Sequence[str], rows: Sequence[Sequence[Any]], suffix: str) -> str:
    """A table as the text of a file; in TSV, tabs and line ends within cells become blanks."""
    if suffix == ".csv":
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
        return file.getvalue()
    if suffix not in JSON_LINES:
        return "".join("\t".join(map(_flat, row)) + "\n" for row in [header, *rows])
    objects = (dict(zip(header, row, strict=True)) for row in rows)
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects)


def _flat(cell: Any) -> str:
    text = cell if isinstance(cell, str) else cell_text(cell)
    return text.translate({ord(sign): " " for sign in "\t\r\n"})
