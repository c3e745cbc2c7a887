"""Evaluate a model on the validation set."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn

from electrify.models.export import in_evaluation
from electrify.objectives.objective import Sums
from electrify.training.engine import Engine
from electrify.training.training import Stepper, Validation, cut_rows
from electrify.training.update import add


@torch.no_grad()
def evaluate(
    model: nn.Module,
    engine: Engine,
    micro_batches: Iterable[tuple[Any, Any]],
    metrics: Callable[[Sums, int], dict[str, float]],
    batches: int,
) -> dict[str, float]:
    """Return the metrics over pairs of a micro-batch and the totals of its global batch."""
    sums: Sums = {}
    with in_evaluation(model):
        for micro_batch, totals in micro_batches:
            with engine.autocast():
                _, batch_sums = model(micro_batch, totals)
            sums = add(sums, batch_sums)
    return metrics(engine.all_reduce_sums(sums), batches) if sums else {}


def validate(
    stepper: Stepper, validation: Validation, stopped: Callable[[], object], most: int = 0
) -> dict[str, float]:
    """Return the metrics on the validation set, or on its first `most` micro-batches if given."""
    return evaluate(
        stepper.model,
        stepper.engine,
        islice(_micro_batches(stepper, validation, stopped), most or None),
        validation.task.metrics,
        validation.batches,
    )


def warm_up(stepper: Stepper, validation: Validation | None) -> None:
    """Compute a gradient and evaluate a micro-batch, for which the networks are compiled.

    No weight and no optimizer state changes. Without it, the first step and the first evaluation
    would look minutes long to everything that measures time.
    """
    scale = stepper.engine.scale_state()
    stepper.accumulate(0, stepper.task.batches[0])
    stepper.apply(lr=0.0, move=False)
    stepper.engine.load_scale(scale)
    if validation is not None:
        validate(stepper, validation, lambda: False, most=1)


def _micro_batches(
    stepper: Stepper, validation: Validation, stopped: Callable[[], object]
) -> Iterator[tuple[Any, Any]]:
    """Yield this rank's micro-batches with the totals of their batch, until asked to stop."""
    task, engine = validation.task, stepper.engine
    rows = range(len(engine.share(task.batch_size)))
    for number in range(validation.batches):
        if stopped():
            return
        batch = task.batches[number]
        totals = engine.sum_totals(batch.totals())
        for start, stop in cut_rows(rows, stepper.micro_batch):
            yield task.tensors(batch.rows(start, stop)), totals
