"""Masked language modelling: the generator's task, and BERT's."""

# B batch, L length, N slots a row, M = B × N slots, V vocabulary

from typing import NamedTuple

from torch import Tensor, nn

from electrify.models.gather import flat_rows, head_only_on
from electrify.models.inputs import Inputs, Totals, call

EPSILON = 1e-6  # google-research/electra adds it to the number of slots and of tokens


class Prediction(NamedTuple):
    """What a masked-LM says of the slots of a batch."""

    logits_MV: Tensor
    original_M: Tensor
    weights_M: Tensor
    loss: Tensor
    """This batch's share of the loss: its sum over the total of the whole global batch."""

    def sums(self) -> dict[str, Tensor]:
        """Counts for the metrics, which add up over micro-batches and processes."""
        correct_M = self.logits_MV.detach().argmax(dim=-1) == self.original_M
        return {
            "slots": self.weights_M.sum(),
            "generator_correct": (correct_M * self.weights_M).sum(),
        }


def predict(model: nn.Module, inputs: Inputs, totals: Totals) -> Prediction:
    """Logits for the slots alone, and the loss in float32."""
    length = inputs.ids_BL.shape[1]
    rows_M = flat_rows(inputs.positions_BN, length)
    with head_only_on(model, rows_M):
        logits_MV = call(model, inputs.masked_BL, inputs).logits[0]
    original_M = inputs.ids_BL.gather(1, inputs.positions_BN).flatten()
    weights_M = inputs.weights_BN.flatten()
    losses_M = nn.functional.cross_entropy(logits_MV.float(), original_M, reduction="none")
    loss = (losses_M * weights_M).sum() / (totals.slots + EPSILON)
    return Prediction(logits_MV, original_M, weights_M, loss)


class MaskedLanguageModel(nn.Module):
    """BERT's objective without next-sentence prediction."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Inputs, totals: Totals) -> tuple[Tensor, dict[str, Tensor]]:
        """This batch's share of the loss, and its sums for the metrics."""
        prediction = predict(self.model, inputs, totals)
        sums = {"generator_loss": prediction.loss.detach(), **prediction.sums()}
        return prediction.loss, sums
