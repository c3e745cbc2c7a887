"""Results beside published ones, seed by seed, or against each other, as tables."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from electrify.commit import committed
from electrify.finetuning import stats
from electrify.finetuning.presets import average_of, reading_of
from electrify.finetuning.published import TASK_NAMES, Published, published
from electrify.finetuning.reading import AVERAGES, Aggregate, described
from electrify.finetuning.results import Result
from electrify.finetuning.stats import Difference
from electrify.finetuning.table import NOTHING, WRITERS, Cell, Notes, Table, percent, terminal
from electrify.finetuning.tasks import TASKS


def beside_published(
    ours: Mapping[str, Sequence[Result]],
    others: Sequence[Published],
    aggregate: Aggregate = "mean",
    title: str = "GLUE, development sets",
) -> Table:
    """Our models, by the names to show, and published rows below them.

    Each row is read as its preset, or its source, reads it: where MNLI is the mean of matched and
    mismatched, a footnote says so.
    """
    notes = Notes()
    extra = tuple(
        task.name
        for task in TASKS.values()
        if not task.averaged and any(r.task == task.name for rs in ours.values() for r in rs)
    )
    rows = [_own_row(name, results, extra, aggregate, notes) for name, results in ours.items()]
    rows += [_published_row(row, len(extra), notes) for row in others]
    titles = [TASKS[name].title for name in TASK_NAMES + extra]
    columns = ("model", "size", *titles, "average of 8 tasks")
    return Table(title, columns, rows, list(notes.numbers))


def _own_row(
    name: str,
    results: Sequence[Result],
    extra: Sequence[str],
    aggregate: Aggregate,
    notes: Notes,
) -> list[Cell]:
    summaries = [stats.summarise(results, task) for task in (*TASK_NAMES, *extra)]
    said = notes.marks([_how(results, [s.n for s in summaries if s.n], aggregate)])
    cells = [Cell(name, marks=said), Cell(NOTHING)]
    for summary in summaries:
        title = TASKS[summary.task].title
        texts = [f"{title}: {text}" for text in stats.marked(summary)]
        texts += _both_halves(results, summary.task)
        texts += _training_files(results, summary.task)
        texts += _malformed(results, summary.task)
        bounds = stats.interval([summary.values], aggregate)
        cells.append(percent(summary.aggregate(aggregate), bounds, notes.marks(texts)))
    average = average_of(result.preset for result in results)
    overall = stats.averaged(results, average, aggregate)
    lacks = f"no average of {name}: without {', '.join(overall.missing)}"
    marks = notes.marks([lacks] if overall.missing else [])
    return [*cells, percent(overall.value, overall.interval, marks)]


def _how(results: Sequence[Result], counts: Sequence[int], aggregate: Aggregate) -> str:
    presets = ", ".join(sorted({result.preset for result in results}))
    seeds = NOTHING.join(str(n) for n in sorted({min(counts, default=0), max(counts, default=0)}))
    some = "seed" if seeds == "1" else "seeds"
    bounds = f"; 95 % bootstrap interval of the {aggregate}" if max(counts, default=0) > 1 else ""
    return f"dev, {aggregate} of {seeds} {some}, preset {presets}{bounds}"


def _both_halves(results: Sequence[Result], task: str) -> list[str]:
    readings = {reading_of(r.preset, TASKS[task]) for r in results if r.task == task}
    both = any(len({split for split, _ in reading}) > 1 for reading in readings)
    return [f"{TASKS[task].title} is the mean of matched and mismatched"] if both else []


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


def by_seed(results: Sequence[Result]) -> Table:
    """Every task's statistics and the score of every seed."""
    notes, rows = Notes(), []
    seeds = sorted({result.seed for result in results})
    for name in dict.fromkeys(result.task for result in results):
        summary = stats.summarise(results, name)
        title = TASKS[name].title
        marks = notes.marks([f"{title}: {text}" for text in stats.marked(summary)])
        rows.append(
            [
                Cell(f"{title} {_metrics(results, name)}", marks=marks),
                Cell(str(summary.n)),
                percent(summary.aggregate("mean"), summary.interval),
                percent(summary.aggregate("median")),
                Cell(NOTHING if summary.n < 2 else f"{100 * summary.deviation:.2f}"),
                percent(summary.best),
                Cell(NOTHING if summary.best_seed is None else str(summary.best_seed)),
                *(percent(summary.scores.get(seed, math.nan)) for seed in seeds),
            ]
        )
    names = ("task", "n", "mean", "median", "sd", "best", "its seed")
    columns = (*names, *(f"seed {seed}" for seed in seeds))
    return Table("by seed", columns, rows, list(notes.numbers))


def _metrics(results: Sequence[Result], task: str) -> str:
    readings = [reading_of(r.preset, TASKS[task]) for r in results if r.task == task]
    return "; ".join(dict.fromkeys(described(reading) for reading in readings))


def averages(results: Sequence[Result], aggregate: Aggregate) -> list[str]:
    """All averages by name, in words; a missing task is named instead."""
    lines = []
    for name in AVERAGES:
        found = stats.averaged(results, name, aggregate)
        cell = percent(found.value, found.interval)
        missing = f"none, without {', '.join(found.missing)}"
        lines.append(
            f"{name}: {missing if found.missing else f'{cell.text} {cell.bounds}'.strip()}"
        )
    best = stats.averaged(results, average_of(result.preset for result in results), "best")
    if not best.missing:
        lines.append(f"average of best: {percent(best.value).text}, the best run of each task")
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
                *(percent(number) for number in numbers),
                percent(row.difference, row.interval),
                Cell(f"{row.p:.4f}", marks=notes.marks([_TESTED])),
            ]
        )
    columns = ("task", "pairs", first, second, "difference", "p")
    return Table(f"{second} less {first}", columns, rows, list(notes.numbers))


_TESTED = (
    "95 % bootstrap interval over seeds; p by flipping signs, never below 2 / 2^pairs; both are "
    "about the noise of fine-tuning alone"
)


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
