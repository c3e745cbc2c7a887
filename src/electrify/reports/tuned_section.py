"""The report section of models that were fine-tuned on your data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electrify.finetuning.own.by_label import (
    MOST_LABELS,
    confusions_table,
    label_table,
    matrix_labels,
    matrix_title,
    shortened,
)
from electrify.finetuning.own.hints import hints
from electrify.finetuning.stats import bounds
from electrify.reports import plots
from electrify.reports.glue_section import as_html, interval_legend
from electrify.reports.page import (
    Html,
    Key,
    Section,
    figure,
    joined,
    name,
    paragraph,
    series_keys,
    table,
    text,
)
from electrify.reports.plots import Dots, Line, in_percent
from electrify.reports.provenance import Source, read_source, sources_table
from electrify.storage.commit import TABLE, TEXT, checked_json, damaged, read_json


class Tuned(NamedTuple):
    """A folder of `electrify finetune`."""

    name: str
    result: dict[str, Any]
    data: tuple[str, str]
    """Hashes of the files it was trained and evaluated on."""
    sources: list[Source]

    @property
    def metric(self) -> str:
        """The main metric, by which seeds are compared."""
        return str(next(iter(self.result["mean"])))

    @property
    def scores(self) -> list[float]:
        """The main metric of every seed that finished."""
        return [seed["scores"][self.metric] for seed in self.result["seeds"] if "scores" in seed]


def is_tuned(folder: Path) -> bool:
    """Return whether a folder is the result of `electrify finetune`."""
    return manifest_kind(folder) == "fine-tuned model"


def manifest_kind(folder: Path) -> str:
    """Return the kind of a finished folder; empty if it has no manifest."""
    manifest = folder / "manifest.json"
    return str(checked_json(manifest, _MANIFEST)["kind"]) if manifest.is_file() else ""


_MANIFEST = {"kind": TEXT, "identity": TABLE}


def read_tuned(folder: Path, label: str) -> Tuned:
    """Read the result of a folder."""
    files = ("result.json", "manifest.json")
    sources = [read_source(folder, file)[1] for file in files]
    identity = checked_json(folder / "manifest.json", _MANIFEST)["identity"]
    result: dict[str, Any] = read_json(folder / "result.json")
    try:
        tuned = Tuned(label, result, (identity["train"], identity["dev"]), sources)
        _check(tuned)
    except (*DAMAGE, StopIteration) as error:
        raise damaged(folder / "result.json", f"{error!r:.200}") from error
    return tuned


DAMAGE = (AttributeError, KeyError, TypeError, ValueError)


def _check(tuned: Tuned) -> None:
    """Read everything that is shown later, so that damage is found before anything is written."""
    text(f"{tuned.result['train']['rows']:,} {tuned.result['model']}")
    for metric, mean in tuned.result["mean"].items():
        float(mean) + float(tuned.result["std"][metric])
    if not isinstance(tuned.result["seeds"], list) or not tuned.scores:
        raise ValueError("seeds without scores")
    [bool(seed["degenerate"]) for seed in tuned.result["seeds"] if "scores" in seed]
    float(sum(tuned.scores))
    _tables(tuned.result, "check")
    for seed in tuned.result["seeds"]:
        float(sum(int(step) + float(loss) for step, loss in seed.get("losses", [])))


def tuned_section(models: Sequence[Tuned]) -> Section:
    """Return one table of all models, and a plot with a dot per seed."""
    metrics = list(dict.fromkeys(metric for tuned in models for metric in tuned.result["mean"]))
    columns = [text(title) for title in ("folder", "encoder", "training rows", "seeds", *metrics)]
    rows = [
        [
            name(tuned.name),
            name(tuned.result["model"]),
            text(f"{tuned.result['train']['rows']:,}"),
            text(len(tuned.scores)),
            *(_score(tuned, metric) for metric in metrics),
        ]
        for tuned in models
    ]
    several = any(len(tuned.scores) > 1 for tuned in models)
    caption = "Scores on the development file" + (
        ": mean over seeds ± standard deviation" if several else ""
    )
    parts: list[Html | Section] = [_dots(models), table(caption, columns, rows, left=(0, 1))]
    if len({tuned.data for tuned in models}) > 1:
        parts.append(paragraph(text("Not all were trained and evaluated on the same files.")))
    parts += [_details(tuned, f"tuned-{number}") for number, tuned in enumerate(models, 1)]
    parts.append(sources_table([source for tuned in models for source in tuned.sources]))
    return Section(text("Fine-tuned on your data"), parts, "tuned")


def _details(tuned: Tuned, key: str) -> Section:
    """Return the hints, the scores of each label, the confusions and the loss of one model."""
    parts = _tables(tuned.result, key)
    if any(seed.get("losses") for seed in tuned.result["seeds"]):
        parts.append(_losses(tuned.result["seeds"], key))
    return Section(name(tuned.name), parts or [paragraph(text(NOT_STORED), "soft")], key)


NOT_STORED = "An earlier version of electrify made this folder and kept no scores of each label."


def _tables(result: dict[str, Any], key: str) -> list[Html]:
    parts = []
    if found := hints(result):
        listed = joined(f"<li>{text(hint)}</li>" for hint in found)
        parts.append(Html(f'<ul class="hints">\n{listed}\n</ul>'))
    if by_label := label_table(result):
        parts += [as_html(by_label, by_label.title, f"{key}-labels"), _confusion(result, key)]
    return parts


def _confusion(result: dict[str, Any], key: str) -> Html:
    """Return the confusion matrix, shaded by row; if it is large, the most frequent confusions."""
    labels, counts = matrix_labels(result), result["by_label"]["confusion"]
    if len(labels) > MOST_LABELS:
        confusions = confusions_table(result)
        return as_html(confusions, confusions.title, f"{key}-confusions")
    rows = []
    for true in labels:
        row = counts.get(true, {})
        total = sum(row.values()) or 1
        shades = [
            Html(
                f'<span class="share" style="--share: {row.get(guess, 0) / total:.0%}">'
                f"{row.get(guess, 0):,}</span>"
            )
            for guess in labels
        ]
        rows.append([name(shortened(true)), *shades])
    columns = [text("true"), *(name(shortened(label)) for label in labels)]
    return table(matrix_title(result), columns, rows)


def _losses(seeds: Sequence[dict[str, Any]], key: str) -> Html:
    """Return the learning curves: the training loss of every seed by step."""
    lines, keys, sentences = [], [], []
    for series, seed in enumerate(seed for seed in seeds if seed.get("losses")):
        steps, losses = zip(*seed["losses"], strict=True)
        lines.append(Line(steps, losses, series))
        keys.append(Key(text(f"seed {seed['seed']}"), series % plots.SERIES))
        ends = f"{losses[0]:.3f} at step {steps[0]:,}, {losses[-1]:.3f} at step {steps[-1]:,}"
        sentences.append(f"seed {seed['seed']}: {ends}.")
    svg = plots.curves(f"{key}-losses", lines)
    description = f"Training loss by step. {' '.join(sentences)}"
    return figure(text("Training loss"), svg, description, keys * (len(keys) > 1), "wide")


def _score(tuned: Tuned, metric: str) -> Html:
    if metric not in tuned.result["mean"]:
        return text("–")
    spread = f" ± {tuned.result['std'][metric]:.3f}" if len(tuned.scores) > 1 else ""
    return text(f"{tuned.result['mean'][metric]:.3f}{spread}")


def _dots(models: Sequence[Tuned]) -> Html:
    rows = [
        Dots(
            tuned.metric,
            [100 * score for score in tuned.scores],
            [bool(seed["degenerate"]) for seed in tuned.result["seeds"] if "scores" in seed],
            100 * tuned.result["mean"][tuned.metric],
            in_percent(bounds(np.array(tuned.scores))),
            series,
        )
        for series, tuned in enumerate(models)
    ]
    svg = plots.dots("tuned-dots", rows, "score on the development file, percent")
    scores = " ".join(
        f"{tuned.name}, {tuned.metric}: {', '.join(f'{score:.3f}' for score in tuned.scores)}."
        for tuned in models
    )
    legend = interval_legend([(len(tuned.scores), "mean") for tuned in models])
    keys = series_keys([tuned.name for tuned in models])
    title = text(f"One dot per seed; {legend}")
    return figure(title, svg, f"Scores of every seed. {scores}", keys, "wide")
