"""Masked language modelling: BERT's objective without next-sentence prediction."""

from collections.abc import Mapping
from typing import ClassVar, Self

from torch import Tensor, nn

from electrify.batches.batch import Batch, Totals
from electrify.models.pair import Vocabulary, build_masked_lm
from electrify.objectives.bands import (
    MASKED_LM_HINT,
    Metrics,
    Sizes,
    frequency_band,
    guessing_levels,
    masked_lm_details,
    masked_lm_reading,
    not_learning,
    sentence,
)
from electrify.objectives.masked_lm import predict_slots
from electrify.objectives.objective import Metric, Objective, Role, Sums, fraction
from electrify.recipes.schema import Recipe


class MaskedLanguageModel(Objective):
    """One network that predicts masked tokens; the baseline."""

    roles: ClassVar[Mapping[str, Role]] = {
        "model": Role("a masked language model, the baseline of the same size")
    }
    main = "model"
    judged = "mlm_loss"
    shown: ClassVar[Mapping[str, Metric]] = {
        "mlm_loss": Metric(
            "masked-LM loss",
            card="masked-LM loss",
            curve="Masked-LM loss",
            short="loss",
            levels=guessing_levels,
            bands=frequency_band,
            hint=MASKED_LM_HINT,
        ),
        "mlm_accuracy": Metric("masked-LM accuracy", card="masked-LM accuracy"),
    }
    former_names: ClassVar[Mapping[str, str]] = {
        "generator_loss": "mlm_loss",
        "generator_accuracy": "mlm_accuracy",
        "generator_correct": "mlm_correct",
    }
    alarms = (
        not_learning(
            "model",
            "mlm_loss",
            "it is frozen; the learning rate is much too high or too low (optimizer.lr)",
        ),
    )

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @classmethod
    def build(cls, recipe: Recipe, vocabulary: Vocabulary) -> Self:
        """Build the discriminator's encoder with a masked-LM head."""
        network, notes = build_masked_lm(recipe, vocabulary)
        built = cls(network)
        built.notes = tuple(notes)
        return built

    def forward(self, batch: Batch[Tensor], totals: Totals) -> tuple[Tensor, Sums]:
        """Return the contribution of these rows to the loss, and their sums for the metrics."""
        prediction = predict_slots(self.model, batch, totals)
        return prediction.loss, {
            "mlm_loss": prediction.loss.detach(),
            "slots": prediction.weights_M.sum(),
            "mlm_correct": prediction.correct,
        }

    @staticmethod
    def metrics(sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the mean loss and the accuracy."""
        return {
            "mlm_loss": float(sums["mlm_loss"]) / batches,
            "mlm_accuracy": fraction(float(sums["mlm_correct"]), float(sums["slots"])),
        }

    @classmethod
    def reading(cls, sizes: Sizes, step: int, metrics: Metrics) -> str:
        """Interpret the loss in one sentence."""
        return sentence(masked_lm_reading("model", metrics["mlm_loss"], sizes, metrics))

    @classmethod
    def details(cls, sizes: Sizes, step: int, metrics: Metrics) -> list[str]:
        """Compare the loss with guessing."""
        return masked_lm_details("Masked-LM loss", metrics["mlm_loss"], sizes, metrics)
