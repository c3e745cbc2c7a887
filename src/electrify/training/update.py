"""Compute one gradient from the micro-batches of a global batch, and apply one update."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.objectives.objective import Sums
from electrify.training.clock import Spent
from electrify.training.engine import NO_REQUESTS, Engine, Requests, single_process
from electrify.training.optim import clip, set_learning_rate


class Gradient(NamedTuple):
    """The loss and gradient norm of a global batch; the clipped gradients are in the parameters."""

    loss: float
    """Loss of the global batch."""
    norm: float
    """Joint norm of all gradients before clipping."""
    sums: Sums
    """Sums over this rank's rows."""
    requests: Requests = NO_REQUESTS
    """What at least one rank asked for."""


def accumulate(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Any],
    totals: Any,
    max_norm: float,
    engine: Engine | None = None,
    before: Callable[[int], None] = lambda number: None,
    spent: Spent | None = None,
    requests: Requests = NO_REQUESTS,
) -> Gradient:
    """Accumulate the gradients of the micro-batches and clip their joint norm.

    The model divides each loss by the `totals` of the global batch, so one micro-batch of 128 rows
    and four of 32 give the same gradients. `before` is called with the number of each micro-batch
    before its forward pass. The host waits for the device once, for the loss and the norm; the
    requests of all ranks come with them.
    """
    engine, spent = engine or single_process(), spent or Spent()
    optimizer.zero_grad(set_to_none=True)
    local_loss = torch.zeros((), dtype=torch.float64, device=engine.device)
    sums: Sums = {}
    for number, micro_batch in enumerate(micro_batches):
        before(number)
        with engine.accumulating(model, last=number == len(micro_batches) - 1):
            with engine.autocast(), spent.in_update("forward"):
                loss, micro_batch_sums = model(micro_batch, totals)
            with spent.in_update("backward"):
                engine.backward(loss)
        local_loss += loss.detach()
        sums = add(sums, micro_batch_sums)
    with spent.in_update("optimizer"):
        engine.unscale(optimizer)
        device_norm = clip(model.parameters(), max_norm)
        loss, norm, requested = engine.exchange(local_loss, device_norm, requests)
        return Gradient(loss, norm, sums, requested)


def apply_update(
    optimizer: torch.optim.Optimizer,
    lr: float,
    move: bool = True,
    engine: Engine | None = None,
    spent: Spent | None = None,
) -> None:
    """Update the weights from their gradients if `move`."""
    with (spent or Spent()).in_update("optimizer"):
        set_learning_rate(optimizer, lr)
        (engine or single_process()).step(optimizer, move)


def add(sums: Sums, more: Sums) -> Sums:
    """Return the sums of two sets of sums, by name."""
    return {name: sums[name] + value if name in sums else value for name, value in more.items()}
