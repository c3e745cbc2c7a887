"""One optimizer step, as the training loop does it."""

from electrify.finetuning.heads import Examples, Labelled
from electrify.training.update import Gradient, accumulate, apply_update


def update(model, optimizer, micro_batches, totals, lr, max_norm) -> Gradient:
    gradient = accumulate(model, optimizer, micro_batches, totals, max_norm)
    apply_update(optimizer, lr)
    return gradient


def examples_of(batch: Labelled) -> Examples:
    """Return the totals of a batch that is not split into micro-batches."""
    return Examples(float(batch.weights_B.sum()))
