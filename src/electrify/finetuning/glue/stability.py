"""`electrify glue stability DIR DIR…`: the spread of scores over pre-training seeds.

A model's score is the average over the tasks of its best fine-tuning run (Table 4 of
electra_pytorch, seed 004). The best of n runs grows with n, so models are comparable only with the
same number of runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

from electrify.config import AcceptsTextPaths
from electrify.errors import UserError
from electrify.finetuning.glue.compare import other_differences
from electrify.finetuning.glue.presets import AverageName, average_of
from electrify.finetuning.glue.published import STABILITY
from electrify.finetuning.glue.results import need_results, summarise
from electrify.finetuning.glue.tasks import TASKS, averaged_tasks
from electrify.finetuning.results import Result
from electrify.finetuning.seeds import run_notes
from electrify.finetuning.stats import deviation
from electrify.finetuning.table import DASH, Cell, Notes, Table, terminal
from electrify.storage.commit import read_json


@dataclass(frozen=True)
class Stability(AcceptsTextPaths):
    """Show how the average of each task's best run varies over pre-training seeds."""

    folders: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DIR…", help_behavior_hint="(required)"),
    ]
    """The --out folders of `electrify glue`, one for each pre-trained model."""


class ModelScore(NamedTuple):
    """The best run of each task of a model."""

    name: str
    runs: dict[str, int]
    """Number of fine-tuning runs with a score, by task."""
    best: dict[str, float]
    average: float
    """Mean of the best scores over tasks."""
    notes: tuple[str, ...] = ()


class Spread(NamedTuple):
    """Statistics of a score over several models."""

    mean: float
    deviation: float
    """Sample standard deviation."""
    highest: float
    lowest: float


class AcrossModels(NamedTuple):
    """Several models, and their spread for each task and for the average of the best runs."""

    models: list[ModelScore]
    tasks: dict[str, Spread]
    average: Spread
    notes: list[str]


def stability(settings: Stability) -> dict[str, Any]:
    """Print and return the scores of all models and their spread."""
    folders = settings.folders
    distinct = {folder.resolve() for folder in folders}
    if len(distinct) < 2 or len(distinct) < len(folders):
        got = ", ".join(map(str, folders)) or "none"
        fix = "use electrify glue stability glue-1 glue-2 …, one folder for each pre-training seed"
        raise UserError("stability needs two or more different folders", got=got, fix=fix)
    models = {str(folder): need_results(folder) for folder in folders}
    first, *others = folders
    notes = [f"{first} and {o}: {note}" for o in others for note in other_differences(first, o)]
    found = over_models(models)
    found.notes.extend([*_same_encoder(folders), *notes])
    print(terminal(as_table(found)))
    for note in found.notes:
        print(f"note: {note}")
    pairs = zip(Spread._fields, found.average, strict=True)
    spread = ", ".join(f"{_NAMES.get(name, name)} {_percent(value)}" for name, value in pairs)
    titles = ", ".join(TASKS[name].title for name in found.tasks)
    print(f"average of best: {spread}, {len(found.models)} models ({titles})")
    return {
        "models": [model._asdict() for model in found.models],
        "tasks": {name: spread._asdict() for name, spread in found.tasks.items()},
        "average": found.average._asdict(),
        "notes": found.notes,
    }


def over_models(models: Mapping[str, Sequence[Result]]) -> AcrossModels:
    """Return the best run of each task of each model, and their spread; tasks must be the same."""
    average = average_of(result.preset for results in models.values() for result in results)
    scores = [_score(name, results, average) for name, results in models.items()]
    tasks = [name for name in averaged_tasks() if any(name in score.best for score in scores)]
    if not tasks:
        fix = f"run electrify glue with some of {', '.join(averaged_tasks())}"
        raise UserError("no averaged task has a score", got=", ".join(models), fix=fix)
    if lacking := {
        score.name: lacks
        for score in scores
        if (lacks := [TASKS[name].title for name in tasks if name not in score.best])
    }:
        raise UserError(
            "the models do not have the same tasks, so their averages cannot be compared",
            got="; ".join(f"{name}: no score for {', '.join(t)}" for name, t in lacking.items()),
            fix="run electrify glue on the same tasks for every model",
        )
    return AcrossModels(
        scores,
        {name: _over([score.best[name] for score in scores]) for name in tasks},
        _over([score.average for score in scores]),
        _other_counts(scores, tasks),
    )


def _score(name: str, results: Sequence[Result], average: AverageName) -> ModelScore:
    summaries = {task: summarise(results, task, average) for task in averaged_tasks()}
    scored = {task: summary for task, summary in summaries.items() if summary.n}
    best = {task: summary.best for task, summary in scored.items()}
    notes = [
        f"{TASKS[task].title}: {text}"
        for task, summary in summaries.items()
        for text in run_notes(summary)
    ]
    runs = {task: summary.n for task, summary in scored.items()}
    mean = float(np.mean(list(best.values()))) if best else float("nan")
    return ModelScore(name, runs, best, mean, tuple(notes))


def _over(values: Sequence[float]) -> Spread:
    return Spread(float(np.mean(values)), deviation(values), max(values), min(values))


def _other_counts(scores: Sequence[ModelScore], tasks: Sequence[str]) -> list[str]:
    """Describe the tasks for which models have different numbers of runs."""
    notes = []
    for task in tasks:
        counts = {score.name: score.runs[task] for score in scores}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            notes.append(
                f"{TASKS[task].title}: different numbers of runs ({listed}); the best of more runs "
                "is higher, so these are not comparable"
            )
    return notes


def _same_encoder(folders: Sequence[Path]) -> list[str]:
    """Describe the folders that contain results of the same weights."""
    holders: dict[str, list[str]] = {}
    for folder in folders:
        paths = sorted(folder.glob("jobs/*/result.json"))
        for encoder in {str(read_json(path)["identity"].get("model")) for path in paths}:
            holders.setdefault(encoder, []).append(str(folder))
    return [
        f"{' and '.join(names)} contain results of the same encoder, not of two pre-training seeds"
        for names in holders.values()
        if len(names) > 1
    ]


def as_table(found: AcrossModels) -> Table:
    """Return a table with a row for each model, then their spread."""
    notes = Notes()
    rows = [
        [
            Cell(model.name, marks=notes.marks(model.notes)),
            Cell(DASH.join(str(n) for n in sorted({*model.runs.values()}))),
            *(Cell(_percent(model.best[name])) for name in found.tasks),
            Cell(_percent(model.average)),
        ]
        for model in found.models
    ]
    for field in Spread._fields:
        marks = [f"published: {STABILITY}"] if len(found.tasks) == len(averaged_tasks()) else []
        rows.append(
            [
                Cell(_NAMES.get(field, field), marks=notes.marks(marks)),
                Cell(""),
                *(Cell(_percent(getattr(spread, field))) for spread in found.tasks.values()),
                Cell(_percent(getattr(found.average, field))),
            ]
        )
    titles = [TASKS[name].title for name in found.tasks]
    columns = ("model", "runs", *titles, "average of best")
    return Table("best run of each task, in percent", columns, rows, list(notes.numbers))


_NAMES = {"deviation": "standard deviation"}


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"
