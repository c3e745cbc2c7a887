"""What a suite runs: a problem for each task and model, made by the command that has the task.

Everything is read once before anything is trained, so that a missing file, a wrong column or a
label that the training file lacks is found first. A plan is small, because it is sent to workers;
they read the data themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from electrify.config import unknown
from electrify.finetuning.blimp.pairs import find_paradigms, read_paradigm
from electrify.finetuning.encoder import Encoder, open_encoder
from electrify.finetuning.experiment import Problem
from electrify.finetuning.fit import check_hyperparameters
from electrify.finetuning.glue.command import CHANGES, plan_jobs
from electrify.finetuning.glue.data import check_folder, read_split
from electrify.finetuning.glue.presets import PRESETS, size_of
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import Finetune, Fit, PresetName, Squad, Tuning
from electrify.finetuning.own.command import finetune_identity
from electrify.finetuning.own.data import Columns, class_indices, parse_scores
from electrify.finetuning.own.problem import OwnProblem, first_rows
from electrify.finetuning.own.sentences import Sentences
from electrify.finetuning.own.tagging import has_entities, import_seqeval, tag_indices
from electrify.finetuning.own.target import Target, read_matching, read_training
from electrify.finetuning.squad.command import squad_identity
from electrify.finetuning.squad.data import find_files, read_questions
from electrify.finetuning.squad.heads import SPAN_HEADS
from electrify.finetuning.squad.problem import SquadProblem
from electrify.finetuning.suite.file import SuiteTask, TaskKind, TunedSettings
from electrify.training.precision import Asked

PRESET: PresetName = "paper"
"""GLUE's preset; its learning rates by model size are those of your files and SQuAD too."""
Where = tuple[Asked, str]
"""Precision and device."""


class SuitePlan(NamedTuple):
    """How to make the problem of a task for a model, in any process, and how to train on it."""

    make: Callable[[], Problem]
    identity: Mapping[str, Any]
    """That of the problem, which it takes no data to know."""
    fit: Fit


class CheckedTask(NamedTuple):
    """A task whose data was read and found valid."""

    row: SuiteTask
    metric: str
    """The score in tables."""
    plan: Callable[[TunedSettings, str, Where], SuitePlan] | None
    """Takes the settings, the model and where it runs; None for BLiMP, which trains nothing."""


def check_task(row: SuiteTask, base: Path) -> CheckedTask:
    """Read the data of a task, whose relative paths start from `base`, and check all of it."""
    return _CHECKS[row.benchmark](row, base)


def check_tuned(tuned: TunedSettings, model: str) -> None:
    """Refuse invalid hyperparameters."""
    check_hyperparameters(_fit(tuned, open_encoder(model), ("auto", "cpu")))


def _metric(row: SuiteTask, known: Mapping[str, str] | tuple[str, ...]) -> str:
    """Return the metric of a task: the first one, or that of the row."""
    if row.metric and row.metric not in known:
        raise unknown(f"task {row.name}: {row.metric}", row.metric, dict.fromkeys(known), "metric")
    return row.metric or next(iter(known))


def _fit(tuned: TunedSettings, encoder: Encoder, where: Where, default: Fit | None = None) -> Fit:
    """Return the hyperparameters: by default the learning rate of GLUE for the model's size."""
    size = size_of(encoder.config.hidden_size)
    preset = PRESETS[PRESET]
    fit = replace(default or Fit(), lr=preset.rates[size], layer_decay=preset.decays[size])
    changes = _changes(tuned)
    return replace(fit, precision=where[0], **changes)


def _changes(tuned: TunedSettings) -> dict[str, Any]:
    names = ("lr", "epochs", "batch_size", "layer_decay")
    return {name: value for name in names if (value := getattr(tuned, name)) is not None}


def _label(fit: Fit, length: int, dev_limit: int = 0) -> str:
    """Return the hyperparameters as a note under tables, as GLUE's labels name them."""
    label = (
        f"lr {fit.lr:g}, epochs {fit.epochs:g}, batch size {fit.batch_size}, "
        f"layer decay {fit.layer_decay:g}, length {length}"
    )
    if dev_limit:
        label += f", the first {dev_limit:,} questions for evaluation"
    usual = CHANGES["precision"]
    return label if fit.precision == usual else f"{label}, precision {fit.precision}"


def _check_glue(row: SuiteTask, base: Path) -> CheckedTask:
    data = (base / row.data).absolute()
    check_folder(data)
    for split in ("train", "dev"):
        read_split(data, TASKS[row.task], split)
    return CheckedTask(row, _metric(row, TASKS[row.task].metrics), partial(_plan_glue, row, data))


def _plan_glue(
    row: SuiteTask, data: Path, tuned: TunedSettings, model: str, where: Where
) -> SuitePlan:
    """Return the plan of `electrify glue` for one task."""
    settings = Tuning(
        data=data,
        out=data,  # where a task would find the model of another that it starts from; none does
        preset=PRESET,
        precision=where[0],
        device=where[1],  # type: ignore[arg-type]
        length=min(tuned.length or 128, open_encoder(model).longest),
        train_limit=tuned.train_limit or 0,
        workers=1,
        **_changes(tuned),
    )
    problem = plan_jobs(settings, model, [row.task], range(1))[0].problem
    named = replace(problem, task=replace(problem.task, name=row.name))
    return SuitePlan(partial(_same, named), named.identity, problem.plan.fit)


def _same(problem: Problem) -> Problem:
    return problem


def _check_own(row: SuiteTask, base: Path) -> CheckedTask:
    train, dev = ((base / name).absolute() for name in (row.train, row.dev))
    training = read_training(train, row.kind, Columns(row.text, row.pair, row.label))
    target = training.target
    if target.kind == "tags" and has_entities(target.labels):
        import_seqeval()
    for data in (training.data, read_matching(dev, target, training.columns)):
        if isinstance(data, Sentences):
            tag_indices(data, target.labels)
        elif target.kind == "score":
            parse_scores(data)
        else:
            class_indices(data, target.labels)
    return CheckedTask(row, _metric(row, own_metrics(target)), partial(_plan_own, row, train, dev))


def own_metrics(target: Target) -> tuple[str, ...]:
    """Return the metrics of a kind of labels that are percentages, the main one first."""
    if target.kind == "score":
        return "pearson", "spearman"
    entities = target.kind == "tags" and has_entities(target.labels)
    return (
        ("f1", "precision", "recall", "accuracy") if entities else ("accuracy", "macro_f1", "mcc")
    )


def _plan_own(
    row: SuiteTask, train: Path, dev: Path, tuned: TunedSettings, model: str, where: Where
) -> SuitePlan:
    """Return the plan of `electrify finetune` for the same files."""
    encoder = open_encoder(model)
    settings = Finetune(
        model=model,
        train=train,
        dev=dev,
        out=train.parent,  # not used: the suite has its own folders
        kind=row.kind,
        text=row.text,
        pair=row.pair,
        label=row.label,
        length=min(tuned.length or 256, encoder.longest),
        device=where[1],  # type: ignore[arg-type]
        fit=_fit(tuned, encoder, where),
    )
    limit = tuned.train_limit or 0
    identity = {"source": model, **finetune_identity(settings), "train_limit": limit}
    make = partial(_own_problem, settings, row.name, limit, identity)
    return SuitePlan(make, identity, settings.fit)


def _own_problem(settings: Finetune, name: str, limit: int, identity: dict[str, Any]) -> OwnProblem:
    requested = Columns(settings.text, settings.pair, settings.label)
    training = read_training(settings.train, settings.kind, requested)
    dev = read_matching(settings.dev, training.target, training.columns)
    data = first_rows(training.data, limit)
    known = name, _label(settings.fit, settings.length), identity
    return OwnProblem(settings, training.target, data, dev, settings.length, *known)


def _check_squad(row: SuiteTask, base: Path) -> CheckedTask:
    data = (base / row.data).absolute()
    files = find_files(data, row.version)
    train, _ = (read_questions(path, files.version) for path in (files.train, files.dev))
    plan = partial(_plan_squad, row, data, len(train))
    return CheckedTask(row, _metric(row, ("f1", "exact")), plan)


def _plan_squad(
    row: SuiteTask, data: Path, questions: int, tuned: TunedSettings, model: str, where: Where
) -> SuitePlan:
    """Return the plan of `electrify squad`; the seed is that of the run, not of the settings."""
    encoder = open_encoder(model)
    limit = tuned.train_limit or 0
    settings = Squad(
        model=model,
        data=data,
        out=data,  # not used: the suite has its own folders
        version=row.version,
        fit=_fit(tuned, encoder, where, Fit(epochs=2.0, weight_decay=0.01)),
        length=tuned.length or 512,
        train_share=min(1.0, limit / questions) if limit else 1.0,
        dev_limit=row.dev_limit,
        device=where[1],  # type: ignore[arg-type]
    )
    files = find_files(data, row.version)
    together = SPAN_HEADS[settings.head].batch_size
    label = _label(settings.fit, min(settings.length, encoder.longest), row.dev_limit)
    problem = SquadProblem(settings, files, together, row.name, label)
    identity = {"source": model, **squad_identity(problem)}
    make = partial(_same, replace(problem, identity=identity))
    return SuitePlan(make, identity, settings.fit)


def _check_blimp(row: SuiteTask, base: Path) -> CheckedTask:
    for name, path in find_paradigms(base / row.data).items():
        read_paradigm(name, path)
    return CheckedTask(row, "accuracy", None)


_CHECKS: dict[TaskKind, Callable[[SuiteTask, Path], CheckedTask]] = {
    "glue": _check_glue,
    "own": _check_own,
    "squad": _check_squad,
    "blimp": _check_blimp,
}
