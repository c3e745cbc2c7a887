"""The objects that the training loop works on: the stepper, its task, and the run around it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.batches.keyed_random import key_of
from electrify.objectives.objective import Sums
from electrify.training.checkpoint import Writer
from electrify.training.clock import Spent
from electrify.training.engine import NO_REQUESTS, Engine, Requests
from electrify.training.guard import Guard
from electrify.training.observer import Observer
from electrify.training.signals import Stop
from electrify.training.update import Gradient, accumulate, apply_update


class Task(NamedTuple):
    """Batches by number, and how they become tensors and metrics."""

    batches: Any
    """`batches[k]` has this rank's rows of global batch k, `.rows(a, b)` and their `.totals()`."""
    batch_size: int
    tensors: Callable[[Any], Any]
    """Turns rows of a batch into the tensors that the model takes."""
    metrics: Callable[[Sums, int], dict[str, float]]
    """Turns sums and the number of batches into metrics."""
    size_at: Callable[[int], int] | None = None
    """Maps a step to the size of its global batch; None if all have `batch_size`."""

    def rows_at(self, step: int) -> int:
        """Return the number of rows of a global batch."""
        return self.size_at(step) if self.size_at else self.batch_size


GENERAL = "general_"  # begins the names of validation metrics on general text


class Validation(NamedTuple):
    """The batches that a model is evaluated on, always the same ones."""

    task: Task
    batches: int
    """Number of batches."""
    baselines: Callable[[], dict[str, float]] = dict
    """Returns what to compare the metrics with; it does not depend on the model."""


class Cadence(NamedTuple):
    """Intervals in steps; 0 means never."""

    steps: int
    log: int
    evaluate: int = 0
    save: int = 0
    save_seconds: float = 0.0
    """Most seconds between two saves; 0 means no limit."""
    save_at: frozenset[int] = frozenset()
    """Additional steps to save at."""
    ends: frozenset[int] = frozenset()
    """Former last steps of a run that was extended; like the last one, they are always due."""

    def due(self, step: int, every: int) -> bool:
        """Return whether a step is a multiple of `every`, or an end; never if `every` is 0."""
        return bool(every) and (step % every == 0 or step == self.steps or step in self.ends)


@dataclass
class Progress:
    """How far training is: a re-plan changes the function, for everyone who has the object."""

    planned: Callable[[float], float] | None = None
    """Maps a step to the fraction of the planned steps before it; None while steps are measured,
    when schedules are not followed."""

    def passes(self, fractions: Collection[float], step: int) -> bool:
        """Return whether one of some fractions of the steps is reached at a step."""
        if self.planned is None or not fractions:
            return False
        before, now = self.planned(step - 1), self.planned(step)
        return any(before < fraction <= now for fraction in fractions)


@dataclass
class Stepper:
    """Turns a batch into a gradient, and a gradient into an update."""

    model: nn.Module
    """The model without a wrapper, as it is saved."""
    wrapped: nn.Module
    """The model as it is called, wrapped so that gradients are summed over ranks."""
    optimizer: torch.optim.Optimizer
    engine: Engine
    task: Task
    clip: float
    seed: int
    micro_batch: int = 0
    spent: Spent = field(default_factory=Spent)
    progress: Progress = field(default_factory=Progress)
    begin: Callable[[float], None] = lambda done: None
    """Called with the progress before the gradient of a step is computed."""

    def accumulate(self, step: int, batch: Any, requests: Requests = NO_REQUESTS) -> Gradient:
        """Compute the gradient of a global batch."""
        if self.progress.planned is not None:
            self.begin(self.progress.planned(step))
        rows = self.engine.rows(self.task.rows_at(step))
        cuts = cut_rows(range(len(rows)), self.micro_batch)
        self.spent.begin_update()
        return accumulate(
            self.wrapped,
            self.optimizer,
            [self.task.tensors(batch.rows(start, stop)) for start, stop in cuts],
            self.engine.sum_totals(batch.totals()),
            self.clip,
            self.engine,
            before=lambda number: seed_dropout(self.seed, step, rows[cuts[number][0]]),
            spent=self.spent,
            requests=requests,
        )

    def apply(self, lr: float, move: bool) -> None:
        """Update the weights if `move`."""
        apply_update(self.optimizer, lr, move, self.engine, self.spent)


@dataclass
class Training:
    """Everything that the training loop needs."""

    stepper: Stepper
    cadence: Cadence
    schedule: Callable[[int], float]
    """Maps a step to its learning rate."""
    guard: Guard
    stop: Stop
    observer: Observer
    writer: Writer | None = None
    """The writer of checkpoints; None on ranks that do not write."""
    validation: Validation | None = None
    general: Validation | None = None
    """The validation set of general text, on which forgetting is measured."""
    workers: int = 1
    """Number of threads that prepare batches in advance."""
    stop_if_unsaved: bool = False
    """Whether a checkpoint that cannot be written stops the run."""
    replan: Callable[[int], bool] = lambda step: False
    """Changes the cadence and the schedule if the speed of a run with a time budget has changed;
    called on every rank after each log, returns whether it did."""
    evaluated: int = -1
    """The last step whose validation metrics were logged; -1 if there is none."""
    sums: Sums = field(default_factory=dict)
    """Sums of the updates since the last log."""
    summed: int = 0
    """Number of updates in `sums`."""


def cut_rows(rows: range, micro_batch: int) -> list[tuple[int, int]]:
    """Return the start and stop row of each micro-batch; a size of 0 means all rows at once."""
    size = micro_batch or len(rows)
    return [(i, min(i + size, rows.stop)) for i in range(rows.start, rows.stop, size)]


def seed_dropout(seed: int, step: int, row: int) -> None:
    """Make dropout a function of the seed, the step and the first row of the micro-batch."""
    torch.manual_seed(int(key_of(seed, f"dropout {row}", step)) >> 1)
