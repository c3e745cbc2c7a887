"""A training in one place: what turns batches into updates, and everything around it."""

# B rows of the global batch

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.batches.keyed_random import key_of
from electrify.objectives.objective import Sums
from electrify.training.checkpoint import Writer
from electrify.training.clock import Spent
from electrify.training.engine import Engine
from electrify.training.guard import Guard
from electrify.training.observer import Observer
from electrify.training.signals import Stop
from electrify.training.update import Gradient, accumulate, apply_update


class Task(NamedTuple):
    """What is learned from: batches by number, and what a model makes of them."""

    batches: Any
    """`batches[k]` is global batch k, with `.rows(a, b)` and `.totals()`."""
    batch_size: int
    tensors: Callable[[Any], Any]
    """Turns some rows into what the model takes."""
    metrics: Callable[[Sums, int], dict[str, float]]


class Validation(NamedTuple):
    """What a model is evaluated on: always the same batches."""

    task: Task
    batches: int
    """How many."""


class Cadence(NamedTuple):
    """How often, in steps; 0 is never."""

    steps: int
    log: int
    evaluate: int = 0
    save: int = 0
    save_seconds: float = 0.0
    """Of wall clock since the last save."""
    save_at: frozenset[int] = frozenset()
    """Steps to save at besides."""


@dataclass
class Stepper:
    """Turns a batch into a gradient, and a gradient into an update."""

    model: nn.Module
    """As it is saved."""
    wrapped: nn.Module
    """The same, as it is called: its gradients are summed over ranks."""
    optimizer: torch.optim.Optimizer
    engine: Engine
    task: Task
    clip: float
    seed: int
    micro_batch: int = 0
    spent: Spent = field(default_factory=Spent)

    def accumulate(self, step: int, batch: Any) -> Gradient:
        """Compute the gradient of a global batch."""
        cuts = cut_rows(self.engine.rows(self.task.batch_size), self.micro_batch)
        self.spent.begin_update()
        return accumulate(
            self.wrapped,
            self.optimizer,
            [self.task.tensors(batch.rows(start, stop)) for start, stop in cuts],
            batch.totals(),
            self.clip,
            self.engine,
            before=lambda number: seed_dropout(self.seed, step, cuts[number][0]),
            spent=self.spent,
        )

    def apply(self, lr: float, move: bool) -> None:
        """Move the weights, unless told not to."""
        apply_update(self.optimizer, lr, move, self.engine, self.spent)


@dataclass
class Training:
    """Everything the loop needs, complete from the beginning."""

    stepper: Stepper
    cadence: Cadence
    schedule: Callable[[int], float]
    """The learning rate of every step."""
    guard: Guard
    stop: Stop
    observer: Observer
    writer: Writer | None = None
    """Of checkpoints; None in ranks that do not write."""
    validation: Validation | None = None
    workers: int = 1
    """Threads that make batches ahead."""
    stop_if_unsaved: bool = False
    evaluated: int = 0
    """The last step whose validation metrics were logged."""
    sums: Sums = field(default_factory=dict)
    """Since the last log line."""
    summed: int = 0
    """Updates in `sums`."""


def cut_rows(rows: range, micro_batch: int) -> list[tuple[int, int]]:
    """Return where each micro-batch starts and stops; 0 is all rows at once."""
    size = micro_batch or len(rows)
    return [(i, min(i + size, rows.stop)) for i in range(rows.start, rows.stop, size)]


def seed_dropout(seed: int, step: int, row: int) -> None:
    """Make dropout a function of the seed, the step and the first row of the micro-batch."""
    torch.manual_seed(int(key_of(seed, f"dropout {row}", step)) >> 1)
