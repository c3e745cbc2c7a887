"""The report section of minimal pairs: by phenomenon, and along the checkpoints of a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.finetuning.blimp.results import OVER_PAIRS, SHORTER, BlimpResult, pair_cell
from electrify.finetuning.glue.probe import STEP_RESULTS, step_of
from electrify.finetuning.table import Cell, Notes, Table, percent
from electrify.reports import plots
from electrify.reports.curves import describe
from electrify.reports.glue_section import as_html
from electrify.reports.page import Html, Section, figure, series_keys, text
from electrify.reports.plots import Level, Line
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.reports.run import Series
from electrify.reports.tuned_section import DAMAGE, manifest_kind
from electrify.storage.commit import damaged, read_json


class PairsFolder(NamedTuple):
    """A folder of `electrify blimp`, or of `electrify probe` with the task blimp."""

    name: str
    result: BlimpResult
    """Of a probe, that of the last checkpoint."""
    by_step: Mapping[int, float]
    """The accuracy at each checkpoint; empty for a folder of `electrify blimp`."""
    sources: list[Source]


def has_pairs(folder: Path) -> bool:
    """Return whether a folder has results on minimal pairs."""
    return manifest_kind(folder) == "blimp" or any(folder.glob(STEP_RESULTS))


def read_pairs_folder(folder: Path, label: str) -> PairsFolder:
    """Read the results of a folder."""
    files = sorted(folder.glob(STEP_RESULTS)) or [folder / "result.json"]
    steps: dict[int, float] = {}
    for file in files:
        result: BlimpResult = read_json(file)
        try:
            scores = [result["overall"], *result["phenomena"]]
            cells = [percent(score["shorter"], pair_cell(score).interval) for score in scores]
            if any(math.isnan(bound) for cell in cells for bound in cell.interval):
                raise ValueError("an accuracy without an interval")
            if file.parent != folder:
                steps[step_of(file)] = result["overall"]["accuracy"]
        except DAMAGE as error:
            raise damaged(file, f"{error!r:.200}") from error
    sources = [read_source(folder, file.relative_to(folder).as_posix())[1] for file in files]
    return PairsFolder(label, result, steps, sources)


def pairs_section(folders: Sequence[PairsFolder]) -> Section:
    """Return one table of all folders by phenomenon, and a curve of those with checkpoints."""
    curves = [folder for folder in folders if folder.by_step]
    parts = [_curve(curves)] if curves else []
    caption = "Accuracy on minimal pairs, in percent; 50 is chance"
    parts.append(as_html(_table(folders), caption, "pairs"))
    parts.append(sources_table([source for folder in folders for source in folder.sources]))
    return Section(text("Minimal pairs"), parts, "pairs")


def _table(folders: Sequence[PairsFolder]) -> Table:
    notes = Notes()
    scores = [
        {score["name"]: score for score in [*folder.result["phenomena"], folder.result["overall"]]}
        for folder in folders
    ]
    rows = []
    for name in dict.fromkeys(name for by_name in scores for name in by_name):
        found = [by_name.get(name) for by_name in scores]
        baselines = {score["shorter"] for score in found if score}
        shorter = baselines.pop() if len(baselines) == 1 else math.nan  # tokenizers differ
        cells = [pair_cell(score) if score else percent(math.nan) for score in found]
        rows.append([Cell(name.replace("_", " ")), *cells, percent(shorter)])
    marks = [notes.marks([f"{OVER_PAIRS}; scored by {f.result['score']}"]) for f in folders]
    header = [
        Cell("score"),
        *(Cell(f.result["score"], marks=m) for f, m in zip(folders, marks, strict=True)),
    ]
    rows.insert(0, [*header, Cell("", marks=notes.marks([SHORTER]))])
    columns = ("phenomenon", *(folder.name for folder in folders), "fewer tokens")
    return Table("minimal pairs", columns, rows, list(notes.numbers))


def _curve(folders: Sequence[PairsFolder]) -> Html:
    lines, sentences = [], []
    for number, folder in enumerate(folders):
        series = Series([*folder.by_step], [100 * value for value in folder.by_step.values()])
        lines.append(Line(series.steps, series.values, number, dots=True))
        sentences.append(describe(folder.name, series, ".1f"))
    svg = plots.curves("pairs-curve", lines, [Level(50.0, "chance")])
    keys = series_keys([folder.name for folder in folders]) if len(folders) > 1 else []
    title = text("Accuracy on minimal pairs over steps, percent")
    return figure(title, svg, " ".join(sentences), keys)
