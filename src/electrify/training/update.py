"""One update of the weights from one global batch, in as many micro-batches as memory asks for."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.objectives.objective import Sums
from electrify.training.clock import Spent
from electrify.training.engine import Engine, single_process
from electrify.training.optim import clip, set_rate


class Gradient(NamedTuple):
    """What a global batch says; the gradients themselves are in the parameters, clipped."""

    loss: float
    """Of the whole global batch."""
    norm: float
    """Of all gradients together, before they were clipped."""
    sums: Sums
    """Of this process's rows."""


def accumulate(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Any],
    totals: Any,
    max_norm: float,
    engine: Engine | None = None,
    before: Callable[[int], None] = lambda number: None,
    spent: Spent | None = None,
) -> Gradient:
    """Add up the gradients of the micro-batches, and clip them as one.

    Each micro-batch's loss is its share of the global batch's, whose `totals` the model gets, so
    one of 128 rows and four of 32 give the same gradients. `before` is called with the number of
    each micro-batch before its turn.
    """
    engine, spent = engine or single_process(), spent or Spent()
    optimizer.zero_grad(set_to_none=True)
    share = torch.zeros((), dtype=torch.float64)
    sums: Sums = {}
    for number, micro_batch in enumerate(micro_batches):
        before(number)
        with engine.accumulating(model, last=number == len(micro_batches) - 1):
            with engine.autocast(), spent.in_update("forward"):
                loss, some = model(micro_batch, totals)
            with spent.in_update("backward"):
                engine.backward(loss)
        share += loss.detach().double().cpu()
        sums = add(sums, some)
    with spent.in_update("optimizer"):
        engine.unscale(optimizer)
        norm = float(clip(model.parameters(), max_norm))
        return Gradient(float(engine.all_reduce(share)), norm, sums)


def apply_update(
    optimizer: torch.optim.Optimizer,
    lr: float,
    move: bool = True,
    engine: Engine | None = None,
    spent: Spent | None = None,
) -> None:
    """Move the weights along their gradients, unless told not to."""
    with (spent or Spent()).in_update("optimizer"):
        set_rate(optimizer, lr)
        (engine or single_process()).step(optimizer, move)


def add(sums: Sums, some: Sums) -> Sums:
    """Return two sets of sums as one, by name."""
    return {name: sums[name] + value if name in sums else value for name, value in some.items()}
