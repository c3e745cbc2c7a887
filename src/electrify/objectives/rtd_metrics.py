"""How well a detector tells replaced from original tokens: counts, histograms, AUC, threshold."""

# B batch, L length, K bins

import torch
from torch import Tensor

from electrify.objectives.objective import Sums, fraction

BINS = 500  # of the discriminator's probabilities, for the area under the curve


@torch.no_grad()
def detection_sums(logits_BL: Tensor, labels_BL: Tensor, real_BL: Tensor) -> Sums:
    """Counts over real tokens, and histograms of probability from which the AUC is computed."""
    real = real_BL > 0
    said, true = (logits_BL > 0) & real, (labels_BL > 0) & real
    # A NaN as an integer is anything; `bincount` takes no negative number.
    bins_BL = (torch.sigmoid(logits_BL) * BINS).long().clamp(min=0, max=BINS - 1)
    return {
        "tokens": real.sum(),
        "replaced": true.sum(),
        "found": (said & true).sum(),
        "said_replaced": said.sum(),
        "discriminator_correct": ((said == true) & real).sum(),
        "replaced_bins": torch.bincount(bins_BL[true], minlength=BINS),
        "original_bins": torch.bincount(bins_BL[real & ~true], minlength=BINS),
    }


def detection_metrics(sums: Sums) -> dict[str, float]:
    """Return rates from the sums of some batches."""
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
    """The probability from which on as many tokens are flagged as were replaced, to half a bin.

    With it comes the share of original tokens that are flagged.
    """
    flagged_K = (replaced_K + original_K).flip(0).cumsum(0).flip(0)  # from each bin upwards
    best = int((flagged_K - replaced_K.sum()).abs().argmin())
    alarms = fraction(float(original_K[best:].sum()), float(original_K.sum()))
    return (best / BINS, alarms) if float(replaced_K.sum()) else (float("nan"), float("nan"))


def area_under_curve(replaced_K: Tensor, original_K: Tensor) -> float:
    """How often a replaced token is likelier than an original one, ties counting half."""
    replaced_K, original_K = replaced_K.double(), original_K.double()
    below_K = original_K.cumsum(0) - original_K
    pairs = float(replaced_K.sum() * original_K.sum())
    return fraction(float((replaced_K * (below_K + original_K / 2)).sum()), pairs)
