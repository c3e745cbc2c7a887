"""Fine-tune a model on one task: the training loop with the settings of fine-tuning.

Long runs save a checkpoint every 15 minutes and at the end, and resume after a kill. Once the
result is committed, the caller calls `remove_checkpoints`.
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
from torch import nn

from electrify.errors import UserError
from electrify.finetuning.batches import Shuffled, batches_by_length
from electrify.finetuning.devices import finetuning_precision
from electrify.finetuning.options import Fit
from electrify.models.export import in_evaluation
from electrify.models.inputs import batch_to_device
from electrify.recipes.ranges import RANGES, Range
from electrify.recipes.schema import Optimizer
from electrify.storage.commit import read_json, write_json
from electrify.training.checkpoint import Policy, Writer
from electrify.training.engine import Engine, autocast_to
from electrify.training.guard import Guard, GuardSettings
from electrify.training.layers import layer_scale
from electrify.training.loop import resume, train
from electrify.training.observer import MetricValues, StderrWarnings, warn
from electrify.training.optim import build_optimizer
from electrify.training.precision import MatmulPrecision
from electrify.training.saving import newest_checkpoint
from electrify.training.schedule import factor
from electrify.training.signals import Stop, watching
from electrify.training.training import Cadence, Stepper, Task, Training

SECONDS_BETWEEN_SAVES = 900.0
CHECKPOINTS = "checkpoints"
PROGRESS_REPORTS = 50
"""How often a fine-tuning run reports its loss."""


class FitResult(NamedTuple):
    """The outcome of a fine-tuning run."""

    steps: int
    seconds: float
    loss: float
    """The last reported loss; whether it is a mean or a sum depends on the model."""
    examples_per_second: float
    losses: Sequence[tuple[int, float]] = ()
    """The steps at which the loss was reported, and the mean loss up to each since the last."""


Collate = Callable[[NDArray[np.int64]], Any]
"""Converts indices of examples to a batch of tensors."""
OnProgress = Callable[[int, int, float], None]
"""Called with the step, the number of steps and the mean loss since the previous call."""


def no_progress(step: int, steps: int, loss: float) -> None:
    """Report nothing."""


def fit(
    model: nn.Module,
    lengths: Sequence[int],
    collate: Collate,
    settings: Fit,
    seed: int,
    folder: Path | None = None,
    device: str = "auto",
    on_progress: OnProgress = no_progress,
) -> FitResult:
    """Fine-tune a model in place.

    `model(batch, totals)` returns the loss of a collated batch and a dictionary of sums that
    contains "loss". Example i has `lengths[i]` tokens. Checkpoints are saved in `folder`, from
    which a killed run is resumed.
    """
    check_hyperparameters(settings)
    engine = Engine(finetuning_precision(settings.precision, device), device)
    if engine.choice.slow:
        _warn_once(engine.choice.reason)
    model.to(engine.device).train()
    shuffled = Shuffled(lengths, settings.batch_size, seed)
    steps = max(1, int(shuffled.per_epoch * settings.epochs))
    scale = layer_scale(model, settings.layer_decay, settings.layers)
    checkpoints = None if folder is None else folder / CHECKPOINTS
    observer = ProgressObserver(steps, on_progress, checkpoints)
    optimizer = Optimizer(
        kind=settings.optimizer,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        clip=settings.clip,
    )
    stepper = Stepper(
        model=model,
        wrapped=model,
        optimizer=build_optimizer(model, optimizer, scale),
        engine=engine,
        task=Task(
            shuffled,
            settings.batch_size,
            lambda batch: batch_to_device(collate(batch.examples), engine.device),
            lambda sums, batches: {"loss": float(sums["loss"]) / batches},
        ),
        clip=settings.clip,
        seed=seed,
    )
    run = Training(
        stepper,
        cadence=Cadence(
            steps,
            log=max(1, steps // PROGRESS_REPORTS),
            save_seconds=SECONDS_BETWEEN_SAVES,
            save_at=frozenset([steps]) if checkpoints else frozenset(),
        ),
        schedule=lambda step: (
            settings.lr * factor(settings.schedule, step, steps, steps * settings.warmup)
        ),
        guard=Guard(GuardSettings(on_spike="off"), scaled=engine.precision == "fp16"),
        stop=Stop(),
        observer=observer,
        writer=Writer(checkpoints, Policy(keep_last=1)) if checkpoints else None,
    )
    began = time.monotonic()
    with watching(run.stop):
        found = newest_checkpoint(engine, run.writer, observer)
        start = found.step if found else 0
        observer.on_rewind(start)
        resume(run, found)
        done = train(run, start)
    if done.why:
        raise KeyboardInterrupt
    seconds = time.monotonic() - began
    seen = (steps - start) * len(shuffled.lengths) / shuffled.per_epoch
    fitted = FitResult(steps, seconds, observer.last, seen / seconds, [*observer.losses.items()])
    if checkpoints:
        path = checkpoints / "fitted.json"
        if start == steps and path.is_file():  # the process was killed after the last step
            return FitResult(**read_json(path))
        checkpoints.mkdir(exist_ok=True)
        write_json(path, fitted._asdict())
    return fitted


class ProgressObserver(StderrWarnings):
    """Passes the step and the loss of a fine-tuning run to a callback, and collects the losses."""

    def __init__(
        self, steps: int, on_progress: OnProgress, checkpoints: Path | None = None
    ) -> None:
        self.steps, self.on_progress, self.last = steps, on_progress, float("nan")
        self.losses: dict[int, float] = {}
        self.file = checkpoints and checkpoints / "losses.json"
        if self.file and self.file.is_file():
            self.losses = dict(read_json(self.file))

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Report the mean loss since the previous call."""
        self.last = self.losses[step] = metrics["loss"]
        self.on_progress(step, self.steps, self.last)

    def on_save(self) -> None:
        """Save the losses beside the checkpoint, so that a resumed run has the complete curve."""
        if self.file:
            self.file.parent.mkdir(exist_ok=True)
            write_json(self.file, [*self.losses.items()])

    def on_rewind(self, step: int) -> None:
        """Discard the losses after the step of the checkpoint."""
        self.losses = {logged: loss for logged, loss in self.losses.items() if logged <= step}


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run whose result is committed."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def check_hyperparameters(settings: Fit) -> None:
    """Refuse invalid hyperparameters."""
    for name, (allowed, usual) in ALLOWED.items():
        if (value := getattr(settings, name)) not in allowed:
            raise UserError(
                f"--{name.replace('_', '-')} must be {allowed}",
                got=f"{value}",
                fix=f"use {usual}, for example",
            )


ALLOWED: dict[str, tuple[Range, str]] = {
    "lr": (Range(0, 1_000, above=True), "1e-4"),
    "epochs": (Range(0, 1_000_000, above=True), "3"),
    "batch_size": (RANGES["run.batch_size"], "32"),
    "layer_decay": (Range(0, 1), "0.8"),
    "weight_decay": (Range(0, 1_000), "0.01"),
    "warmup": (Range(0, 1, below=True), "0.1 to warm up over the first 10 % of training"),
    "clip": (RANGES["optimizer.clip"], "1"),
}
"""The allowed range of each hyperparameter, and a usual value."""


@cache
def _warn_once(text: str) -> None:
    """Warn only once, because the many runs of a results table would all repeat the warning."""
    warn(text)


@torch.no_grad()
def outputs(
    model: Any,
    lengths: Sequence[int],
    collate: Collate,
    batch_size: int = 64,
    precision: MatmulPrecision = "float32",
) -> list[NDArray[np.float32]]:
    """Return `model.logits` of every example, in order; batches have similar lengths.

    Matmuls run in `precision`, which is that of training; the logits are float32.
    """
    device = next(model.parameters()).device
    logits: list[Any] = [None] * len(lengths)
    with in_evaluation(model):
        for indices in batches_by_length(lengths, batch_size):
            batch = batch_to_device(collate(indices), device)
            with autocast_to(precision, device):
                logits_on_device = model.logits(batch)
            batch_logits = logits_on_device.float().cpu().numpy()
            for index, row in zip(indices, batch_logits, strict=True):
                logits[index] = row
    return logits
