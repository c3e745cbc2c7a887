"""Metrics of detecting replaced tokens: counts, histograms, AUC and threshold."""

# B batch, L length, K bins

import torch
from torch import Tensor

from electrify.objectives.objective import Sums, fraction

BINS = 500  # for histograms of the discriminator's probabilities


@torch.no_grad()
def detection_sums(logits_BL: Tensor, labels_BL: Tensor, real_BL: Tensor) -> Sums:
    """Return counts over real tokens, and the probability histograms for the AUC."""
    real = real_BL > 0
    predicted, true = (logits_BL > 0) & real, (labels_BL > 0) & real
    # NaN converts to an arbitrary integer. `bincount` would make the host wait for a GPU.
    bins_BL = (torch.sigmoid(logits_BL) * BINS).long().clamp(min=0, max=BINS - 1)
    bins_2K = torch.zeros(2 * BINS, dtype=torch.long, device=logits_BL.device)
    bins_2K.scatter_add_(0, (bins_BL + BINS * true).flatten(), real.long().flatten())
    return {
        "tokens": real.sum(),
        "replaced": true.sum(),
        "found": (predicted & true).sum(),
        "said_replaced": predicted.sum(),
        "discriminator_correct": ((predicted == true) & real).sum(),
        "replaced_bins": bins_2K[BINS:],
        "original_bins": bins_2K[:BINS],
    }


def detection_metrics(sums: Sums) -> dict[str, float]:
    """Return rates from the sums over a number of batches."""
    number = {name: float(value) for name, value in sums.items() if value.ndim == 0}
    threshold, false_alarm_rate = threshold_at_rate(sums["replaced_bins"], sums["original_bins"])
    return {
        "replaced_rate": fraction(number["replaced"], number["tokens"]),
        "accuracy": fraction(number["discriminator_correct"], number["tokens"]),
        "precision": fraction(number["found"], number["said_replaced"]),
        "recall": fraction(number["found"], number["replaced"]),
        "auc": area_under_curve(sums["replaced_bins"], sums["original_bins"]),
        "threshold": threshold,
        "false_alarm_rate": false_alarm_rate,
    }


def threshold_at_rate(replaced_K: Tensor, original_K: Tensor) -> tuple[float, float]:
    """Return the threshold that flags as many tokens as were replaced, and its false-alarm rate.

    The threshold is accurate to half a bin.
    """
    flagged_K = (replaced_K + original_K).flip(0).cumsum(0).flip(0)  # at or above each bin
    best = int((flagged_K - replaced_K.sum()).abs().argmin())
    alarms = fraction(float(original_K[best:].sum()), float(original_K.sum()))
    return (best / BINS, alarms) if float(replaced_K.sum()) else (float("nan"), float("nan"))


def area_under_curve(replaced_K: Tensor, original_K: Tensor) -> float:
    """Return how often a replaced token scores higher than an original one; ties count half."""
    replaced_K, original_K = replaced_K.double(), original_K.double()
    below_K = original_K.cumsum(0) - original_K
    pairs = float(replaced_K.sum() * original_K.sum())
    return fraction(float((replaced_K * (below_K + original_K / 2)).sum()), pairs)
