"""The commands as Python functions, with keyword arguments and typed results.

A function takes the settings of its command as arguments; `--help` lists them. Importing this
module does not import torch; calling a function does if it needs it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from electrify.config import checked, named
from electrify.diagnosis.command import Doctor
from electrify.errors import UserError
from electrify.finetuning.blimp.results import BlimpResult
from electrify.finetuning.options import (
    Blimp,
    Classify,
    Embed,
    Finetune,
    Glue,
    Predict,
    Squad,
    Suite,
)
from electrify.finetuning.zeroshot.results import ZeroShotResult
from electrify.pipeline.adapt import Adapt, AdaptResult
from electrify.pipeline.command import TrainFromText, TrainResult
from electrify.planning import plan as plans
from electrify.publishing.options import ExportModel
from electrify.recipes.schema import Recipe, load, override
from electrify.reports.options import Report
from electrify.tokens.prepare import Prepare
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.tokens.vocabulary import MakeTokenizer
from electrify.training.options import Pretrain, ResumeRun

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def command(
    settings: Callable[_Arguments, Any], path: str, returns: type[_Result]
) -> Callable[_Arguments, _Result]:
    """Return a function that takes the fields of a settings class and runs its command."""

    @wraps(settings, assigned=("__doc__",), updated=())
    def run(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        result: _Result = named(path)(settings(*arguments, **keywords))
        return result

    run.__name__ = run.__qualname__ = path.rpartition(":")[2]
    # The type hints without the annotations for the command line.
    hints, signature = get_type_hints(settings), inspect.signature(settings)
    parameters = [p.replace(annotation=hints[n]) for n, p in signature.parameters.items()]
    run.__signature__ = inspect.Signature(parameters, return_annotation=returns)  # type: ignore[attr-defined]
    return run


def corpus(kind: str, *sources: str | Path, out: str | Path, **settings: Any) -> dict[str, Any]:
    """Turn raw text into documents and return the manifest; `electrify corpus` lists the kinds."""
    from electrify.corpora import corpus as commands

    settings_class: Any = commands.settings_type(kind)
    return commands.corpus(settings_class(sources=tuple(map(str, sources)), out=out, **settings))


tokenizer = command(MakeTokenizer, "electrify.tokens.vocabulary:make_tokenizer", LoadedTokenizer)
prepare = command(Prepare, "electrify.tokens.prepare:prepare", dict[str, Any])
export = command(ExportModel, "electrify.publishing.command:export", dict[str, Path])
glue = command(Glue, "electrify.finetuning.glue.command:glue", list[dict[str, Any]])
blimp = command(Blimp, "electrify.finetuning.blimp.command:blimp", BlimpResult)
squad = command(Squad, "electrify.finetuning.squad.command:squad", dict[str, Any])
finetune = command(Finetune, "electrify.finetuning.own.command:finetune", dict[str, Any])
predict = command(Predict, "electrify.finetuning.own.predict:predict", str)
suite = command(Suite, "electrify.finetuning.suite.command:suite", dict[str, Any])
embed = command(Embed, "electrify.finetuning.vectors.embed:embed", NDArray[np.float32])
classify = command(Classify, "electrify.finetuning.zeroshot.command:classify", ZeroShotResult)
report = command(Report, "electrify.reports.report:report", Path)
doctor = command(Doctor, "electrify.diagnosis.command:doctor", dict[str, Any])
adapt = command(Adapt, "electrify.pipeline.adapt:adapt", AdaptResult)
train = command(TrainFromText, "electrify.pipeline.command:train_from_text", TrainResult)


class Pretrained(NamedTuple):
    """The result of a pre-training run."""

    run: Path
    step: int
    finished: bool
    metrics: dict[str, float]
    """The latest validation metrics; empty if there are none."""


def pretrain(
    recipe: str | Path | Recipe | None = None,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    checkpoint_fn: Callable[[Path], None] | None = None,
    overrides: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Pretrained:
    """Pre-train a model on `data` in the folder `out`, or resume a run.

    `resume` is the folder of a run to resume instead, with its recipe, data and options;
    `more="1h"` or `steps=5000` then continue it beyond its planned steps.
    `settings` are options of the command (`budget="45m"`) and fields of the recipe. Fields of the
    recipe may be dotted in `overrides` (`{"optimizer.lr": 1e-3}`), nested
    (`optimizer={"lr": 1e-3}`) or, if only one section has a field of this name, bare (`steps=200`).
    `checkpoint_fn` is called in the background with the folder of every checkpoint. Ctrl-C saves a
    checkpoint and then raises KeyboardInterrupt.
    """
    from electrify.training import pretrain as commands
    from electrify.training.export_run import validation_metrics
    from electrify.training.folder import RunFolder
    from electrify.training.resume import resumed

    if resume is not None and recipe is None and out is None:
        run = resumed(Path(resume), None if data is None else Path(data))
        chosen, options = _overridden(ResumeRun, run.recipe, overrides, settings)
        command: Pretrain = replace(run, recipe=chosen["recipe"], **options)
    elif resume is None and recipe is not None and data is not None and out is not None:
        chosen, options = _overridden(Pretrain, recipe, overrides, settings)
        command = Pretrain(**chosen, data=Path(data), out=Path(out), **options)
    else:
        arguments = {"recipe": recipe, "data": data, "out": out, "resume": resume}
        given = [name for name, value in arguments.items() if value is not None]
        raise UserError(
            "pretrain needs a recipe, data and out, or resume without recipe and out",
            got=", ".join(given) or "none of them",
            fix='pretrain("tiny", data="shards", out="run") or pretrain(resume="run")',
        )
    if commands.pretrain(command, checkpoint_fn):
        raise KeyboardInterrupt
    folder = RunFolder(command.out)
    checkpoints = folder.saved() if folder.started else []
    if not checkpoints:  # stopped while the time budget was being measured
        return Pretrained(folder.path, 0, False, {})
    step = checkpoints[0].step
    metrics = validation_metrics(folder.path, step)
    return Pretrained(folder.path, step, step >= folder.steps, metrics)


def plan(
    recipe: str | Path | Recipe, *, overrides: Mapping[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """Estimate the parameters, FLOPs, memory, disk space and time of a recipe."""
    chosen, options = _overridden(plans.Plan, recipe, overrides, settings)
    return plans.plan(plans.Plan(**chosen, **options))


def _overridden(
    kind: type[Any],
    recipe: str | Path | Recipe,
    overrides: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the recipe with its overrides and its name, and the options of the command itself."""
    names = [field.name for field in fields(kind) if field.name not in ("recipe", "name")]
    hints = get_type_hints(kind)
    options = {n: checked(hints[n], v, n) for n, v in settings.items() if n in names}
    changes = {**(overrides or {}), **{n: v for n, v in settings.items() if n not in names}}
    base = recipe if isinstance(recipe, Recipe) else load(str(recipe))
    name = "recipe" if isinstance(recipe, Recipe) else str(recipe)
    return {"recipe": override(base, changes, names), "name": name}, options
