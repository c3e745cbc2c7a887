"""Score sentences by how natural a model finds them, to compare the two of a minimal pair.

`original`: the log-probability of a replaced-token detector that a token is original, summed over
the tokens of the sentence. One row for each sentence.
`pseudo-likelihood`: the log-probability that a masked language model gives a token if it alone is
masked, summed over the tokens (Salazar et al. 2020). One row for each token.

Tokens that the tokenizer adds, such as [CLS], are not scored. Only sentences of the same length
share a batch, so that there is no padding.
"""

# B sentences, L length, N scored positions, R = B × N rows with a mask, V vocabulary

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoding
from electrify.models.gather import flat_rows, gather_head_rows
from electrify.models.inputs import call
from electrify.objectives.rtd import replaced_logits

TOKENS_PER_BATCH = 16_384


class Scorer(Protocol):
    """A model that gives every token of a sentence a log-probability."""

    network: Any

    def rows(self, tokens: int) -> int:
        """Return how many rows the model needs for a sentence with this many tokens."""

    def log_probs(self, ids_BL: Tensor, types_BL: Tensor, positions_N: Tensor) -> Tensor:
        """Return the log-probabilities of the tokens at some positions, B × N."""


class Unpadded(NamedTuple):
    """The inputs of a model for rows without padding."""

    attention_BL: Tensor
    types_BL: Tensor


def unpadded(types_BL: Tensor) -> Unpadded:
    """Return the inputs for rows without padding."""
    return Unpadded(torch.ones_like(types_BL[0, 0]).expand_as(types_BL), types_BL)


class OriginalScorer:
    """Scores tokens by a replaced-token detector's log-probability that they are original."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def rows(self, tokens: int) -> int:
        """Return one: all tokens are scored together."""
        return 1

    def log_probs(self, ids_BL: Tensor, types_BL: Tensor, positions_N: Tensor) -> Tensor:
        """Return log P(original) of the tokens at some positions."""
        logits_BL = replaced_logits(call(self.network, ids_BL, unpadded(types_BL)).logits)
        return functional.logsigmoid(-logits_BL[:, positions_N])


class PseudoLikelihoodScorer:
    """Scores tokens by a masked language model's log-probability of each, if it alone is masked."""

    def __init__(self, network: Any, mask: int) -> None:
        self.network, self.mask = network, mask

    def rows(self, tokens: int) -> int:
        """Return one row for each token."""
        return tokens

    def log_probs(self, ids_BL: Tensor, types_BL: Tensor, positions_N: Tensor) -> Tensor:
        """Return log P(token) at some positions; the head runs on the masked positions only."""
        (batch, length), count = ids_BL.shape, len(positions_N)
        positions_R1 = positions_N.repeat(batch).unsqueeze(1)
        masked_RL = ids_BL.repeat_interleave(count, 0).scatter_(1, positions_R1, self.mask)
        inputs = unpadded(types_BL.repeat_interleave(count, 0))
        with gather_head_rows(self.network, flat_rows(positions_R1, length)):
            logits_RV: Tensor = call(self.network, masked_RL, inputs).logits.squeeze(0).float()
        tokens_R1 = ids_BL[:, positions_N].reshape(-1, 1)
        log_probs_R1 = logits_RV.gather(1, tokens_R1) - logits_RV.logsumexp(1, keepdim=True)
        return log_probs_R1.view(batch, count)


class Form(NamedTuple):
    """What the sentences of a batch have in common; it implies their length."""

    types: tuple[int, ...]
    unscored: tuple[int, ...]
    """1 for tokens that do not count, such as those that the tokenizer added."""


@torch.inference_mode()
def sentence_scores(
    scorer: Scorer,
    encodings: Sequence[Encoding],
    on_scored: Callable[[int], None],
    unscored: Sequence[tuple[int, ...]] | None = None,
) -> NDArray[np.float64]:
    """Return the score of every sentence; those with the same tokens are scored once.

    `on_scored` is called with the number of distinct sentences scored so far. `unscored` has 1 for
    each token that does not count; by default those that the tokenizer added.
    """
    groups: dict[Form, dict[tuple[int, ...], None]] = defaultdict(dict)
    masks = unscored or [tuple(encoding.special_tokens_mask) for encoding in encodings]
    forms = [Form(tuple(e.type_ids), mask) for e, mask in zip(encodings, masks, strict=True)]
    for encoding, form in zip(encodings, forms, strict=True):
        groups[form][tuple(encoding.ids)] = None
    scores: dict[tuple[Form, tuple[int, ...]], float] = {}
    for form, distinct in groups.items():
        sentences = list(distinct)
        count, length = form.unscored.count(0), len(form.unscored)
        size = max(1, TOKENS_PER_BATCH // (length * scorer.rows(count)))
        for start in range(0, len(sentences), size):
            batch = sentences[start : start + size]
            keys = [(form, ids) for ids in batch]
            scores |= zip(keys, _batch_scores(scorer, batch, form), strict=True)
            on_scored(len(scores))
    pairs = zip(forms, encodings, strict=True)
    return np.array([scores[form, tuple(encoding.ids)] for form, encoding in pairs])


def _batch_scores(scorer: Scorer, sentences: Sequence[tuple[int, ...]], form: Form) -> list[float]:
    device = next(scorer.network.parameters()).device
    ids_BL = torch.tensor(sentences, device=device)
    types_BL = torch.tensor(form.types, device=device).expand_as(ids_BL)
    positions_N = (torch.tensor(form.unscored, device=device) == 0).nonzero().squeeze(1)
    scores_B = scorer.log_probs(ids_BL, types_BL, positions_N).double().sum(1)
    if not scores_B.isfinite().all():
        raise UserError(
            "the model's scores are not finite",
            got="NaN or infinity among its log-probabilities",
            fix="use a checkpoint from before training diverged",
        )
    found: list[float] = scores_B.tolist()
    return found
