"""The record of a finished suite, OUT/suite.json: everything that its tables show.

It has no times and no paths of the results, so that the same models, data and settings always give
the same bytes, whatever the number of workers and kills.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.finetuning.results import Result
from electrify.finetuning.seeds import Summary, summarise_runs
from electrify.storage.commit import damaged, defined, read_json, write_json

RECORD = "suite.json"
COPY = "suite.toml"
"""A copy of the file, which every suite writes before it runs anything."""


class RecordedModel(NamedTuple):
    """A model of the suite."""

    name: str
    given: str
    """The folder or Hub name, perhaps after random:, as it was given."""
    fingerprint: str
    """A hash of the files that were fine-tuned."""


class RecordedTask(NamedTuple):
    """A task of the suite."""

    name: str
    benchmark: str
    """glue, own, squad or blimp."""
    metric: str
    """The score in tables."""


class RecordedRun(NamedTuple):
    """A run of a model."""

    model: str
    task: str
    seed: int
    settings: str
    """Preset or hyperparameters."""
    train_rows: int
    scores: Mapping[str, Mapping[str, float]]
    """By split and metric, as fractions; of BLiMP also by paradigm, and the interval over pairs."""
    degenerate: str
    failed: str
    file: str
    """The result of the job, relative to the folder."""


class SuiteRecord(NamedTuple):
    """Everything that the tables of a suite show."""

    suite: str
    """Name of the TOML file."""
    sha256: str
    """Of the TOML file."""
    models: list[RecordedModel]
    tasks: list[RecordedTask]
    runs: list[RecordedRun]
    absent: list[tuple[str, str, str]]
    """Models that a task does not apply to: model, task, reason."""

    def summary(self, model: str, task: RecordedTask) -> Summary:
        """Return the scores of a model and a task over seeds; of BLiMP with its interval."""
        runs = [run for run in self.runs if (run.model, run.task) == (model, task.name)]
        results = [
            Result(run.task, run.seed, run.settings, run.scores, run.degenerate, run.failed)
            for run in runs
        ]
        reading = (("dev", task.metric),)
        summary = summarise_runs(results, task.name, f"{task.name} of {model}", lambda _: reading)
        if task.benchmark == "blimp" and runs:
            bounds = runs[0].scores["interval"]
            summary = summary._replace(interval=(bounds["low"], bounds["high"]))
        return summary

    def settings(self, model: str, task: str) -> str:
        """Return the settings of a model and a task, for notes."""
        found = {
            f"{run.settings}, {run.train_rows:,} training rows" if run.train_rows else run.settings
            for run in self.runs
            if (run.model, run.task) == (model, task) and not run.failed
        }
        return "; ".join(sorted(found))


def recorded_scores(benchmark: str, result: Result) -> dict[str, dict[str, float]]:
    """Return the scores of a result as fractions; SQuAD's script gives percentages."""
    if benchmark != "squad":
        return {split: dict(scores) for split, scores in result.scores.items()}
    chosen = (
        {name: result.scores["dev"][name] / 100 for name in ("exact", "f1")}
        if result.scores
        else {}
    )
    return {"dev": chosen} if chosen else {}


def write_record(out: Path, record: SuiteRecord) -> None:
    """Commit the record, which marks the suite as finished."""
    rows = {
        name: [row._asdict() for row in getattr(record, name)]
        for name in ("models", "tasks", "runs")
    }
    known = {"suite": record.suite, "sha256": record.sha256, "absent": record.absent}
    write_json(out / RECORD, defined({**known, **rows}))


def read_record(folder: Path) -> SuiteRecord:
    """Read the record of a finished suite."""
    path = folder / RECORD
    content: Any = read_json(path)
    try:
        return SuiteRecord(
            str(content["suite"]),
            str(content["sha256"]),
            [RecordedModel(**row) for row in content["models"]],
            [RecordedTask(**row) for row in content["tasks"]],
            [RecordedRun(**{**row, "scores": _scores(row["scores"])}) for row in content["runs"]],
            [(str(model), str(task), str(why)) for model, task, why in content["absent"]],
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"{error!r:.200}") from error


def _scores(stored: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float]]:
    return {
        split: {name: math.nan if value is None else float(value) for name, value in part.items()}
        for split, part in stored.items()
    }


def pairs_of(record: SuiteRecord, model: str, task: RecordedTask) -> Mapping[Any, float]:
    """Return the scores to pair with those of another model: by seed, or by paradigm of BLiMP."""
    if task.benchmark != "blimp":
        return record.summary(model, task).scores
    runs: Sequence[RecordedRun] = [
        r for r in record.runs if (r.model, r.task) == (model, task.name)
    ]
    return runs[0].scores["paradigms"] if runs else {}
