"""Predictions of a masked language model at the masked positions of a batch, and its loss."""

# B batch, L length, N slots per row, M = B × N slots, C some of them, V vocabulary

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from electrify.batches.batch import Batch, Totals
from electrify.models.gather import flat_rows, gather_head_rows, split_head
from electrify.models.inputs import call

EPSILON = 1e-6  # google-research/electra adds it to the numbers of slots and of tokens
MOST_BYTES_OF_LOGITS = 512 * 2**20
"""Float32 logits beyond this size are computed in chunks, and again in the backward pass."""

Sample = Callable[[Tensor, Tensor, slice], Tensor]
"""Returns a token for each of some slots: of their probs_CV, their originals and which they are."""


class Prediction(NamedTuple):
    """Predictions of a masked language model for the slots of a batch."""

    loss: Tensor
    """The contribution of these rows: their sum over the total of the global batch."""
    correct: Tensor
    """The number of slots in which the original is the most likely token."""
    sampled_M: Tensor
    weights_M: Tensor


def keep_original(probs_CV: Tensor, original_C: Tensor, slots: slice) -> Tensor:
    """Return the original tokens instead of a sample."""
    return original_C


def predict_slots(
    model: nn.Module, batch: Batch[Tensor], totals: Totals, sample: Sample = keep_original
) -> Prediction:
    """Run a model with its head on the slots only; loss and samples are in float32."""
    rows_M = flat_rows(batch.positions_BN, batch.ids_BL.shape[1])
    original_M = batch.ids_BL.gather(1, batch.positions_BN).flatten()
    weights_M = batch.weights_BN.flatten()
    shares_M = weights_M / (totals.slots + EPSILON)

    def measure(logits_CV: Tensor, slots: slice) -> tuple[Tensor, Tensor, Tensor]:
        original_C = original_M[slots]
        loss, probs_CV = CrossEntropy.apply(logits_CV.float(), original_C, shares_M[slots])  # type: ignore[no-untyped-call]
        correct = ((probs_CV.argmax(dim=-1) == original_C) * weights_M[slots]).sum()
        return loss, correct, sample(probs_CV, original_C, slots)

    run = partial(call, model, batch.masked_BL, batch)
    chunks = slot_chunks(len(rows_M), model.config.vocab_size)  # type: ignore[union-attr, arg-type]
    if len(chunks) == 1:
        with gather_head_rows(model, rows_M):
            logits_MV = run().logits.squeeze(0)
        return Prediction(*measure(logits_MV, chunks[0]), weights_M)
    hidden_MH, head = split_head(model, rows_M, run)

    def predict(hidden_CH: Tensor, slots: slice) -> tuple[Tensor, Tensor, Tensor]:
        return measure(head(hidden_CH), slots)

    parts = [checkpoint(predict, hidden_MH[s], s, use_reentrant=False) for s in chunks]
    losses, correct, sampled = zip(*parts, strict=True)
    return Prediction(sum(losses), sum(correct), torch.cat(sampled), weights_M)


def slot_chunks(slots: int, vocabulary: int) -> list[slice]:
    """Return slots in as few equal chunks as possible with logits of at most the set size.

    >>> slot_chunks(2_560, 30_522), slot_chunks(10_000, 30_522)[1:]
    ([slice(0, 2560, None)], [slice(3334, 6668, None), slice(6668, 10000, None)])
    """
    most = max(1, MOST_BYTES_OF_LOGITS // (torch.float32.itemsize * vocabulary))
    size = -(-slots // max(1, -(-slots // most)))
    return [slice(at, min(at + size, slots)) for at in range(0, max(slots, 1), max(size, 1))]


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
        ctx.save_for_backward(probs_MV, original_M, shares_M)
        return loss, probs_MV

    @staticmethod
    def backward(ctx, grad_loss: Tensor, _: None) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def]
        """Return probabilities minus the one-hot targets, in the memory of the probabilities."""
        probs_MV, original_M, shares_M = ctx.saved_tensors
        shares_M1 = (shares_M * grad_loss).unsqueeze(1)
        gradient_MV = probs_MV.mul_(shares_M1)  # in place, after which a second pass is an error
        gradient_MV.scatter_add_(1, original_M.unsqueeze(1), -shares_M1)
        return gradient_MV, None, None
