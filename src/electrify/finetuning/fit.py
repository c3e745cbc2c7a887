"""One model fitted to one task: the training loop with the settings of fine-tuning.

A long fit saves by the clock and at its end, and goes on after a kill; whoever has committed its
result calls `forget`.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.finetuning.batches import Numbers, Shuffled, by_length
from electrify.finetuning.options import Fit
from electrify.models.export import in_evaluation
from electrify.recipes.schema import Optimizer
from electrify.storage.commit import read_json, write_json
from electrify.training.checkpoint import Policy, Writer
from electrify.training.engine import Engine
from electrify.training.guard import Guard, GuardSettings
from electrify.training.layers import layer_scale
from electrify.training.loop import resume, train
from electrify.training.observer import MetricValues, StderrWarnings, warn
from electrify.training.optim import build_optimizer
from electrify.training.saving import newest_checkpoint
from electrify.training.schedule import factor
from electrify.training.signals import Stop, watching
from electrify.training.training import Cadence, Stepper, Task, Training

SECONDS_BETWEEN_SAVES = 900.0
CHECKPOINTS = "checkpoints"
LINES = 50
"""How often the loss is told during a fit."""


class Fitted(NamedTuple):
    """What a fit came to."""

    steps: int
    seconds: float
    loss: float
    """Of the last line told; what it is a mean or a sum of is the model's affair."""
    examples_per_second: float


Collate = Callable[[NDArray[np.int64]], Any]
"""From the numbers of some examples to the tensors a model takes."""
OnProgress = Callable[[int, int, float], None]
"""Takes the step, of how many, and the mean loss since it was called before."""


def silent(step: int, steps: int, loss: float) -> None:
    """Report nothing."""


def fit(
    model: nn.Module,
    lengths: Sequence[int],
    collate: Collate,
    settings: Fit,
    seed: int,
    folder: Path | None = None,
    device: str = "auto",
    on_progress: OnProgress = silent,
) -> Fitted:
    """Fit a model, in place.

    `model(batch, totals)` gives the loss of what `collate` made, and sums with a "loss" in it.
    Example number i has `lengths[i]` tokens. In `folder` a long fit saves itself and goes on.
    """
    check_fit(settings)
    engine = Engine(settings.precision, device)
    if settings.precision != "float32" and engine.choice.slow:
        _warn_once(engine.choice.reason)
    model.to(engine.device).train()
    shuffled = Shuffled(lengths, settings.batch_size, seed)
    steps = max(1, int(shuffled.per_epoch * settings.epochs))
    scale = layer_scale(model, settings.layer_decay, settings.layers)
    losses = Losses(steps, on_progress)
    stepper = Stepper(
        model=model,
        wrapped=model,
        optimizer=build_optimizer(model, _optimizer(settings), scale),
        engine=engine,
        task=_task(shuffled, collate, engine.device),
        clip=settings.clip,
        seed=seed,
    )
    checkpoints = None if folder is None else folder / CHECKPOINTS
    run = Training(
        stepper,
        cadence=Cadence(
            steps,
            log=max(1, steps // LINES),
            save_seconds=SECONDS_BETWEEN_SAVES,
            save_at=frozenset([steps]) if checkpoints else frozenset(),
        ),
        schedule=lambda step: (
            settings.lr * factor(settings.schedule, step, steps, steps * settings.warmup)
        ),
        guard=Guard(GuardSettings(on_spike="off"), scaled=settings.precision == "fp16"),
        stop=Stop(),
        observer=losses,
        writer=Writer(checkpoints, Policy(keep_last=1)) if checkpoints else None,
    )
    begin = time.monotonic()
    with watching(run.stop):
        found = newest_checkpoint(engine, run.writer, losses)
        start = found.step if found else 0
        resume(run, found)
        done = train(run, start)
    if done.why:
        raise KeyboardInterrupt
    seconds = time.monotonic() - begin
    seen = (steps - start) * len(shuffled.lengths) / shuffled.per_epoch
    fitted = Fitted(steps, seconds, losses.last, seen / seconds)
    if checkpoints is None:
        return fitted
    about = checkpoints / "fitted.json"
    if start == steps and about.is_file():  # killed after its last step
        return Fitted(**read_json(about))
    checkpoints.mkdir(exist_ok=True)
    write_json(about, fitted._asdict())
    return fitted


class Losses(StderrWarnings):
    """Passes on how far a fine-tuning run is, and its loss."""

    def __init__(self, steps: int, on_progress: Callable[[int, int, float], None]) -> None:
        self.steps, self.on_progress, self.last = steps, on_progress, float("nan")

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Take the mean loss since the last line."""
        self.last = metrics["loss"]
        self.on_progress(step, self.steps, self.last)


def forget(folder: Path) -> None:
    """Remove the checkpoints of a fit whose result is committed."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def check_fit(settings: Fit) -> None:
    """Refuse settings that cannot be."""
    for name, least in (("lr", 0.0), ("epochs", 0.0), ("batch_size", 0)):
        if not getattr(settings, name) > least:
            got = f"{getattr(settings, name)}"
            fix = f"give more than {least}"
            raise UserError(f"--{name.replace('_', '-')} is out of range", got=got, fix=fix)
    if not 0 <= settings.warmup < 1:
        raise UserError("--warmup is no share", got=f"{settings.warmup}", fix="give 0.1")


@cache
def _warn_once(text: str) -> None:
    """A table of scores is made of many runs, which all have the same to say."""
    warn(text)


def _optimizer(settings: Fit) -> Optimizer:
    return Optimizer(
        kind=settings.optimizer,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
    )


def _task(shuffled: Shuffled, collate: Collate, device: torch.device) -> Task:
    def metrics(sums: dict[str, Tensor], batches: int) -> dict[str, float]:
        return {"loss": float(sums["loss"]) / batches}

    def tensors(batch: Numbers) -> Any:
        return moved(collate(batch.examples), device)

    return Task(shuffled, shuffled.batch_size, tensors, metrics)


def moved(batch: Any, device: torch.device) -> Any:
    """A named tuple of tensors, on a device."""
    return type(batch)._make(tensor.to(device, non_blocking=True) for tensor in batch)


@torch.no_grad()
def outputs(
    model: Any, lengths: Sequence[int], collate: Collate, batch_size: int = 64
) -> list[NDArray[np.float32]]:
    """`model.logits` of every example, in their order; batches are of like length."""
    device = next(model.parameters()).device
    found: list[Any] = [None] * len(lengths)
    with in_evaluation(model):
        for numbers in by_length(lengths, batch_size):
            logits = model.logits(moved(collate(numbers), device)).float().cpu().numpy()
            for number, row in zip(numbers, logits, strict=True):
                found[number] = row
    return found
