"""The report sections of GLUE results: compared with published ones, and per seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.glue import tables
from electrify.finetuning.glue.presets import aggregate_of
from electrify.finetuning.glue.published import published
from electrify.finetuning.glue.results import read_results, summarise
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result
from electrify.finetuning.stats import Aggregate, bounds, bounds_are
from electrify.finetuning.table import Cell, Table
from electrify.reports import plots
from electrify.reports.page import (
    Html,
    Section,
    code,
    figure,
    joined,
    name,
    pairs,
    paragraph,
    series_keys,
    table,
    text,
)
from electrify.reports.plots import Dots, in_percent
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.storage.commit import read_json


class GlueFolder(NamedTuple):
    """A folder of `electrify glue`, finished or not."""

    name: str
    path: Path
    results: list[Result]
    model: str
    """The path or name of the encoder."""
    fingerprint: str
    sources: list[Source]

    @property
    def aggregate(self) -> Aggregate:
        """Mean or median, depending on the preset."""
        return aggregate_of(result.preset for result in self.results)


def read_glue(folder: Path, label: str) -> GlueFolder:
    """Read the finished jobs of a folder."""
    results = read_results(folder)
    if not results:
        raise UserError(
            f"{folder} has no finished jobs",
            got="no jobs/*/result.json",
            fix="run `electrify glue` with this --out first",
        )
    files = sorted(path.relative_to(folder) for path in folder.glob("jobs/*/result.json"))
    sources = [read_source(folder, file.as_posix())[1] for file in files]
    identities = [read_json(folder / file)["identity"] for file in files]
    models, fingerprints = (
        ", ".join(sorted({str(identity.get(field, "")) for identity in identities}))
        for field in ("source", "model")
    )
    return GlueFolder(label, folder, results, models, fingerprints, sources)


def glue_sections(folders: Sequence[GlueFolder]) -> list[Section]:
    """Return a section with one table of all folders, then one per folder with its seeds."""
    ours = {folder.name: folder.results for folder in folders}
    compared = tables.beside_published(ours, published("dev"))
    caption = "Development sets, in percent; your results first, then published ones"
    parts = [_dots(folders), as_html(compared, caption, "glue", marked=len(ours))]
    if len(folders) == 1:
        lines = tables.averages(folders[0].results)
        parts.append(paragraph(text("; ".join(lines) + "."), "soft"))
    return [
        Section(text("GLUE"), parts, "glue"),
        *(_seeds(folder, f"glue-{number}") for number, folder in enumerate(folders, 1)),
    ]


def _seeds(folder: GlueFolder, key: str) -> Section:
    presets = ", ".join(sorted({result.preset for result in folder.results}))
    rows = [
        ("Encoder", name(folder.model)),
        ("Encoder fingerprint", code(folder.fingerprint)),
        ("Preset", text(presets)),
    ]
    by_seed = as_html(tables.by_seed(folder.results), "Every task and seed, in percent", key)
    parts = [by_seed, pairs(rows), sources_table(folder.sources)]
    return Section(Html(f"Seeds of {name(folder.name)}"), parts, key)


def as_html(results: Table, caption: str, key: str, marked: int = 0) -> Html:
    """Return a table of results with links to its footnotes."""
    rows = [[_cell(cell, key) for cell in row] for row in results.rows]
    notes = joined(
        f'<li id="{key}-note-{number}">{text(note)}</li>'
        for number, note in enumerate(results.notes, 1)
    )
    footnotes = f'<ol class="notes">\n{notes}\n</ol>' if notes else ""
    columns = [text(column) for column in results.columns]
    return joined([table(caption, columns, rows, marked=marked), footnotes])


def _cell(cell: Cell, key: str) -> Html:
    links = joined(
        (f'<a href="#{key}-note-{m}" aria-label="note {m}">{m}</a>' for m in cell.marks), " "
    )
    marks = f"<sup>{links}</sup>" if links else ""
    bounds = (
        f"<small>{text(cell.bounds.strip('[]').replace(' ', '–'))}</small>" if cell.bounds else ""
    )
    content = name(cell.text) if isinstance(cell.content, str) else text(cell.text)
    return Html(f"{content}{marks}{bounds}")


def _dots(folders: Sequence[GlueFolder]) -> Html:
    tasks = [n for n in TASKS if any(r.task == n for folder in folders for r in folder.results)]
    rows, sentences = [], []
    for task in tasks:
        for series, folder in enumerate(folders):
            row = _row(task, folder, series)
            rows.append(row)
            values = ", ".join(f"{value:.1f}" for value in row.values) or "no score"
            sentences.append(f"{row.label}, {folder.name}: {values}.")
    svg = plots.dots("glue-dots", rows, "score on the development set, percent")
    counts = [(summarise(f.results, task).n, f.aggregate) for f in folders for task in tasks]
    title = f"One dot per seed, hollow if it is degenerate; {interval_legend(counts)}"
    description = f"Scores of every seed in percent. {' '.join(sentences)}"
    keys = series_keys([f.name for f in folders]) if len(folders) > 1 else []
    return figure(text(title), svg, description, keys, "wide")


def interval_legend(counts: Sequence[tuple[int, Aggregate]]) -> str:
    """Describe the tick and the bar of a row, given the number of seeds and their aggregate."""
    ticks = " or ".join(dict.fromkeys(how for _, how in counts))
    kinds = dict.fromkeys(bounds_are(n, how) for n, how in sorted(counts) if n > 1)
    return f"tick: {ticks}" + (f", bar: {' or '.join(kinds)}" if kinds else "")


def _row(task: str, folder: GlueFolder, series: int) -> Dots:
    summary = summarise(folder.results, task)
    return Dots(
        TASKS[task].title,
        [100 * score for score in summary.scores.values()],
        [seed in summary.degenerate for seed in summary.scores],
        100 * summary.aggregate(folder.aggregate),
        in_percent(bounds(summary.values, folder.aggregate)),
        series,
    )
