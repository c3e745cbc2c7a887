"""Read the TOML file of a suite: its tasks, and how to fine-tune on them.

seeds = 3                        # and lr, epochs, batch_size, layer_decay, length, train_limit

[[task]]                         # a GLUE task
task = "cola"
data = "glue"

[[task]]                         # your files: classes, pairs, scores or tags
name = "ner"
train = "eng.train.xz"
dev = "eng.testa.xz"
label = "ner"
epochs = 5

[models.minilm]                  # what one model needs
lr = 1e-4

Later settings replace earlier ones: those of the file, of the task, of the model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from electrify.config import fill, read_toml, shown, unknown
from electrify.errors import UserError
from electrify.finetuning.glue.tasks import TASKS

DEFAULT_SEEDS = 3
MOST_SEEDS = 1_000
TaskKind = Literal["glue", "own", "squad", "blimp"]


@dataclass(frozen=True, kw_only=True)
class TunedSettings:
    """Settings of fine-tuning that a suite may change; None leaves the default of the task."""

    lr: float | None = None
    epochs: float | None = None
    batch_size: int | None = None
    layer_decay: float | None = None
    length: int | None = None
    train_limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class SuiteTask(TunedSettings):
    """A row of the file: a task, its data and its settings."""

    name: str = ""
    """Name in tables; by default `task`."""
    task: str = ""
    """A GLUE task, squad or blimp; empty for your files."""
    data: str = ""
    """Folder of GLUE, SQuAD or BLiMP."""
    train: str = ""
    dev: str = ""
    kind: Literal["auto", "classes", "score", "tags"] = "auto"
    text: str = ""
    pair: str = ""
    label: str = ""
    version: Literal["auto", "1.1", "2.0"] = "auto"
    """Version of SQuAD."""
    dev_limit: int = 0
    """Only the first N questions of SQuAD, or the first N pairs of each paradigm of BLiMP."""
    metric: str = ""
    """The score in tables; by default what papers report."""

    @property
    def benchmark(self) -> TaskKind:
        """Return the benchmark of the task."""
        if not self.task:
            return "own"
        return "blimp" if self.task == "blimp" else "squad" if self.task == "squad" else "glue"


_TUNED = {field.name for field in fields(TunedSettings)}
_ALLOWED: dict[TaskKind, set[str]] = {
    "glue": {"data", "metric"} | _TUNED,
    "own": {"train", "dev", "kind", "text", "pair", "label", "metric"} | _TUNED,
    "squad": {"data", "version", "dev_limit", "metric"} | _TUNED,
    "blimp": {"data", "dev_limit"},
}
_REQUIRED: dict[TaskKind, tuple[str, ...]] = {
    "glue": ("data",),
    "own": ("name", "train", "dev"),
    "squad": ("data",),
    "blimp": ("data",),
}


class SuiteFile(NamedTuple):
    """A checked suite."""

    seeds: int
    tuned: TunedSettings
    tasks: list[SuiteTask]
    models: Mapping[str, TunedSettings]


def read_suite(path: Path) -> SuiteFile:
    """Read and check the file of a suite, apart from the data it names."""
    table = read_toml(path)
    source = path.name
    rows, models = table.pop("task", []), table.pop("models", {})
    seeds = table.pop("seeds", DEFAULT_SEEDS)
    for name in table:
        if name not in _TUNED:
            raise unknown(f"{source}: {name}", name, dict.fromkeys(_KEYS), "setting of a suite")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        fix = 'add a row: [[task]], and below it task = "cola" and data = "glue"'
        raise UserError(f"{source} has no tasks", got=shown(rows), fix=fix)
    if not isinstance(models, dict):
        raise UserError(f"{source}: models is not a table", got=shown(models), fix="[models.NAME]")
    check_seeds(seeds, f"{source}: seeds")
    tasks = [_row(row, f"{source}: task {number}") for number, row in enumerate(rows, start=1)]
    for number, task in enumerate(tasks):
        if task.name.lower() in (before.name.lower() for before in tasks[:number]):
            raise UserError(
                f"{source}: two tasks have the same name",
                got=f"{task.name}, in task {number + 1}",
                fix='give one of them another name: name = "…"',
            )
    tuned = {
        name: _filled(TunedSettings, row, f"{source}: models.{name}")
        for name, row in models.items()
    }
    return SuiteFile(seeds, _filled(TunedSettings, table, source), tasks, tuned)


_KEYS = ("seeds", *sorted(_TUNED), "task", "models")


def check_seeds(seeds: Any, what: str) -> None:
    """Refuse anything but a positive number of seeds."""
    if type(seeds) is not int or not 1 <= seeds <= MOST_SEEDS:
        fix = "use a number of seeds such as 3; they are 0, 1, 2"
        raise UserError(f"{what} must be from 1 to {MOST_SEEDS:,}", got=shown(seeds), fix=fix)


def _row(row: dict[str, Any], label: str) -> SuiteTask:
    task: SuiteTask = _filled(SuiteTask, row, label)
    if task.task:
        known = {"squad": "squad", "blimp": "blimp"}
        for one in TASKS.values():
            known |= dict.fromkeys((one.name, one.title.lower(), *one.aliases), one.name)
        if task.task.lower() not in known:
            names = dict.fromkeys([*TASKS, "squad", "blimp"])
            raise unknown(f"{label}: {task.task}", task.task, names, "task")
        chosen = known[task.task.lower()]
        task = _filled(SuiteTask, {"name": chosen, **row, "task": chosen}, label)
    allowed = {"name", "task", *_ALLOWED[task.benchmark]}
    kind = "your own files" if task.benchmark == "own" else task.task
    for name in row:
        if name not in allowed:
            fix = f"remove it; {kind} takes {', '.join(sorted(allowed))}"
            raise UserError(f"{label}: {name} has no meaning for {kind}", got=shown(row), fix=fix)
    for name in _REQUIRED[task.benchmark]:
        if not getattr(task, name):
            fix = f'add {name} = "…"'
            raise UserError(f"{label}: {name} is missing for {kind}", got=shown(row), fix=fix)
    if not re.fullmatch(r"\w[\w .+-]{0,60}", task.name):
        fix = "use letters, digits, spaces, dots, + and -; it names a folder"
        raise UserError(f"{label}: the name cannot be used", got=shown(task.name), fix=fix)
    return task


def _filled(kind: Any, row: Any, label: str) -> Any:
    filled = fill(kind, row, label, None)
    for name, least in (("length", 8), ("train_limit", 0), ("dev_limit", 0)):
        value = getattr(filled, name, None)
        if value is not None and value < least:
            raise UserError(
                f"{label}: {name} is too small", got=f"{value}", fix=f"use {least} or more"
            )
    return filled


def merged(*layers: TunedSettings) -> TunedSettings:
    """Return settings in which those of a later layer replace those of an earlier one.

    >>> merged(TunedSettings(lr=1e-4, epochs=3), TunedSettings(epochs=5)).epochs
    5
    """
    values = {
        name: value
        for layer in layers
        for name in sorted(_TUNED)
        if (value := getattr(layer, name)) is not None
    }
    return TunedSettings(**values)
