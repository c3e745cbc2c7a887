"""Results beside published ones, seed by seed, or against each other.

A table is made once, of names and percentages, and written in four ways (terminal, Markdown, LaTeX,
CSV); footnotes go with it.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from electrify.commit import committed
from electrify.finetuning import stats
from electrify.finetuning.published import TASK_NAMES, Published, published
from electrify.finetuning.results import Result
from electrify.finetuning.stats import Aggregate, AverageName, Difference
from electrify.finetuning.tasks import TASKS

NOTHING = "–"


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
        return NOTHING if math.isnan(self.content) else _tenths(self.content)

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


def beside_published(
    ours: Mapping[str, Sequence[Result]],
    others: Sequence[Published],
    aggregate: Aggregate = "mean",
    average: AverageName = "average of 8 tasks",
    title: str = "GLUE, development sets",
) -> Table:
    """Our models, by the names to show, and published rows below them."""
    notes = Notes()
    extra = tuple(
        task.name
        for task in TASKS.values()
        if not task.averaged and any(r.task == task.name for rs in ours.values() for r in rs)
    )
    rows = [
        _own_row(name, results, extra, aggregate, average, notes) for name, results in ours.items()
    ]
    rows += [_published_row(row, len(extra), notes) for row in others]
    titles = [TASKS[name].title for name in TASK_NAMES + extra]
    columns = ("model", "size", *titles, average)
    return Table(title, columns, rows, list(notes.numbers))


def _own_row(
    name: str,
    results: Sequence[Result],
    extra: Sequence[str],
    aggregate: Aggregate,
    average: AverageName,
    notes: Notes,
) -> list[Cell]:
    summaries = [stats.summarise(results, task, average) for task in (*TASK_NAMES, *extra)]
    said = notes.marks([_how(results, [s.n for s in summaries if s.n], aggregate)])
    cells = [Cell(name, marks=said), Cell(NOTHING)]
    for summary in summaries:
        title = TASKS[summary.task].title
        texts = [f"{title}: {text}" for text in stats.marked(summary)]
        texts += _training_files(results, summary.task)
        texts += _malformed(results, summary.task)
        bounds = stats.interval([summary.values], aggregate)
        cells.append(_percent(summary.aggregate(aggregate), bounds, notes.marks(texts)))
    overall = stats.averaged(results, average, aggregate)
    lacks = f"no average of {name}: without {', '.join(overall.missing)}"
    marks = notes.marks([lacks] if overall.missing else [])
    return [*cells, _percent(overall.value, overall.interval, marks)]


def _how(results: Sequence[Result], counts: Sequence[int], aggregate: Aggregate) -> str:
    presets = ", ".join(sorted({result.preset for result in results}))
    seeds = NOTHING.join(str(n) for n in sorted({min(counts, default=0), max(counts, default=0)}))
    some = "seed" if seeds == "1" else "seeds"
    bounds = f"; 95 % bootstrap interval of the {aggregate}" if max(counts, default=0) > 1 else ""
    return f"dev, {aggregate} of {seeds} {some}, preset {presets}{bounds}"


def _training_files(results: Sequence[Result], task: str) -> list[str]:
    official, title = TASKS[task].train_rows, TASKS[task].title
    rows = {
        r.train_rows
        for r in results
        if r.task == task and not r.failed and r.train_rows != official
    }
    return [
        f"{title}: trained on {count:,} rows, the official file has {official:,}: not comparable"
        for count in sorted(rows)
    ]


def _malformed(results: Sequence[Result], task: str) -> list[str]:
    most = max((r.malformed for r in results if r.task == task), default=0)
    return [f"{TASKS[task].title}: {most:,} malformed rows passed over"] if most else []


def _published_row(row: Published, empty: int, notes: Notes) -> list[Cell]:
    said = [f"{row.split}, {row.aggregate}; {row.source}", *row.notes]
    marks = notes.marks(["; ".join(said)])
    scores = [Cell(row.scores.get(name, math.nan)) for name in TASK_NAMES]
    average = math.nan if row.average is None else row.average
    name = Cell(row.model, marks=marks)
    return [name, Cell(row.parameters), *scores, *[Cell(NOTHING)] * empty, Cell(average)]


def by_seed(results: Sequence[Result], average: AverageName = "average of 8 tasks") -> Table:
    """Every task's statistics and the score of every seed."""
    notes, rows = Notes(), []
    seeds = sorted({result.seed for result in results})
    for name in dict.fromkeys(result.task for result in results):
        summary = stats.summarise(results, name, average)
        title = TASKS[name].title
        marks = notes.marks([f"{title}: {text}" for text in stats.marked(summary)])
        rows.append(
            [
                Cell(f"{title} {_metrics(name, average)}", marks=marks),
                Cell(str(summary.n)),
                _percent(summary.aggregate("mean"), summary.interval),
                _percent(summary.aggregate("median")),
                Cell(NOTHING if summary.n < 2 else f"{100 * summary.deviation:.2f}"),
                _percent(summary.best),
                Cell(NOTHING if summary.best_seed is None else str(summary.best_seed)),
                *(_percent(summary.scores.get(seed, math.nan)) for seed in seeds),
            ]
        )
    names = ("task", "n", "mean", "median", "sd", "best", "its seed")
    columns = (*names, *(f"seed {seed}" for seed in seeds))
    return Table("by seed", columns, rows, list(notes.numbers))


def _metrics(task: str, average: AverageName) -> str:
    reading = stats.AVERAGES[average](TASKS[task])
    return " and ".join(dict.fromkeys(metric for _, metric in reading))


def averages(results: Sequence[Result], aggregate: Aggregate) -> list[str]:
    """All averages by name, in words; a missing task is named instead."""
    lines = []
    for name in stats.AVERAGES:
        found = stats.averaged(results, name, aggregate)
        cell = _percent(found.value, found.interval)
        missing = f"none, without {', '.join(found.missing)}"
        lines.append(
            f"{name}: {missing if found.missing else f'{cell.text} {cell.bounds}'.strip()}"
        )
    return [*lines, "WNLI is left out of every average"]


def differences(found: Sequence[Difference], first: str, second: str) -> Table:
    """Two models, seed by seed."""
    notes, rows = Notes(), []
    for row in found:
        title = TASKS[row.task].title if row.task in TASKS else row.task
        marks = notes.marks(f"{title}: {text}" for text in row.notes)
        numbers = (row.first, row.second)
        rows.append(
            [
                Cell(title, marks=marks),
                Cell(str(row.pairs)),
                *(_percent(number) for number in numbers),
                _percent(row.difference, row.interval),
                Cell(f"{row.p:.4f}", marks=notes.marks([_TESTED])),
            ]
        )
    columns = ("task", "pairs", first, second, "difference", "p")
    return Table(f"{second} less {first}", columns, rows, list(notes.numbers))


_TESTED = (
    "95 % bootstrap interval over seeds; p by flipping signs, never below 2 / 2^pairs; both are "
    "about the noise of fine-tuning alone"
)


def _percent(
    share: float,
    bounds: tuple[float, float] = (math.nan, math.nan),
    marks: tuple[int, ...] = (),
) -> Cell:
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
        return "" if value == NOTHING else value
    return "" if math.isnan(value) else f"{value:.3f}"


WRITERS = {"md": markdown, "tex": latex, "csv": comma_separated}


def shown(results: Sequence[Result], aggregate: Aggregate, name: str = "this model") -> str:
    """All that is to be said of some results, for a terminal."""
    tables = [
        by_seed(results),
        beside_published({name: results}, published("dev"), aggregate),
        beside_published({}, published("test"), title="GLUE, published results on the test set"),
    ]
    parts = [*(terminal(table) for table in tables), "\n".join(averages(results, aggregate))]
    return "\n\n".join(parts)


def write_tables(
    folder: Path, results: Sequence[Result], aggregate: Aggregate, name: str = "this model"
) -> list[Path]:
    """Commit `glue.md`, `.tex` and `.csv`, the same of `seeds` and of `test`; their paths."""
    tables = {
        "glue": beside_published({name: results}, published("dev"), aggregate),
        "test": beside_published({}, published("test"), title="GLUE, test set"),
        "seeds": by_seed(results),
    }
    paths = []
    for stem, table in tables.items():
        for ending, write in WRITERS.items():
            paths.append(folder / f"{stem}.{ending}")
            with committed(paths[-1]) as temporary:
                temporary.write_text(write(table), encoding="utf-8")
    return paths


def comparison(found: Sequence[Difference], first: str, second: str) -> str:
    """Two models, seed by seed, for a terminal."""
    return terminal(differences(found, first, second))
