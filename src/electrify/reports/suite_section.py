"""The report sections of suites: models by tasks, every seed, and models compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.suite.record import COPY, RECORD, SuiteRecord, read_record
from electrify.finetuning.suite.tables import suite_tables
from electrify.reports import plots
from electrify.reports.glue_section import as_html, interval_legend
from electrify.reports.page import Html, Section, code, figure, name, pairs, series_keys, text
from electrify.reports.plots import Dots, in_percent
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.reports.tuned_section import DAMAGE
from electrify.storage.commit import damaged


class SuiteFolder(NamedTuple):
    """A folder of `electrify suite`."""

    name: str
    record: SuiteRecord
    sources: list[Source]


def is_suite(folder: Path) -> bool:
    """Return whether a folder was written by `electrify suite`, finished or not."""
    return (folder / COPY).is_file() and (folder / "jobs").is_dir()


def read_suite_folder(folder: Path, label: str) -> SuiteFolder:
    """Read a finished suite."""
    if not (folder / RECORD).is_file():
        raise UserError(
            f"the suite in {folder} is not finished",
            got=f"no {RECORD}",
            fix="run the same `electrify suite` command again to finish it",
        )
    record = read_record(folder)
    try:
        suite_tables(record)
        files = [RECORD, *(run.file for run in record.runs)]
        sources = [read_source(folder, file)[1] for file in files]
    except (*DAMAGE, FileNotFoundError) as error:
        raise damaged(folder / RECORD, f"{error!r:.200}") from error
    return SuiteFolder(label, record, sources)


def suite_sections(folders: Sequence[SuiteFolder]) -> list[Section]:
    """Return a section for each suite."""
    return [_section(folder, f"suite-{number}") for number, folder in enumerate(folders, 1)]


def _section(folder: SuiteFolder, key: str) -> Section:
    record = folder.record
    means, seeds, *compared = suite_tables(record).values()
    caption = "Development sets, in percent"
    rows = [
        (model.name, Html(f"{name(model.given)} {code(model.fingerprint)}"))
        for model in record.models
    ]
    parts: list[Html | Section] = [
        _suite_dots(record, f"{key}-dots"),
        as_html(means, caption, key, marked=len(record.models)),
        Section(
            text("Models compared"),
            [
                as_html(table, table.title, f"{key}-compared-{number}")
                for number, table in enumerate(compared, 1)
            ],
            f"{key}-compared",
        ),
        Section(text("Seeds"), [as_html(seeds, "Every seed, in percent", f"{key}-seeds")]),
        Section(text("Where it came from"), [pairs(rows), sources_table(folder.sources)]),
    ]
    shown = [part for part in parts if not isinstance(part, Section) or part.parts]
    return Section(Html(f"Suite {name(folder.name)}"), shown, key)


def _suite_dots(record: SuiteRecord, key: str) -> Html:
    rows, sentences, counts = [], [], []
    for task in record.tasks:
        for series, model in enumerate(record.models):
            summary = record.summary(model.name, task)
            if not summary.n:
                continue
            values = [100 * score for score in summary.scores.values()]
            hollow = [seed in summary.degenerate for seed in summary.scores]
            middle, bar = 100 * summary.aggregate("mean"), in_percent(summary.interval)
            rows.append(Dots(task.name, values, hollow, middle, bar, series))
            counts.append((summary.n, "mean"))
            listed = ", ".join(f"{value:.1f}" for value in values)
            sentences.append(f"{task.name}, {model.name}: {listed}.")
    svg = plots.dots(key, rows, "score on the development set, percent")
    legend = interval_legend(counts)  # type: ignore[arg-type]
    title = f"One dot per seed, hollow if it is degenerate; {legend}"
    keys = series_keys([model.name for model in record.models]) if len(record.models) > 1 else []
    description = f"Scores of every seed in percent. {' '.join(sentences)}"
    return figure(text(title), svg, description, keys, "wide")
