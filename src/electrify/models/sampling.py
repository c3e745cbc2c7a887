"""Draw the generator's tokens: by one uniform number each, or by given noise as officially.

Always in float32, whatever the precision of the model: in bfloat16 a tail of rare tokens has
probability zero. No gradient flows through a sample.
"""

# M rows, V vocabulary, K blocks of W tokens

import torch
from torch import Tensor

BLOCK = 256
DISALLOWED = 1000.0  # google-research/electra: what a forbidden token's logit loses
GUMBEL_EPSILON = 1e-9


@torch.no_grad()
def inverse_cdf(chances_MV: Tensor, uniforms_M: Tensor) -> Tensor:
    """The token at which the cumulative probability reaches the uniform number of its row.

    First the block is found, then the token in it, so that no running sum over the whole vocabulary
    is made. Sums start from the same float32 numbers on every machine with the same kernels.
    """
    rows, vocabulary = chances_MV.shape
    padding = -vocabulary % BLOCK
    weights_MKW = torch.nn.functional.pad(chances_MV, (0, padding)).view(rows, -1, BLOCK)
    ends_MK = weights_MKW.sum(dim=-1).double().cumsum(dim=-1)
    target_M1 = uniforms_M.double().unsqueeze(1) * ends_MK[:, -1:]
    block_M1 = torch.searchsorted(ends_MK, target_M1).clamp_(max=ends_MK.shape[1] - 1)
    begin_M1 = torch.where(block_M1 > 0, ends_MK.gather(1, (block_M1 - 1).clamp(min=0)), 0.0)
    inside_MW = weights_MKW.gather(1, block_M1.unsqueeze(2).expand(-1, 1, BLOCK)).squeeze(1)
    running_MW = inside_MW.double().cumsum(dim=-1)
    # Rounding may leave the target past the block's own end; its last token with weight takes it.
    within_M1 = torch.minimum(target_M1 - begin_M1, running_MW[:, -1:])
    token_M1 = torch.searchsorted(running_MW, within_M1.clamp_(min=torch.finfo(torch.float64).tiny))
    return (block_M1 * BLOCK + token_M1.clamp_(max=BLOCK - 1)).squeeze(1)


@torch.no_grad()
def gumbel_max(chances_MV: Tensor, noise_MV: Tensor) -> Tensor:
    """The token with the largest noisy logit: the official way, with noise that is given."""
    return (chances_MV.log() + noise_MV).argmax(dim=-1)


def gumbel_noise(uniforms: Tensor) -> Tensor:
    """Noise from uniform numbers, finite at 0 and 1 as in the official code."""
    inner = -torch.log(uniforms + GUMBEL_EPSILON) + GUMBEL_EPSILON
    return -torch.log(inner)


def adjusted(
    chances_MV: Tensor, temperature: float, original_M: Tensor, disallow_correct: bool
) -> Tensor:
    """The chances to sample by: cooled or heated, without the original token if not allowed."""
    if temperature == 1 and not disallow_correct:
        return chances_MV
    logits_MV = chances_MV.log() / temperature
    if disallow_correct:
        penalty_M1 = torch.full_like(original_M, -DISALLOWED, dtype=torch.float32).unsqueeze(1)
        logits_MV.scatter_add_(1, original_M.unsqueeze(1), penalty_M1)
    return torch.softmax(logits_MV, dim=-1)
