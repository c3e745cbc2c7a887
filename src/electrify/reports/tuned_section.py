"""What a page says of models that were fine-tuned on one's own data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electrify.finetuning.stats import bounds, bounds_are
from electrify.reports import plots
from electrify.reports.page import Html, Key, Section, figure, name, paragraph, table, text
from electrify.reports.plots import Dots, in_percent
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.storage.commit import TABLE, TEXT, checked_json, damaged, read_json


class Tuned(NamedTuple):
    """A folder of `electrify finetune`."""

    name: str
    result: dict[str, Any]
    data: tuple[str, str]
    """Hashes of the files it was trained and measured on."""
    sources: list[Source]

    @property
    def metric(self) -> str:
        """The first one, by which seeds are compared."""
        return str(next(iter(self.result["mean"])))

    @property
    def scores(self) -> list[float]:
        """Of every seed that ended."""
        return [one["scores"][self.metric] for one in self.result["seeds"] if "scores" in one]


def is_tuned(folder: Path) -> bool:
    """Whether a folder is a finished `electrify finetune`."""
    manifest = folder / "manifest.json"
    return manifest.is_file() and checked_json(manifest, MANIFEST)["kind"] == "fine-tuned model"


MANIFEST = {"kind": TEXT, "identity": TABLE}


def read_tuned(folder: Path, label: str) -> Tuned:
    """The result of a folder."""
    files = ("result.json", "manifest.json")
    sources = [read_source(folder, file)[1] for file in files]
    identity = checked_json(folder / "manifest.json", MANIFEST)["identity"]
    result: dict[str, Any] = read_json(folder / "result.json")
    try:
        tuned = Tuned(label, result, (identity["train"], identity["dev"]), sources)
        _check(tuned)
    except (*DAMAGE, StopIteration) as error:
        raise damaged(folder / "result.json", f"{error!r:.200}") from error
    return tuned


DAMAGE = (AttributeError, KeyError, TypeError, ValueError)


def _check(one: Tuned) -> None:
    """Read once all that is shown later, so that damage is found before anything is written."""
    text(f"{one.result['train']['rows']:,} {one.result['model']}")
    for metric, mean in one.result["mean"].items():
        float(mean) + float(one.result["std"][metric])
    if not isinstance(one.result["seeds"], list) or not one.scores:
        raise ValueError("seeds without scores")
    [bool(seed["degenerate"]) for seed in one.result["seeds"] if "scores" in seed]
    float(sum(one.scores))


def tuned_section(found: Sequence[Tuned]) -> Section:
    """All of them in one table, with every seed as a dot."""
    metrics = list(dict.fromkeys(metric for one in found for metric in one.result["mean"]))
    columns = [text(title) for title in ("folder", "encoder", "rows", "seeds", *metrics)]
    rows = [
        [
            name(one.name),
            name(one.result["model"]),
            text(f"{one.result['train']['rows']:,}"),
            text(len(one.scores)),
            *(_score(one, metric) for metric in metrics),
        ]
        for one in found
    ]
    several = any(len(one.scores) > 1 for one in found)
    caption = "On the development file" + (
        ": mean of the seeds ± their standard deviation" if several else ""
    )
    parts = [_dots(found), table(caption, columns, rows, left=(0, 1))]
    if len({one.data for one in found}) > 1:
        parts.append(paragraph(text("They were not all trained and measured on the same files.")))
    parts.append(sources_table([source for one in found for source in one.sources]))
    return Section(text("Fine-tuned on own data"), parts, "tuned")


def _score(one: Tuned, metric: str) -> Html:
    if metric not in one.result["mean"]:
        return text("–")
    spread = f" ± {one.result['std'][metric]:.3f}" if len(one.scores) > 1 else ""
    return text(f"{one.result['mean'][metric]:.3f}{spread}")


def _dots(found: Sequence[Tuned]) -> Html:
    rows = [
        Dots(
            one.metric,
            [100 * score for score in one.scores],
            [bool(seed["degenerate"]) for seed in one.result["seeds"] if "scores" in seed],
            100 * one.result["mean"][one.metric],
            in_percent(bounds(np.array(one.scores))),
            series,
        )
        for series, one in enumerate(found)
    ]
    svg = plots.dots("tuned-dots", rows, "score on the development file, percent")
    keys = [Key(name(one.name), series % plots.SERIES) for series, one in enumerate(found)]
    said = " ".join(
        f"{one.name}, {one.metric}: {', '.join(f'{score:.3f}' for score in one.scores)}."
        for one in found
    )
    counts = sorted(len(one.scores) for one in found)
    kinds = dict.fromkeys(bounds_are(count) for count in counts if count > 1)
    bar = f", bar: {' or '.join(kinds)}" if kinds else ""
    title = text(f"Every seed a dot; tick: mean{bar}")
    return figure(title, svg, f"Scores of every seed. {said}", keys, "wide")
