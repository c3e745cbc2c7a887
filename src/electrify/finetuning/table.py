"""A table of names and percentages with footnotes, for the terminal, Markdown, LaTeX or CSV."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

DASH = "–"


class Cell(NamedTuple):
    """A text, or a percentage with its interval, and the numbers of its footnotes."""

    content: str | float
    interval: tuple[float, float] = (math.nan, math.nan)
    marks: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """Return the content as text."""
        if isinstance(self.content, str):
            return self.content
        return DASH if math.isnan(self.content) else _one_decimal(self.content)

    @property
    def bounds(self) -> str:
        """Return the interval as text; empty if there is none."""
        low, high = self.interval
        return "" if math.isnan(low) else f"[{_one_decimal(low)} {_one_decimal(high)}]"


def _one_decimal(number: float) -> str:
    return f"{round(number, 1) + 0.0:.1f}"  # + 0.0: no -0.0


class Table(NamedTuple):
    """Columns, rows of cells, and footnotes, numbered from 1."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    notes: list[str]


class Notes:
    """Footnotes, numbered in the order of their first use."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def marks(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes, adding new ones."""
        return tuple(self.numbers.setdefault(text, len(self.numbers) + 1) for text in texts)


def percent(
    fraction: float, bounds: tuple[float, float] = (math.nan, math.nan), marks: tuple[int, ...] = ()
) -> Cell:
    """Return a fraction and its interval as a cell in percent."""
    return Cell(100 * fraction, (100 * bounds[0], 100 * bounds[1]), marks)


def terminal(table: Table, width: int | None = None) -> str:
    """Format a table for the terminal, with intervals below their numbers."""
    shown = RichTable(title=table.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in table.columns:
        first = column == table.columns[0]
        shown.add_column(
            Text(column),
            justify="left" if first else "right",
            no_wrap=first,
            min_width=max(map(len, column.split())),
        )
    for row in table.rows:
        shown.add_row(*(Text(_lines(cell)) for cell in row))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown)
        for number, note in enumerate(table.notes, 1):
            console.print(Text(f"{_superscript(number)} {note}"))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _lines(cell: Cell) -> str:
    marks = "\u2009".join(_superscript(mark) for mark in cell.marks)
    name = cell.text.replace(" (", "\n(")
    return f"{name}{marks}\n{cell.bounds}".rstrip("\n")


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def markdown(table: Table) -> str:
    """Format a table as GitHub Markdown, with footnotes below."""
    lines = [
        _pipes(map(_escaped, table.columns)),
        _pipes(["---", *["---:"] * (len(table.columns) - 1)]),
    ]
    lines += [_pipes(_markdown_cell(cell) for cell in row) for row in table.rows]
    notes = [f"<sup>{number}</sup> {_escaped(note)}" for number, note in enumerate(table.notes, 1)]
    return "\n".join([*lines, "", "  \n".join(notes)]).rstrip() + "\n"


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    marks = f"<sup>{' '.join(map(str, cell.marks))}</sup>" if cell.marks else ""
    return f"{_escaped(cell.text)}{marks} {_escaped(cell.bounds)}".rstrip()


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def latex(table: Table) -> str:
    """Format a table as LaTeX with booktabs, with footnotes below."""
    lines = [
        r"\begin{tabular}{l" + "r" * (len(table.columns) - 1) + "}",
        r"\toprule",
        " & ".join(map(_tex, table.columns)) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(_tex_cell(cell) for cell in row) + r" \\" for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    for number, note in enumerate(table.notes, 1):
        lines.append(rf"\par{{\footnotesize\textsuperscript{{{number}}} {_tex(note)}}}")
    return "\n".join(lines) + "\n"


def _tex_cell(cell: Cell) -> str:
    marks = ",".join(map(str, cell.marks))
    superscript = rf"\textsuperscript{{{marks}}}" if marks else ""
    bounds = rf" {{\scriptsize {_tex(cell.bounds)}}}" if cell.bounds else ""
    # \relax: a [ at the start of a row would be parsed as an option of the \\ before it.
    return (
        (r"\relax " if cell.text.startswith("[") else "") + _tex(cell.text) + superscript + bounds
    )


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "×": r"$\times$",
    "…": r"\ldots{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in " ".join(text.split()))


def comma_separated(table: Table) -> str:
    """Format a table as CSV: intervals have low and high columns, footnotes the last column."""
    has_bounds = [any(row[i].bounds for row in table.rows) for i in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header: list[str] = []
    for column, bounded in zip(table.columns, has_bounds, strict=True):
        header += [column, f"{column} low", f"{column} high"] if bounded else [column]
    writer.writerow([*header, "notes"])
    for row in table.rows:
        values: list[str | float] = []
        for cell, bounded in zip(row, has_bounds, strict=True):
            values += [cell.content, *cell.interval] if bounded else [cell.content]
        marks = dict.fromkeys(mark for cell in row for mark in cell.marks)
        notes = "; ".join(table.notes[mark - 1] for mark in marks)
        writer.writerow([*(_number(value) for value in values), notes])
    return out.getvalue()


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return "" if value == DASH else value
    return "" if math.isnan(value) else f"{value:.3f}"


WRITERS = {"md": markdown, "tex": latex, "csv": comma_separated}


def table_files(tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the text of every file for tables by their stem: as .md, .tex and .csv."""
    return {
        f"{stem}.{ending}": write(table)
        for stem, table in tables.items()
        for ending, write in WRITERS.items()
    }
