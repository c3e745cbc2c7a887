"""Sample tokens from the generator: with one uniform number each, or with given Gumbel noise.

Sampling is always in float32, whatever the precision of the model: in bfloat16, many rare tokens
have probability zero. No gradient flows through a sample.
"""

# M rows, V vocabulary, K blocks of W tokens

from math import inf

import torch
from torch import Tensor

BLOCK = 256
SMALLEST = torch.finfo(torch.float64).tiny  # smaller than any positive float32
GUMBEL_EPSILON = 1e-9


@torch.no_grad()
def inverse_cdf(probs_MV: Tensor, uniforms_M: Tensor) -> Tensor:
    """Return the token at which the cumulative probability reaches the uniform number of its row.

    It first finds the block, then the token in it, which avoids a cumulative sum over the
    vocabulary. Sums start from the same float32 numbers on every machine with the same kernels.

    A token of probability 0 is never drawn unless all are 0. If the probabilities are NaN, the
    token is meaningless but inside the vocabulary: the loss of such a model is not finite, and the
    step must not crash before the guard sees it.
    """
    rows, vocabulary = probs_MV.shape
    blocks, rest = divmod(vocabulary, BLOCK)
    blocks_MKW = probs_MV[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    rest_MW = torch.nn.functional.pad(probs_MV[:, blocks * BLOCK :], (0, BLOCK - rest))
    sums = (blocks_MKW.sum(dim=-1), rest_MW.sum(dim=-1, keepdim=True))
    ends_MK = torch.cat(sums, dim=-1).double().cumsum(dim=-1)
    target_M1 = (uniforms_M.double().unsqueeze(1) * ends_MK[:, -1:]).clamp_(min=SMALLEST)
    block_M1 = torch.searchsorted(ends_MK, target_M1).clamp_(max=ends_MK.shape[1] - 1)
    begin_M1 = torch.where(block_M1 > 0, ends_MK.gather(1, (block_M1 - 1).clamp(min=0)), 0.0)
    tokens_MW = block_M1 * BLOCK + torch.arange(BLOCK, device=probs_MV.device)
    inside_MW = probs_MV.gather(1, tokens_MW.clamp(max=vocabulary - 1))
    inside_MW.masked_fill_(tokens_MW >= vocabulary, 0.0)
    running_MW = inside_MW.double().cumsum(dim=-1)
    # Rounding may put the target past the end of the block; then its last nonzero token is drawn.
    within_M1 = torch.minimum(target_M1 - begin_M1, running_MW[:, -1:])
    token_M1 = torch.searchsorted(running_MW, within_M1.clamp_(min=SMALLEST))
    token_M1 = block_M1 * BLOCK + token_M1.clamp_(max=BLOCK - 1)
    return token_M1.clamp_(max=vocabulary - 1).squeeze(1)


@torch.no_grad()
def gumbel_max(probs_MV: Tensor, noise_MV: Tensor) -> Tensor:
    """Return the token with the largest logit after adding the noise, as in the official code."""
    return (probs_MV.log() + noise_MV).argmax(dim=-1)


def gumbel_noise(uniforms: Tensor) -> Tensor:
    """Return Gumbel noise from uniform numbers, finite at 0 and 1 as in the official code."""
    inner = -torch.log(uniforms + GUMBEL_EPSILON) + GUMBEL_EPSILON
    return -torch.log(inner)


def adjusted(
    probs_MV: Tensor, temperature: float, original_M: Tensor, disallow_correct: bool
) -> Tensor:
    """Return the probabilities to sample from, after temperature and without a disallowed original.

    The official code subtracts 1000 from the original's logit. If the original has probability 1 in
    float32, all others have underflowed; then they are equally likely.
    """
    if temperature == 1 and not disallow_correct:
        return probs_MV
    logits_MV = probs_MV.log()
    if disallow_correct:
        original_M1 = original_M.unsqueeze(1)
        logits_MV.scatter_(1, original_M1, -inf)
        all_zero_M1 = logits_MV.amax(dim=1, keepdim=True) == -inf
        logits_MV.masked_fill_(all_zero_M1, 0.0).scatter_(1, original_M1, -inf)
    if temperature != 1:
        # Make the largest logit 0, so that a temperature near 0 does not give NaN.
        logits_MV -= logits_MV.amax(dim=1, keepdim=True)
        logits_MV /= max(temperature, torch.finfo(torch.float32).tiny)
    return torch.softmax(logits_MV, dim=-1)
