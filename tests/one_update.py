"""One update of the weights, as the loop makes it."""

from electrify.finetuning.heads import Examples, Labelled
from electrify.training.update import Gradient, accumulate, apply_update


def update(model, optimizer, micro_batches, totals, lr, max_norm) -> Gradient:
    gradient = accumulate(model, optimizer, micro_batches, totals, max_norm)
    apply_update(optimizer, lr)
    return gradient


def examples_of(batch: Labelled) -> Examples:
    """The total of a batch that is not split."""
    return Examples(float(batch.weights_B.sum()))
