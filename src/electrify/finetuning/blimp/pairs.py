"""Read minimal pairs in BLiMP's format: one file per paradigm, one JSON object per line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from electrify.corpora.archive import compressed_suffixes
from electrify.errors import UserError
from electrify.finetuning.own.files import line_error, read_table, read_text

GOOD, BAD, PHENOMENON, FIELD, PARADIGM = FIELDS = (
    "sentence_good",
    "sentence_bad",
    "linguistics_term",
    "field",
    "UID",
)
BLIMP_ON_GITHUB = "github.com/alexwarstadt/blimp"


class Paradigm(NamedTuple):
    """Minimal pairs of one construction."""

    name: str
    """The name of its file, which in BLiMP is its UID."""
    phenomenon: str
    """What the paradigm tests, such as island_effects; several paradigms test the same."""
    field: str
    """The field of linguistics, such as syntax."""
    good: list[str]
    bad: list[str]


def find_paradigms(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by the names of their paradigms."""
    found: dict[str, Path] = {}
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    for path in paths:
        if not path.is_file() or not path.name.endswith(compressed_suffixes(".jsonl")):
            continue
        name = path.name.partition(".jsonl")[0]
        if other := found.get(name):
            raise UserError(
                f"{folder} has two files of paradigm {name}",
                got=f"{other.name}, {path.name}",
                fix="remove one of them",
            )
        found[name] = path
    if not found:
        names = ", ".join(path.name for path in paths[:5])
        raise UserError(
            f"there are no minimal pairs in {folder}",
            got=(names or "an empty folder") if folder.is_dir() else "no such folder",
            fix=f"use a folder with one .jsonl file per paradigm, as in {BLIMP_ON_GITHUB}; "
            "unpack an archive first",
        )
    return found


def read_paradigm(name: str, path: Path, limit: int = 0) -> Paradigm:
    """Read the first `limit` pairs of a file, or all; every line of the file is checked."""
    table = read_table(path, read_text(path))
    rows = [dict(zip(table.header, cells, strict=True)) for cells in table.rows]
    first = {field: rows[0].get(field) for field in (PHENOMENON, FIELD, PARADIGM)}
    for line, row in zip(table.lines, rows, strict=True):
        _check(path, line, row, first)
    good, bad = ([row[field] for row in rows[: limit or None]] for field in (GOOD, BAD))
    return Paradigm(name, rows[0][PHENOMENON], rows[0][FIELD], good, bad)


def _check(path: Path, line: int, row: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    for field in FIELDS:
        if not isinstance(row.get(field), str) or not row[field].strip():
            got = "nothing" if row.get(field) is None else f"{row[field]!r:.60}"
            fix = "give every line these fields, with text: " + ", ".join(FIELDS)
            raise line_error(path, line, f"{field} must be text", got=got, fix=fix)
    for field, value in first.items():
        if row[field] != value:
            raise line_error(
                path,
                line,
                f"{field} differs from that of the first line",
                got=f"{row[field]!r:.60}, not {value!r:.60}",
                fix="use one file per paradigm",
            )
