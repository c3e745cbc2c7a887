"""Heads that find an answer in a window: the one of transformers, and google-research/electra's.

simple     One linear layer gives every token a start score and an end score.
official   The end is conditioned on the start (the true one in training, the 20 best in
           prediction), and a third output predicts from [CLS] and the expected start vector
           whether there is an answer.

`logits` returns candidates for every window: (start, end, start score, end score); the first
candidate stands for "no answer".
"""

# B batch, L length, K starts or ends in the beam, N candidates (1 + K * K), H width, F hidden width

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, gelu
from transformers import AutoModelForQuestionAnswering

from electrify.finetuning.encoder import Encoder, load_backbone, new_network
from electrify.finetuning.heads import Examples, OnBackbone, OnNetwork
from electrify.finetuning.squad.windows import WindowBatch
from electrify.models.inputs import call

BEAM = 20
HIDDEN = 512
ANSWERABLE_WEIGHT = 0.5
DISALLOWED_SCORE = -1000.0
"""Added to the scores of tokens that cannot be in an answer, as in the official code."""


class SimpleSpans(OnNetwork):
    """A transformers question-answering model, trained on the mean loss, as is usual."""

    def forward(self, batch: WindowBatch, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return this batch's share of the mean loss."""
        start_BL, end_BL = self._scores(batch)
        losses_B = _span_losses(start_BL, end_BL, batch)
        loss = losses_B.sum() / totals.examples
        return loss, {"loss": loss.detach()}

    def logits(self, batch: WindowBatch) -> Tensor:
        """Return all pairs of the best starts and the best ends as candidates."""
        start_BL, end_BL = (
            _masked(scores_BL, batch.allowed_BL) for scores_BL in self._scores(batch)
        )
        beam = min(BEAM, start_BL.shape[1])
        start_BK, end_B1K = start_BL.topk(beam), end_BL.unsqueeze(1).topk(beam)
        return _candidates(start_BK, end_B1K, start_BL[:, 0], end_BL[:, 0])

    def _scores(self, batch: WindowBatch) -> tuple[Tensor, Tensor]:
        output = call(self.network, batch.ids_BL, batch)
        return output.start_logits.float(), output.end_logits.float()


class JointSpans(OnBackbone):
    """ELECTRA's head, trained on the summed loss, without dropout."""

    def __init__(self, backbone: Any, seed: int = 0) -> None:
        super().__init__(backbone)
        width = backbone.config.hidden_size
        self.start = nn.Linear(width, 1)
        self.end_hidden, self.end = nn.Linear(2 * width, HIDDEN), nn.Linear(HIDDEN, 1)
        self.answerable_hidden, self.answerable = nn.Linear(2 * width, HIDDEN), nn.Linear(HIDDEN, 1)
        others = (self.end_hidden, self.end, self.answerable_hidden, self.answerable)
        self.draw(seed, self.start, *others)

    def forward(self, batch: WindowBatch, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the span losses and half the answerability losses, also for 1.1."""
        hidden_BLH = call(self.body, batch.ids_BL, batch)[0]
        start_BL = self._starts(hidden_BLH, batch)
        end_BL = self._ends(hidden_BLH, batch.starts_B.unsqueeze(1), batch).squeeze(1)
        impossible_B = self._impossible(hidden_BLH, start_BL)
        losses_B = _span_losses(start_BL, end_BL, batch)
        answerable_B = binary_cross_entropy_with_logits(
            impossible_B, batch.impossible_B, reduction="none"
        )
        loss = (losses_B + ANSWERABLE_WEIGHT * answerable_B).sum()
        return loss, {"loss": loss.detach()}

    def logits(self, batch: WindowBatch) -> Tensor:
        """Return the best starts and the best ends for each as candidates, with log probabilities.

        The score of "no answer" is the logit of that prediction.
        """
        hidden_BLH = call(self.body, batch.ids_BL, batch)[0]
        start_BL = self._starts(hidden_BLH, batch)
        beam = min(BEAM, start_BL.shape[1])
        start_BK = start_BL.log_softmax(dim=-1).topk(beam)
        end_BKL = self._ends(hidden_BLH, start_BK.indices, batch)
        end_BKK = end_BKL.log_softmax(dim=-1).topk(beam)
        impossible_B = self._impossible(hidden_BLH, start_BL)
        return _candidates(start_BK, end_BKK, impossible_B, torch.zeros_like(impossible_B))

    def _starts(self, hidden_BLH: Tensor, batch: WindowBatch) -> Tensor:
        return _masked(self.start(hidden_BLH).squeeze(-1).float(), batch.allowed_BL)

    def _ends(self, hidden_BLH: Tensor, starts_BK: Tensor, batch: WindowBatch) -> Tensor:
        """Return the end scores of every token for each of K starts."""
        width = hidden_BLH.shape[-1]
        index_BKH = starts_BK.unsqueeze(-1).expand(-1, -1, width)
        start_BKH = hidden_BLH.gather(1, index_BKH)
        # A linear layer on two concatenated vectors is the sum of one on each, which avoids a
        # tensor of B x K x L x 2H.
        weight_HF = self.end_hidden.weight.t()
        start_weight_HF, token_weight_HF = weight_HF[:width], weight_HF[width:]
        both_BKLF = (start_BKH @ start_weight_HF).unsqueeze(2) + (
            hidden_BLH @ token_weight_HF + self.end_hidden.bias
        ).unsqueeze(1)
        end_BKL = self.end(gelu(both_BKLF)).squeeze(-1).float()
        return _masked(end_BKL, batch.allowed_BL.unsqueeze(1))

    def _impossible(self, hidden_BLH: Tensor, start_BL: Tensor) -> Tensor:
        probs_B1L = start_BL.softmax(dim=-1).unsqueeze(1)
        start_BH = (probs_B1L @ hidden_BLH.float()).squeeze(1)
        both_BH = torch.cat([hidden_BLH[:, 0], start_BH.to(hidden_BLH.dtype)], dim=-1)
        logit_B: Tensor = self.answerable(gelu(self.answerable_hidden(both_BH))).squeeze(-1).float()
        return logit_B


def _masked(scores: Tensor, allowed: Tensor) -> Tensor:
    return scores + DISALLOWED_SCORE * (1 - allowed)


def _span_losses(start_BL: Tensor, end_BL: Tensor, batch: WindowBatch) -> Tensor:
    start_B = cross_entropy(start_BL, batch.starts_B, reduction="none")
    return (start_B + cross_entropy(end_BL, batch.ends_B, reduction="none")) / 2


def _candidates(start_BK: Any, end_BKK: Any, null_start_B: Tensor, null_end_B: Tensor) -> Tensor:
    """Return the results of topk for starts and ends as one tensor B x N x 4.

    The ends may be the same for all starts (B x 1 x K). Floats represent the positions exactly.
    """
    batch, beam = start_BK.indices.shape
    starts, start_scores = start_BK.indices.unsqueeze(-1), start_BK.values.unsqueeze(-1)
    parts = starts, end_BKK.indices, start_scores, end_BKK.values
    expanded = [part.float().expand(batch, beam, beam).flatten(1) for part in parts]
    spans_BN4 = torch.stack(expanded, dim=-1)
    zero_B = torch.zeros_like(null_start_B)
    null_B14 = torch.stack([zero_B, zero_B, null_start_B, null_end_B], dim=-1).unsqueeze(1)
    return torch.cat([null_B14, spans_BN4], dim=1)


def _simple(encoder: Encoder, seed: int) -> SimpleSpans:
    # Two labels, the start and the end, whatever number the configuration has.
    return SimpleSpans(new_network(AutoModelForQuestionAnswering, encoder.source, num_labels=2))


def _joint(encoder: Encoder, seed: int) -> JointSpans:
    return JointSpans(load_backbone(encoder.source), seed)


class SpanHead(NamedTuple):
    """How a head is built and its scores are used."""

    build: Callable[[Encoder, int], SimpleSpans | JointSpans]
    odds: Callable[[float, float], float]
    """The odds of "no answer", from its score and that of the best answer."""
    threshold: float
    """No answer is given above these odds: the value of BERT, or of ELECTRA for SQuAD 2.0."""
    batch_size: int
    """Windows per batch in prediction: a beam takes much memory."""


SPAN_HEADS = {
    "simple": SpanHead(_simple, lambda null, best: null - best, 0.0, 64),
    "official": SpanHead(_joint, lambda null, best: null, -2.75, 16),
}
