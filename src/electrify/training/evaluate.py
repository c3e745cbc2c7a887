"""How good a model is on text it was not trained on: always the same batches."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from electrify.models.export import in_evaluation
from electrify.training.engine import Engine
from electrify.training.update import Sums, add


@torch.no_grad()
def evaluate(
    model: nn.Module,
    engine: Engine,
    micro_batches: Iterable[tuple[Any, Any]],
    metrics: Callable[[Sums, int], dict[str, float]],
    batches: int,
) -> dict[str, float]:
    """Metrics over pairs of a micro-batch and the totals of its global batch; none of none."""
    sums: Sums = {}
    with in_evaluation(model):
        for micro_batch, totals in micro_batches:
            with engine.autocast():
                _, some = model(micro_batch, totals)
            sums = add(sums, some)
    return metrics(engine.totals(sums), batches) if sums else {}
