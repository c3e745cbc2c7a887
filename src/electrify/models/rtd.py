"""Replaced token detection: a generator fills slots, a discriminator finds what is not original.

After google-research/electra run_pretraining.py. Every loss is a sum over the batch divided by the
total of the whole global batch, so micro-batches and processes add up exactly.
"""

# B batch, L length, N slots a row, M = B × N slots, V vocabulary, K bins

from typing import NamedTuple

import torch
from torch import Tensor, nn

from electrify.models import sampling
from electrify.models.inputs import Inputs, Totals, call
from electrify.models.mlm import EPSILON, predict

BINS = 500  # of the discriminator's probabilities, for the area under the curve


class Weights(NamedTuple):
    """How the two losses are added, and how the generator is sampled."""

    generator: float = 1.0
    discriminator: float = 50.0
    temperature: float = 1.0
    disallow_correct: bool = False


class Corrupted(NamedTuple):
    """What the discriminator sees, and what is true of it."""

    ids_BL: Tensor
    labels_BL: Tensor


class ReplacedTokenDetection(nn.Module):
    """A generator and a discriminator that are trained together."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module, weights: Weights) -> None:
        super().__init__()
        self.generator, self.discriminator, self.weights = generator, discriminator, weights

    def forward(
        self, inputs: Inputs, totals: Totals, noise_MV: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """This batch's share of the loss, and its sums for the metrics.

        `noise_MV` samples by Gumbel-max as the official code does; without it each slot is sampled
        by its uniform number.
        """
        prediction = predict(self.generator, inputs, totals)
        chances_MV = sampling.adjusted(
            prediction.chances_MV,
            self.weights.temperature,
            prediction.original_M,
            self.weights.disallow_correct,
        )
        if noise_MV is None:
            sampled_M = sampling.inverse_cdf(chances_MV, inputs.uniforms_BN.flatten())
        else:
            sampled_M = sampling.gumbel_max(chances_MV, noise_MV)
        corrupted = corrupt(inputs, sampled_M.view_as(inputs.positions_BN))
        logits_BL = replaced_logits(call(self.discriminator, corrupted.ids_BL, inputs).logits)
        real_BL = inputs.attention_BL.float()
        losses_BL = nn.functional.binary_cross_entropy_with_logits(
            logits_BL, corrupted.labels_BL.float(), reduction="none"
        )
        discriminator_loss = (losses_BL * real_BL).sum() / (totals.tokens + EPSILON)
        loss = (
            self.weights.generator * prediction.loss
            + self.weights.discriminator * discriminator_loss
        )
        sums = {
            "generator_loss": prediction.loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            **prediction.sums(),
            **detection_sums(logits_BL.detach(), corrupted.labels_BL, real_BL),
        }
        return loss, sums


@torch.no_grad()
def corrupt(inputs: Inputs, sampled_BN: Tensor) -> Corrupted:
    """The original ids with the sampled ones in the slots; a token sampled as it was is original.

    A place that several slots chose takes the floor of their mean, as officially; unused slots
    point at place 0, which is never written.
    """
    written_BL = torch.zeros_like(inputs.ids_BL)
    counts_BL = written_BL.scatter_add(1, inputs.positions_BN, torch.ones_like(sampled_BN))
    sums_BL = written_BL.scatter_add(1, inputs.positions_BN, sampled_BN)
    counts_BL[:, 0] = 0
    chosen_BL = counts_BL > 0
    means_BL = torch.div(sums_BL, counts_BL.clamp(min=1), rounding_mode="floor")
    ids_BL = torch.where(chosen_BL, means_BL, inputs.ids_BL)
    return Corrupted(ids_BL, (chosen_BL & (ids_BL != inputs.ids_BL)).long())


def replaced_logits(logits: Tensor) -> Tensor:
    """One number per token, in float32: how much more likely it is replaced than original."""
    logits = logits.float()
    if logits.ndim == 2:  # ElectraForPreTraining
        return logits
    return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]


@torch.no_grad()
def detection_sums(logits_BL: Tensor, labels_BL: Tensor, real_BL: Tensor) -> dict[str, Tensor]:
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


def metrics(sums: dict[str, Tensor], batches: int = 1) -> dict[str, float]:
    """Rates from the sums of some batches; losses are their mean."""
    number = {name: float(value) for name, value in sums.items() if value.ndim == 0}
    rates = {
        "generator_loss": number["generator_loss"] / batches,
        "generator_accuracy": _share(number["generator_correct"], number["slots"]),
    }
    if "tokens" not in number:
        return rates
    threshold, false_alarm_rate = threshold_at_rate(sums["replaced_bins"], sums["original_bins"])
    return rates | {
        "discriminator_loss": number["discriminator_loss"] / batches,
        "replaced_rate": _share(number["replaced"], number["tokens"]),
        "accuracy": _share(number["discriminator_correct"], number["tokens"]),
        "precision": _share(number["found"], number["said_replaced"]),
        "recall": _share(number["found"], number["replaced"]),
        "auc": area_under_curve(sums["replaced_bins"], sums["original_bins"]),
        "threshold": threshold,
        "false_alarm_rate": false_alarm_rate,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def threshold_at_rate(replaced_K: Tensor, original_K: Tensor) -> tuple[float, float]:
    """The probability from which on as many tokens are flagged as were replaced, to half a bin.

    With it comes the share of original tokens that are flagged.
    """
    flagged_K = (replaced_K + original_K).flip(0).cumsum(0).flip(0)  # from each bin upwards
    best = int((flagged_K - replaced_K.sum()).abs().argmin())
    alarms = _share(float(original_K[best:].sum()), float(original_K.sum()))
    return (best / BINS, alarms) if float(replaced_K.sum()) else (float("nan"), float("nan"))


def area_under_curve(replaced_K: Tensor, original_K: Tensor) -> float:
    """How often a replaced token is likelier than an original one, ties counting half."""
    replaced_K, original_K = replaced_K.double(), original_K.double()
    below_K = original_K.cumsum(0) - original_K
    pairs = float(replaced_K.sum() * original_K.sum())
    return _share(float((replaced_K * (below_K + original_K / 2)).sum()), pairs)
