"""One update of the weights from one global batch, in as many micro-batches as memory asks for."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from electrify.models.inputs import Totals
from electrify.training.optim import clip, set_rate

Sums = dict[str, Tensor]


class Update(NamedTuple):
    """What one update was."""

    loss: float
    norm: float
    """Of all gradients together, before they were clipped."""
    sums: Sums


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    micro_batches: Iterable[Any],
    totals: Totals,
    lr: float,
    most_norm: float,
    losses: Callable[..., tuple[Tensor, Sums]] | None = None,
) -> Update:
    """Add up the gradients of the micro-batches, clip them as one, and move the weights.

    Each micro-batch's loss is its share of the global batch's, so one of 128 rows and four of 32
    give the same gradients.
    """
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    sums: Sums = {}
    for micro_batch in micro_batches:
        loss, some = (losses or model)(micro_batch, totals)
        loss.backward()
        total += float(loss.detach())
        sums = {name: sums[name] + value if name in sums else value for name, value in some.items()}
    norm = clip(model.parameters(), most_norm)
    set_rate(optimizer, lr)
    optimizer.step()
    return Update(total, float(norm), sums)
