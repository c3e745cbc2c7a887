"""Tables of a suite: models by tasks, every seed, and each pair of models compared."""

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from electrify.finetuning.differences import (
    Difference,
    differences_table,
    pair_notes,
    paired_difference,
)
from electrify.finetuning.seeds import Summary, run_notes
from electrify.finetuning.stats import bounds_are, interval
from electrify.finetuning.suite.models import folder_name
from electrify.finetuning.suite.record import RecordedTask, SuiteRecord, pairs_of
from electrify.finetuning.table import DASH, Cell, Notes, Table, percent, table_files, terminal
from electrify.storage.commit import committed

OVERALL = "overall"


def scores_table(record: SuiteRecord) -> Table:
    """Return the mean of every task, a row for each model, with the average over tasks."""
    notes, rows = Notes(), []
    average = len(record.tasks) > 1
    for model in record.models:
        summaries = [record.summary(model.name, task) for task in record.tasks]
        marks = notes.marks([_protocol(summaries, record.tasks)])
        cells = [Cell(model.name, marks=marks)]
        for task, summary in zip(record.tasks, summaries, strict=True):
            texts = [f"{task.name} of {model.name}: {text}" for text in run_notes(summary)]
            texts += [
                f"{task.name} of {model.name}: {why}"
                for name, other, why in record.absent
                if (name, other) == (model.name, task.name)
            ]
            if task.benchmark == "blimp" and summary.n:
                texts.append(PAIRS)
            cells.append(percent(summary.aggregate("mean"), summary.interval, notes.marks(texts)))
        rows.append([*cells, *([_average(summaries, notes)] if average else [])])
    columns = ("model", *(f"{task.name} {task.metric}" for task in record.tasks))
    title = f"{record.suite}, development sets"
    return Table(title, (*columns, *(["average"] if average else [])), rows, list(notes.numbers))


PAIRS = "minimal pairs need no fine-tuning: one score; in brackets: 95 % Wilson interval over pairs"


def _protocol(summaries: Sequence[Summary], tasks: Sequence[RecordedTask]) -> str:
    both = zip(summaries, tasks, strict=True)
    counts = sorted({s.n for s, task in both if task.benchmark != "blimp" and s.n})
    if not counts:
        return "no fine-tuning run has a score"
    seeds = DASH.join(str(n) for n in sorted({counts[0], counts[-1]}))
    statistic = f"mean of {seeds} seeds" if seeds != "1" else "one seed"
    kinds = dict.fromkeys(bounds_are(n) for n in counts if n > 1)
    return f"{statistic}, in percent" + (f"; in brackets: {' or '.join(kinds)}" if kinds else "")


def _average(summaries: Sequence[Summary], notes: Notes) -> Cell:
    if not all(summary.n for summary in summaries):
        return percent(math.nan, marks=notes.marks(["no average: a task has no score"]))
    value = float(np.mean([summary.aggregate("mean") for summary in summaries]))
    marks = notes.marks(["average: the mean over tasks, each with its own metric"])
    return percent(value, interval([summary.values for summary in summaries]), marks)


def seeds_table(record: SuiteRecord) -> Table:
    """Return the statistics and the score of every seed, a row for each task and model."""
    notes, rows = Notes(), []
    seeds = sorted({run.seed for run in record.runs})
    for task in record.tasks:
        for model in record.models:
            summary = record.summary(model.name, task)
            if not summary.n and not summary.failed:
                continue
            settings = record.settings(model.name, task.name)
            marks = notes.marks([f"{settings}"] if settings else [])
            marks += notes.marks(f"{task.name} of {model.name}: {t}" for t in run_notes(summary))
            rows.append(
                [
                    Cell(f"{task.name} {task.metric}"),
                    Cell(model.name, marks=marks),
                    Cell(str(summary.n)),
                    percent(summary.aggregate("mean"), summary.interval),
                    Cell(DASH if summary.n < 2 else f"{100 * summary.deviation:.2f}"),
                    percent(summary.best),
                    *(percent(summary.scores.get(seed, math.nan)) for seed in seeds),
                ]
            )
    columns = ("task", "model", "n", "mean", "sd", "best", *(f"seed {seed}" for seed in seeds))
    return Table("by seed", columns, rows, list(notes.numbers))


def model_differences(record: SuiteRecord, first: str, second: str) -> list[Difference]:
    """Compare two models by task, paired by seed (BLiMP: by paradigm), and over all tasks."""
    found, groups, left_out = [], [], []
    for task in record.tasks:
        scores = [pairs_of(record, model, task) for model in (first, second)]
        common = sorted(scores[0].keys() & scores[1].keys())
        if not common:
            left_out.append(task.name)
            continue
        pairs = [(scores[0][key], scores[1][key]) for key in common]
        summaries = (record.summary(first, task), record.summary(second, task))
        notes = pair_notes(*summaries, (first, second))
        if task.benchmark == "blimp":
            notes.append("paired by paradigm; the mean over paradigms; not part of overall")
        else:
            groups.append(pairs)
        settings = [record.settings(model, task.name) for model in (first, second)]
        if settings[0] != settings[1]:
            notes.append(f"settings: {settings[0]} vs. {settings[1]}")
        found.append(paired_difference(task.name, [pairs], tuple(notes)))
    if len(groups) > 1:
        without = (f"without {', '.join(left_out)}",) if left_out else ()
        found.append(paired_difference(OVERALL, groups, without))
    return found


def suite_tables(record: SuiteRecord) -> dict[str, Table]:
    """Return all tables of a suite by the names of their files."""
    tables = {"suite": scores_table(record), "seeds": seeds_table(record)}
    for first, second in combinations([model.name for model in record.models], 2):
        if found := model_differences(record, first, second):
            name = f"{folder_name(second)}-minus-{folder_name(first)}"
            tables[name] = differences_table(found, first, second, {})
    return tables


def write_suite_tables(out: Path, tables: dict[str, Table]) -> None:
    """Write every table as .md, .tex and .csv, and remove those of models that are left out."""
    for path in out.glob("*-minus-*.*"):
        if path.stem not in tables and path.suffix in (".md", ".tex", ".csv"):
            path.unlink()
    for name, text in table_files(tables).items():
        with committed(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def suite_text(tables: dict[str, Table]) -> str:
    """Return all tables for the terminal."""
    return "\n\n".join(map(terminal, tables.values()))
