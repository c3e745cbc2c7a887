"""Replaced token detection: a generator replaces masked tokens, a discriminator detects them.

Follows run_pretraining.py of google-research/electra. Every loss is a sum over the batch divided by
the total of the global batch, so micro-batches and processes add up exactly.
"""

# B batch, L length, N slots per row, M = B × N slots, V vocabulary

from collections.abc import Mapping
from math import nan
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch, Totals
from electrify.models.initialise import set_bias_from_rate
from electrify.models.inputs import call
from electrify.models.pair import Vocabulary, build_pair
from electrify.models.sharing import broken_ties
from electrify.objectives import rtd_bands, sampling
from electrify.objectives.bands import (
    MASKED_LM_HINT,
    Detection,
    Metrics,
    Reference,
    Sizes,
    frequency_band,
    guessing_levels,
)
from electrify.objectives.masked_lm import EPSILON, Sample, predict_slots
from electrify.objectives.objective import Metric, Objective, Role, Sums, fraction
from electrify.objectives.rtd_metrics import (
    detection_curves,
    detection_metrics,
    detection_sums,
    observed_rates,
)
from electrify.recipes.schedules import Schedules, value_at
from electrify.recipes.schema import Recipe

DETECTION = ("threshold", "replaced_rate", "false_alarm_rate")
"""What `inspect` needs to know about a discriminator; stored in its config."""


class Weights(NamedTuple):
    """Loss weights, and how tokens are sampled from the generator."""

    generator: float = 1.0
    discriminator: float = 50.0
    temperature: float = 1.0
    disallow_correct: bool = False


SCHEDULED = {
    "generator": "generator_weight",
    "discriminator": "discriminator_weight",
    "temperature": "temperature",
}
"""Which schedule of a recipe changes which of the weights."""


class Corrupted(NamedTuple):
    """The discriminator's input and its labels."""

    ids_BL: Tensor
    labels_BL: Tensor


class ReplacedTokenDetection(Objective):
    """A generator and a discriminator that are trained together."""

    roles: ClassVar[Mapping[str, Role]] = {
        "discriminator": Role(
            "predicts for every token whether it is original or was replaced", every_token=True
        ),
        "generator": Role(
            "a masked language model, which proposed the replaced tokens", section="generator"
        ),
    }
    main = "discriminator"
    shown: ClassVar[Mapping[str, Metric]] = {
        "generator_loss": Metric(
            "generator loss",
            card="masked-LM loss",
            curve="Generator loss",
            short="generator",
            levels=guessing_levels,
            bands=frequency_band,
            hint=MASKED_LM_HINT,
        ),
        "generator_accuracy": Metric("generator accuracy", card="masked-LM accuracy"),
        "discriminator_loss": Metric(
            "discriminator loss",
            ".4f",
            card="discriminator loss",
            curve="Discriminator loss",
            short="discriminator",
            levels=rtd_bands.constant_level,
            hint="How wrong the discriminator is; below the dashed line it beats giving every "
            "token the same answer. It may rise again while the generator gets better.",
        ),
        "replaced_rate": Metric("replaced rate", card="fraction of tokens replaced"),
        "accuracy": Metric("discriminator accuracy", card="discriminator accuracy"),
        "precision": Metric("precision at 0.5", card="precision on replaced tokens, at 0.5"),
        "recall": Metric("recall at 0.5", card="recall on replaced tokens, at 0.5"),
        "auc": Metric(
            "AUC",
            card="area under the ROC curve",
            curve="AUC, replaced vs. original tokens",
            short="AUC",
            levels=lambda sizes, latest: [(0.5, "chance 0.5")],
            hint="How well the discriminator tells replaced from original tokens: 1 is perfect, "
            "0.5 is guessing.",
        ),
    }
    alarms = rtd_bands.ALARMS
    watched = "auc"
    judged = "generator_loss"

    def __init__(
        self, generator: nn.Module, discriminator: nn.Module, weights: Weights | None = None
    ) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.weights, self.schedules = weights or Weights(), Schedules()
        self.scheduled: dict[str, Any] = {}
        """What schedules say for the current step of training, instead of the weights."""

    @classmethod
    def build(cls, recipe: Recipe, vocabulary: Vocabulary) -> Self:
        """Build generator and discriminator with the weight sharing of the recipe."""
        pair = build_pair(recipe, vocabulary)
        built = cls(pair.generator, pair.discriminator, weights_of(recipe))
        built.notes, built.schedules = tuple(pair.notes), recipe.schedules
        return built

    def set_progress(self, done: float) -> None:
        """Set the weights and the temperature of a step of training."""
        points = {name: getattr(self.schedules, field) for name, field in SCHEDULED.items()}
        self.scheduled = {n: value_at(given, done) for n, given in points.items() if given}

    def forward(
        self, batch: Batch[Tensor], totals: Totals, noise_MV: Tensor | None = None
    ) -> tuple[Tensor, Sums]:
        """Return the contribution of these rows to the loss, and their sums for the metrics.

        With `noise_MV`, sampling is Gumbel-max as in the official code; without it, each slot is
        sampled with its uniform number. A network whose loss has weight 0 gets no gradient, and
        the discriminator is then not run in training.
        """
        weights = self.weights._replace(**self.scheduled) if self.training else self.weights
        sample = sampler(weights, batch.uniforms_BN.flatten(), noise_MV)
        with torch.set_grad_enabled(torch.is_grad_enabled() and weights.generator > 0):
            prediction = predict_slots(self.generator, batch, totals, sample)
        corrupted = corrupt(batch, prediction.sampled_M.view_as(batch.positions_BN))
        real_BL = batch.attention_BL.float()
        if weights.discriminator or not self.training:
            logits_BL = replaced_logits(call(self.discriminator, corrupted.ids_BL, batch).logits)
        else:  # as if there were no tokens
            real_BL = logits_BL = torch.zeros_like(real_BL)
        losses_BL = nn.functional.binary_cross_entropy_with_logits(
            logits_BL, corrupted.labels_BL.float(), reduction="none"
        )
        discriminator_loss = (losses_BL * real_BL).sum() / (totals.tokens + EPSILON)
        loss = weights.generator * prediction.loss + weights.discriminator * discriminator_loss
        return loss, {
            "generator_loss": prediction.loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "slots": prediction.weights_M.sum(),
            "generator_correct": prediction.correct,
            **detection_sums(logits_BL.detach(), corrupted.labels_BL, real_BL),
        }

    @staticmethod
    def metrics(sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the mean losses and the rates over a number of batches."""
        metrics = {
            "generator_loss": float(sums["generator_loss"]) / batches,
            "generator_accuracy": fraction(float(sums["generator_correct"]), float(sums["slots"])),
            "discriminator_loss": float(sums["discriminator_loss"]) / batches
            if float(sums["tokens"])
            else nan,  # it was not run
        }
        return metrics | detection_metrics(sums)

    @classmethod
    def validation_metrics(cls, sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the metrics, the recall at a fixed false-alarm rate and the calibration."""
        return cls.metrics(sums, batches) | detection_curves(sums)

    @classmethod
    def reading(cls, sizes: Sizes, step: int, metrics: Metrics) -> str:
        """Interpret the losses in one sentence."""
        return rtd_bands.rtd_reading(sizes, metrics)

    @classmethod
    def details(cls, sizes: Sizes, step: int, metrics: Metrics) -> list[str]:
        """Compare the metrics with guessing and with a run of the official code."""
        return rtd_bands.rtd_details(sizes, step, metrics)

    @classmethod
    def detection(cls, metrics: Metrics) -> Detection | None:
        """Return how well the discriminator detects replaced tokens."""
        return rtd_bands.rtd_detection(metrics)

    @classmethod
    def calibration(cls, metrics: Metrics) -> list[tuple[float, float]]:
        """Return the discriminator's probabilities and how often tokens were replaced there."""
        return observed_rates(metrics)

    @classmethod
    def reference(cls, sizes: Sizes) -> Reference | None:
        """Return the metrics of a run of the official code, if these sizes match it."""
        return rtd_bands.reference(sizes)

    def weight_of(self, role: str) -> float:
        """Return the weight of a network's loss."""
        return float(getattr(self.weights, role))

    def broken_ties(self, recipe: Recipe) -> list[str]:
        """Return what the recipe says the networks share but they do not."""
        return broken_ties(self.generator, self.discriminator, recipe.sharing)

    def set_output_biases(self, counts_V: Tensor, mask_rate: float) -> None:
        """Initialize output biases at token frequencies and at the mask rate."""
        set_bias_from_rate(self.discriminator, "discriminator", mask_rate)
        super().set_output_biases(counts_V, mask_rate)

    def config_fields(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the threshold that flags as many tokens as are replaced."""
        if record.get("threshold") is None:
            return {}
        return {"replaced_token_detection": {name: record[name] for name in DETECTION}}


def weights_of(recipe: Recipe) -> Weights:
    """Return the loss weights and sampling settings of a recipe."""
    objective = recipe.objective
    return Weights(
        objective.generator_weight,
        objective.discriminator_weight,
        objective.temperature,
        objective.disallow_correct,
    )


def sampler(weights: Weights, uniforms_M: Tensor, noise_MV: Tensor | None = None) -> Sample:
    """Return how tokens are sampled from the generator's probabilities."""

    def sample(probs_CV: Tensor, original_C: Tensor, slots: slice) -> Tensor:
        temperature, disallow_correct = weights.temperature, weights.disallow_correct
        probs_CV = sampling.adjusted(probs_CV, temperature, original_C, disallow_correct)
        if noise_MV is None:
            return sampling.inverse_cdf(probs_CV, uniforms_M[slots])
        return sampling.gumbel_max(probs_CV, noise_MV[slots])

    return sample


@torch.no_grad()
def corrupt(batch: Batch[Tensor], sampled_BN: Tensor) -> Corrupted:
    """Write sampled ids into the slots; a token that equals the original counts as original.

    A position chosen by several slots gets the floor of their mean, as in the official code; unused
    slots point at position 0, which is never written.
    """
    written_BL = torch.zeros_like(batch.ids_BL)
    counts_BL = written_BL.scatter_add(1, batch.positions_BN, torch.ones_like(sampled_BN))
    sums_BL = written_BL.scatter_add(1, batch.positions_BN, sampled_BN)
    counts_BL[:, 0] = 0
    chosen_BL = counts_BL > 0
    means_BL = torch.div(sums_BL, counts_BL.clamp(min=1), rounding_mode="floor")
    ids_BL = torch.where(chosen_BL, means_BL, batch.ids_BL)
    return Corrupted(ids_BL, (chosen_BL & (ids_BL != batch.ids_BL)).long())


def replaced_logits(logits: Tensor) -> Tensor:
    """Return one float32 logit per token: the log-odds that it was replaced."""
    logits = logits.float()
    if logits.ndim == 2:  # ElectraForPreTraining
        return logits
    return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]
