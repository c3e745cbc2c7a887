"""Predictions of a masked language model at the masked positions of a batch, and its loss."""

# B batch, L length, N slots per row, M = B × N slots, V vocabulary

from typing import NamedTuple

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch, Totals
from electrify.models.gather import flat_rows, gather_head_rows
from electrify.models.inputs import call

EPSILON = 1e-6  # google-research/electra adds it to the numbers of slots and of tokens


class Prediction(NamedTuple):
    """Predictions of a masked language model for the slots of a batch."""

    probs_MV: Tensor
    """Float32 probabilities without gradient; the backward pass overwrites them."""
    original_M: Tensor
    weights_M: Tensor
    loss: Tensor
    """The contribution of these rows: their sum over the total of the global batch."""

    def correct(self) -> Tensor:
        """Return the number of slots in which the original is the most likely token."""
        return ((self.probs_MV.argmax(dim=-1) == self.original_M) * self.weights_M).sum()


def predict_slots(model: nn.Module, batch: Batch[Tensor], totals: Totals) -> Prediction:
    """Run a model with its head on the slots only; the loss is in float32."""
    length = batch.ids_BL.shape[1]
    rows_M = flat_rows(batch.positions_BN, length)
    with gather_head_rows(model, rows_M):
        logits_MV = call(model, batch.masked_BL, batch).logits.squeeze(0)
    original_M = batch.ids_BL.gather(1, batch.positions_BN).flatten()
    weights_M = batch.weights_BN.flatten()
    shares_M = weights_M / (totals.slots + EPSILON)
    loss, probs_MV = CrossEntropy.apply(logits_MV.float(), original_M, shares_M)  # type: ignore[no-untyped-call]
    return Prediction(probs_MV, original_M, weights_M, loss)


class CrossEntropy(torch.autograd.Function):
    """Weighted sum of cross-entropies, and the probabilities, in one matrix the size of the logits.

    torch's own function keeps the log-probabilities, their gradient and that of the logits at the
    same time, and sampling would compute the probabilities again.
    """

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        logits_MV: Tensor,
        original_M: Tensor,
        shares_M: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the loss, and the matrix, which then holds the probabilities."""
        matrix_MV = torch.log_softmax(logits_MV, dim=-1)
        loss = -(matrix_MV.gather(1, original_M.unsqueeze(1)).squeeze(1) * shares_M).sum()
        probs_MV = matrix_MV.exp_()
        ctx.mark_non_differentiable(probs_MV)
        ctx.set_materialize_grads(False)  # else torch fills a matrix with zeros as their gradient
        ctx.probs_MV, ctx.original_M, ctx.shares_M = probs_MV, original_M, shares_M
        return loss, probs_MV

    @staticmethod
    def backward(ctx, grad_loss: Tensor, _: None) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """Return probabilities minus the one-hot targets, in the memory of the probabilities."""
        shares_M1 = (ctx.shares_M * grad_loss).unsqueeze(1)
        # Drop the reference: the memory is freed with the gradient, and a second pass fails.
        probs_MV, ctx.probs_MV = ctx.probs_MV, None
        gradient_MV = probs_MV.mul_(shares_M1)
        gradient_MV.scatter_add_(1, ctx.original_M.unsqueeze(1), -shares_M1)
        return gradient_MV, None, None
