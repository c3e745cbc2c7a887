"""What a page says of GLUE results: beside published ones, and seed by seed."""

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
    Key,
    Section,
    code,
    figure,
    joined,
    name,
    pairs,
    paragraph,
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
    """Where the encoder was."""
    fingerprint: str
    sources: list[Source]

    @property
    def aggregate(self) -> Aggregate:
        """Mean or median, as the preset has it."""
        return aggregate_of(result.preset for result in self.results)


def read_glue(folder: Path, label: str) -> GlueFolder:
    """The finished jobs of a folder."""
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
    models, marks = (
        ", ".join(sorted({str(identity.get(field, "")) for identity in identities}))
        for field in ("source", "model")
    )
    return GlueFolder(label, folder, results, models, marks, sources)


def glue_sections(found: Sequence[GlueFolder]) -> list[Section]:
    """All folders in one table, then each seed by seed."""
    ours = {one.name: one.results for one in found}
    made = tables.beside_published(ours, published("dev"))
    caption = "Development sets, in percent; published rows below ours"
    beside = [_dots(found), as_html(made, caption, "glue", marked=len(ours))]
    if len(found) == 1:
        lines = tables.averages(found[0].results)
        beside.append(paragraph(text("; ".join(lines) + "."), "soft"))
    return [
        Section(text("GLUE"), beside, "glue"),
        *(_seeds(one, f"glue-{number}") for number, one in enumerate(found, 1)),
    ]


def _seeds(one: GlueFolder, key: str) -> Section:
    presets = ", ".join(sorted({result.preset for result in one.results}))
    rows = [
        ("Encoder", name(one.model)),
        ("Fingerprint of the encoder", code(one.fingerprint)),
        ("Preset", text(presets)),
    ]
    table = as_html(tables.by_seed(one.results), "Every task and seed, in percent", key)
    parts = [table, pairs(rows), sources_table(one.sources)]
    return Section(Html(f"Seeds of {name(one.name)}"), parts, key)


def as_html(made: Table, caption: str, key: str, marked: int = 0) -> Html:
    """A table of results with its footnotes, which its marks lead to."""
    rows = [[_cell(cell, key) for cell in row] for row in made.rows]
    notes = joined(
        f'<li id="{key}-note-{number}">{text(note)}</li>'
        for number, note in enumerate(made.notes, 1)
    )
    listed = f'<ol class="notes">\n{notes}\n</ol>' if notes else ""
    columns = [text(column) for column in made.columns]
    return joined([table(caption, columns, rows, marked=marked), listed])


def _cell(cell: Cell, key: str) -> Html:
    links = joined(
        (f'<a href="#{key}-note-{m}" aria-label="note {m}">{m}</a>' for m in cell.marks), " "
    )
    marks = f"<sup>{links}</sup>" if links else ""
    bounds = (
        f"<small>{text(cell.bounds.strip('[]').replace(' ', '–'))}</small>" if cell.bounds else ""
    )
    words = name(cell.text) if isinstance(cell.content, str) else text(cell.text)
    return Html(f"{words}{marks}{bounds}")


def _dots(found: Sequence[GlueFolder]) -> Html:
    tasks = [n for n in TASKS if any(r.task == n for one in found for r in one.results)]
    rows, said = [], []
    for task in tasks:
        for series, one in enumerate(found):
            row = _row(task, one, series)
            rows.append(row)
            values = ", ".join(f"{value:.1f}" for value in row.values) or "no score"
            said.append(f"{row.label}, {one.name}: {values}.")
    svg = plots.dots("glue-dots", rows, "score on the development set, percent")
    keys = [Key(name(one.name), series % plots.SERIES) for series, one in enumerate(found)]
    ticks = " or ".join(dict.fromkeys(one.aggregate for one in found))
    counts = [(summarise(one.results, t).n, one.aggregate) for one in found for t in tasks]
    kinds = dict.fromkeys(bounds_are(n, how) for n, how in sorted(counts) if n > 1)
    bar = f", bar: {' or '.join(kinds)}" if kinds else ""
    title = text(f"Every seed a dot, hollow if it learned nothing; tick: {ticks}{bar}")
    words = f"Scores of every seed in percent. {' '.join(said)}"
    return figure(title, svg, words, keys if len(found) > 1 else [], "wide")


def _row(task: str, one: GlueFolder, series: int) -> Dots:
    found = summarise(one.results, task)
    return Dots(
        TASKS[task].title,
        [100 * score for score in found.scores.values()],
        [seed in found.degenerate for seed in found.scores],
        100 * found.aggregate(one.aggregate),
        in_percent(bounds(found.values, one.aggregate)),
        series,
    )
