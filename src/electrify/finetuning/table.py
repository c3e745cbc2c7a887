"""A table of names and percentages with footnotes, and four ways to write it.

It is made once and written for a terminal, in Markdown, LaTeX or CSV.
"""

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

DASH = "–"


class Cell(NamedTuple):
    """A word, or a percentage with its interval; and the footnotes to it."""

    content: str | float
    interval: tuple[float, float] = (math.nan, math.nan)
    marks: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """For people."""
        if isinstance(self.content, str):
            return self.content
        return DASH if math.isnan(self.content) else _tenths(self.content)

    @property
    def bounds(self) -> str:
        """The interval for people; empty if there is none."""
        low, high = self.interval
        return "" if math.isnan(low) else f"[{_tenths(low)} {_tenths(high)}]"


def _tenths(number: float) -> str:
    return f"{round(number, 1) + 0.0:.1f}"  # + 0.0: no -0.0


class Table(NamedTuple):
    """Cells under columns, and footnotes: the first is number 1."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]]
    notes: list[str]


class Notes:
    """Footnotes that get a number when they are first asked for."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def marks(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The numbers of some footnotes."""
        return tuple(self.numbers.setdefault(text, len(self.numbers) + 1) for text in texts)


def percent(
    share: float, bounds: tuple[float, float] = (math.nan, math.nan), marks: tuple[int, ...] = ()
) -> Cell:
    """A fraction, and its interval, as a cell in percent."""
    return Cell(100 * share, (100 * bounds[0], 100 * bounds[1]), marks)


def terminal(table: Table, width: int | None = None) -> str:
    """Lines for a terminal, intervals under their numbers."""
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
            console.print(Text(f"{_raised(number)} {note}"))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _lines(cell: Cell) -> str:
    marks = "\u2009".join(_raised(mark) for mark in cell.marks)
    name = cell.text.replace(" (", "\n(")
    return f"{name}{marks}\n{cell.bounds}".rstrip("\n")


def _raised(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown, footnotes below."""
    lines = [
        _pipes(_escaped(column) for column in table.columns),
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
    """A table for booktabs, footnotes below."""
    lines = [
        r"\begin{tabular}{l" + "r" * (len(table.columns) - 1) + "}",
        r"\toprule",
        " & ".join(_tex(column) for column in table.columns) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(_tex_cell(cell) for cell in row) + r" \\" for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    for number, note in enumerate(table.notes, 1):
        lines.append(rf"\par{{\footnotesize\textsuperscript{{{number}}} {_tex(note)}}}")
    return "\n".join(lines) + "\n"


def _tex_cell(cell: Cell) -> str:
    marks = ",".join(map(str, cell.marks))
    raised = rf"\textsuperscript{{{marks}}}" if marks else ""
    bounds = rf" {{\scriptsize {_tex(cell.bounds)}}}" if cell.bounds else ""
    # \relax: a row that begins with [ would be read as the option of the \\ before it
    return (r"\relax " if cell.text.startswith("[") else "") + _tex(cell.text) + raised + bounds


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "×": r"$\times$",
    "…": r"\ldots{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))


def comma_separated(table: Table) -> str:
    """CSV with a column for either end of an interval, and the footnotes of a row in the last."""
    ends = [any(row[place].bounds for row in table.rows) for place in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header = [
        name
        for column, has in zip(table.columns, ends, strict=True)
        for name in ([column, f"{column} low", f"{column} high"] if has else [column])
    ]
    writer.writerow([*header, "notes"])
    for row in table.rows:
        values = [
            value
            for cell, has in zip(row, ends, strict=True)
            for value in ([cell.content, *cell.interval] if has else [cell.content])
        ]
        marks = dict.fromkeys(mark for cell in row for mark in cell.marks)
        notes = "; ".join(table.notes[mark - 1] for mark in marks)
        writer.writerow([*(_number(value) for value in values), notes])
    return out.getvalue()


def _number(value: str | float) -> str:
    if isinstance(value, str):
        return "" if value == DASH else value
    return "" if math.isnan(value) else f"{value:.3f}"


WRITERS = {"md": markdown, "tex": latex, "csv": comma_separated}
