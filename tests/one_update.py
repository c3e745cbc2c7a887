"""One update of the weights, as the loop makes it."""

from electrify.training.update import Gradient, accumulate, apply_update


def update(model, optimizer, micro_batches, totals, lr, max_norm) -> Gradient:
    gradient = accumulate(model, optimizer, micro_batches, totals, max_norm)
    apply_update(optimizer, lr)
    return gradient
