"""One update of the weights from one global batch, in as many micro-batches as memory asks for."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.training.clock import Spent
from electrify.training.engine import Engine, alone
from electrify.training.optim import clip, set_rate

Sums = dict[str, Tensor]
May = Callable[[float, float], bool]
"""Whether the weights may move, given the loss and the norm of the gradients."""


class Update(NamedTuple):
    """What one update was."""

    loss: float
    """Of the whole global batch."""
    norm: float
    """Of all gradients together, before they were clipped."""
    sums: Sums
    """Of this process's rows."""
    moved: bool


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Any],
    totals: Any,
    lr: float,
    most_norm: float,
    losses: Callable[..., tuple[Tensor, Sums]] | None = None,
    engine: Engine | None = None,
    may_move: May = lambda loss, norm: True,
    before: Callable[[int], None] = lambda number: None,
    spent: Spent | None = None,
) -> Update:
    """Add up the gradients of the micro-batches, clip them as one, and move the weights.

    Each micro-batch's loss is its share of the global batch's, whose `totals` the model gets, so
    one of 128 rows and four of 32 give the same gradients. `before` is told the number of each
    micro-batch before its turn.
    """
    engine, on = engine or alone(), spent.on if spent else lambda what: nullcontext()
    optimizer.zero_grad(set_to_none=True)
    share = torch.zeros((), dtype=torch.float64)
    sums: Sums = {}
    for number, micro_batch in enumerate(micro_batches):
        before(number)
        with engine.adding(model, last=number == len(micro_batches) - 1):
            with engine.autocast(), on("forward"):
                loss, some = (losses or model)(micro_batch, totals)
            with on("backward"):
                engine.backward(loss)
        share += loss.detach().double().cpu()
        sums = add(sums, some)
    with on("optimizer"):
        engine.true_gradients(optimizer)
        norm = float(clip(model.parameters(), most_norm))
        total = float(engine.total(share))
        moved = may_move(total, norm)
        set_rate(optimizer, lr)
        engine.step(optimizer, moved)
    return Update(total, norm, sums, moved)


def add(sums: Sums, some: Sums) -> Sums:
    """Two sets of sums as one, by name."""
    return {name: sums[name] + value if name in sums else value for name, value in some.items()}
