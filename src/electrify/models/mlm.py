"""Masked language modelling: the generator's task, and BERT's."""

# B batch, L length, N slots a row, M = B × N slots, V vocabulary

from typing import NamedTuple

import torch
from torch import Tensor, nn

from electrify.models.gather import flat_rows, head_only_on
from electrify.models.inputs import Inputs, Totals, call

EPSILON = 1e-6  # google-research/electra adds it to the number of slots and of tokens


class Prediction(NamedTuple):
    """What a masked-LM says of the slots of a batch."""

    chances_MV: Tensor
    """Of every token, in float32, without gradient; gone after the backward pass."""
    original_M: Tensor
    weights_M: Tensor
    loss: Tensor
    """This batch's share of the loss: its sum over the total of the whole global batch."""

    def sums(self) -> dict[str, Tensor]:
        """Counts for the metrics, which add up over micro-batches and processes."""
        correct_M = self.chances_MV.argmax(dim=-1) == self.original_M
        return {
            "slots": self.weights_M.sum(),
            "generator_correct": (correct_M * self.weights_M).sum(),
        }


def predict(model: nn.Module, inputs: Inputs, totals: Totals) -> Prediction:
    """Chances for the slots alone, and the loss in float32."""
    length = inputs.ids_BL.shape[1]
    rows_M = flat_rows(inputs.positions_BN, length)
    with head_only_on(model, rows_M):
        logits_MV = call(model, inputs.masked_BL, inputs).logits.squeeze(0)
    original_M = inputs.ids_BL.gather(1, inputs.positions_BN).flatten()
    weights_M = inputs.weights_BN.flatten()
    shares_M = weights_M / (totals.slots + EPSILON)
    loss, chances_MV = CrossEntropy.apply(logits_MV.float(), original_M, shares_M)  # type: ignore[no-untyped-call]
    return Prediction(chances_MV, original_M, weights_M, loss)


class CrossEntropy(torch.autograd.Function):
    """A weighted sum of cross-entropies, and the chances, in one table of the vocabulary's size.

    torch's own would hold the log-chances, their gradient and the logits' at once, and sampling
    would make the chances once more.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        logits_MV: Tensor,
        original_M: Tensor,
        shares_M: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The loss, and the table, which becomes the chances once the loss is read off."""
        table_MV = torch.log_softmax(logits_MV, dim=-1)
        loss = -(table_MV.gather(1, original_M.unsqueeze(1)).squeeze(1) * shares_M).sum()
        chances_MV = table_MV.exp_()
        ctx.mark_non_differentiable(chances_MV)
        ctx.chances_MV, ctx.original_M, ctx.shares_M = chances_MV, original_M, shares_M
        return loss, chances_MV

    @staticmethod
    def backward(ctx, to_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """Chances less the truth, in the place of the chances."""
        shares_M1 = (ctx.shares_M * to_loss).unsqueeze(1)
        # Let go of it, so that it ends with the gradient and no second pass can use it.
        chances_MV, ctx.chances_MV = ctx.chances_MV, None
        gradient_MV = chances_MV.mul_(shares_M1)
        gradient_MV.scatter_add_(1, ctx.original_M.unsqueeze(1), -shares_M1)
        return gradient_MV, None, None


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
