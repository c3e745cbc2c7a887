"""Tables of GLUE results: next to published ones, and by seed."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from electrify.finetuning.glue.presets import (
    AVERAGES,
    AverageName,
    aggregate_of,
    average_of,
    describe_reading,
    reading_of,
)
from electrify.finetuning.glue.published import Published, published
from electrify.finetuning.glue.results import (
    Average,
    averaged,
    summarise,
)
from electrify.finetuning.glue.tasks import TASKS, averaged_tasks
from electrify.finetuning.results import Result
from electrify.finetuning.seeds import Summary, run_notes
from electrify.finetuning.stats import Aggregate, bounds, bounds_are
from electrify.finetuning.table import DASH, Cell, Notes, Table, percent, table_files, terminal
from electrify.storage.commit import committed


def beside_published(
    ours: Mapping[str, Sequence[Result]],
    others: Sequence[Published],
    aggregate: Aggregate | None = None,
    title: str = "GLUE, development sets",
    footnotes: bool = True,
) -> Table:
    """Return a table of our models and, below them, published rows, for the tasks that ran.

    Each row is scored as its preset or source defines it: mean or median (unless an aggregate is
    given), and MNLI matched or both. Footnotes tell which; those of published rows are optional.
    """
    notes = Notes()
    ran = {result.task for results in ours.values() for result in results}
    tasks = [name for name in TASKS if name in ran] if ours else averaged_tasks()
    complete = set(tasks) >= set(averaged_tasks())
    rows = [
        _own_row(name, results, tasks, aggregate, complete, notes) for name, results in ours.items()
    ]
    quiet = notes if footnotes else None
    rows += [_published_row(row, tasks, complete, quiet) for row in others if row.has(tasks)]
    titles = [TASKS[name].title for name in tasks]
    columns = ("model", "size", *titles, *([average_title("average")] if complete else []))
    return Table(title, columns, rows, list(notes.numbers))


def average_title(name: AverageName) -> str:
    """Return the title of an average in tables.

    >>> average_title("average")
    'average of 8 tasks'
    """
    return f"average of {len(averaged_tasks())} tasks" if name == "average" else name


def _own_row(
    name: str,
    results: Sequence[Result],
    tasks: Sequence[str],
    aggregate: Aggregate | None,
    complete: bool,
    notes: Notes,
) -> list[Cell]:
    aggregate = aggregate or aggregate_of(result.preset for result in results)
    summaries = [summarise(results, task) for task in tasks]
    marks = notes.marks([_protocol(results, [s.n for s in summaries if s.n], aggregate)])
    cells = [Cell(name, marks=marks), Cell(DASH)]
    for summary in summaries:
        marks = notes.marks(_task_notes(results, summary))
        interval = bounds(summary.values, aggregate)
        cells.append(percent(summary.aggregate(aggregate), interval, marks))
    if not complete:
        return cells
    average = average_of(result.preset for result in results)
    overall = averaged(results, average, aggregate)
    missing = f"no average for {name}: missing {', '.join(overall.missing)}"
    marks = notes.marks([missing] if overall.missing else [])
    return [*cells, percent(overall.value, overall.interval, marks)]


def _protocol(results: Sequence[Result], counts: Sequence[int], aggregate: Aggregate) -> str:
    presets = "; ".join(sorted({result.preset for result in results}))
    seeds = DASH.join(str(n) for n in sorted({min(counts, default=0), max(counts, default=0)}))
    statistic = f"{aggregate} of {seeds} seeds" if seeds != "1" else "one seed"
    kinds = dict.fromkeys(bounds_are(n, aggregate) for n in sorted(counts) if n > 1)
    brackets = f"; in brackets: {' or '.join(kinds)}" if kinds else ""
    return f"dev, {statistic}, preset {presets}{brackets}"


def _task_notes(results: Sequence[Result], summary: Summary) -> list[str]:
    task = TASKS[summary.task]
    title, official, runs = task.title, task.train_rows, [r for r in results if r.task == task.name]
    notes = [f"{title}: {text}" for text in run_notes(summary)]
    if any(len({split for split, _ in reading_of(r.preset, task)}) > 1 for r in runs):
        notes.append(f"{title} is the mean of matched and mismatched")
    for rows in sorted({r.train_rows for r in runs if not r.failed} - {official}):
        if official:
            trained = f"{title}: trained on {rows:,} rows"
            notes.append(f"{trained}, the official file has {official:,}; not comparable")
    if malformed := max((r.malformed for r in runs), default=0):
        notes.append(f"{title}: {malformed:,} malformed rows skipped")
    return notes


def _published_row(
    row: Published, tasks: Sequence[str], complete: bool, notes: Notes | None
) -> list[Cell]:
    texts = [f"{row.split}, {row.aggregate}; {row.source}", *row.remarks(tasks)]
    name = Cell(row.model, marks=notes.marks(["; ".join(texts)]) if notes else ())
    scores = [Cell(row.scores.get(task, math.nan)) for task in tasks]
    average = [Cell(math.nan if row.average is None else row.average)] if complete else []
    return [name, Cell(row.parameters), *scores, *average]


def by_seed(results: Sequence[Result]) -> Table:
    """Return a table of the statistics of every task and the score of every seed."""
    notes, rows = Notes(), []
    seeds = sorted({result.seed for result in results})
    for name in dict.fromkeys(result.task for result in results):
        summary = summarise(results, name)
        title = TASKS[name].title
        marks = notes.marks([f"{title}: {text}" for text in run_notes(summary)])
        kind = [f"in brackets: {bounds_are(summary.n)}"] if summary.n > 1 else []
        rows.append(
            [
                Cell(f"{title} {_metrics(results, name)}", marks=marks),
                Cell(str(summary.n)),
                percent(summary.aggregate("mean"), summary.interval, notes.marks(kind)),
                percent(summary.aggregate("median")),
                Cell(DASH if summary.n < 2 else f"{100 * summary.deviation:.2f}"),
                percent(summary.best),
                Cell(DASH if summary.best_seed is None else str(summary.best_seed)),
                *(percent(summary.scores.get(seed, math.nan)) for seed in seeds),
            ]
        )
    names = ("task", "n", "mean", "median", "sd", "best", "best seed")
    columns = (*names, *(f"seed {seed}" for seed in seeds))
    return Table("by seed", columns, rows, list(notes.numbers))


def _metrics(results: Sequence[Result], task: str) -> str:
    readings = [reading_of(r.preset, TASKS[task]) for r in results if r.task == task]
    return "; ".join(dict.fromkeys(describe_reading(reading) for reading in readings))


def averages(results: Sequence[Result]) -> list[str]:
    """Return a line for each average, or a line with the tasks that are missing for them."""
    aggregate = aggregate_of(result.preset for result in results)
    overall = [averaged(results, name, aggregate) for name in AVERAGES]
    if overall[0].missing:
        return [f"no average over tasks: missing {', '.join(overall[0].missing)}"]
    lines = [
        f"{average_title(one.name)} ({aggregate} of each task): {_value(one)}" for one in overall
    ]
    best = averaged(results, average_of(result.preset for result in results), "best")
    lines.append(f"average of best (best run of each task): {_value(best)}")
    return [*lines, "All averages exclude WNLI"]


def _value(average: Average) -> str:
    if average.missing:
        return f"none, missing {', '.join(average.missing)}"
    cell = percent(average.value, average.interval)
    return f"{cell.text} {cell.bounds}".strip()


def glue_summary(
    results: Sequence[Result], name: str = "this model", footnotes: bool = True
) -> str:
    """Format all tables and averages of results for the terminal."""
    compared = beside_published({name: results}, published("dev"), footnotes=footnotes)
    tables = [by_seed(results)._replace(title=f"{name}, by seed"), compared]
    return "\n\n".join([*map(terminal, tables), "\n".join(averages(results))])


def write_tables(folder: Path, results: Sequence[Result], name: str = "this model") -> list[Path]:
    """Write `glue` and `seeds` as .md, .tex and .csv; returns their paths."""
    tables = {
        "glue": beside_published({name: results}, published("dev")),
        "seeds": by_seed(results),
    }
    files = {folder / name: text for name, text in table_files(tables).items()}
    for path, text in files.items():
        with committed(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(files)
