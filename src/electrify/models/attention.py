"""CPU attention: always in float32, and with dropout computed a few heads at a time.

torch's fused attention does not support dropout on a CPU: it falls back to a kernel that stores
every attention probability. This one computes the scores of a few heads at a time, uses them while
they are in the cache, and recomputes them in the backward pass. Without dropout torch's fused
kernel is faster still, but its backward pass takes five times as long in bfloat16 as in float32.
"""

# A = batch × heads, L queries, S keys, D head dimension

from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from electrify.models.dropout import draw_seed, dropout_mask_like

NAME = "sdpa_quick_dropout"
ALLOWED_PAIRS = "allowed_B1LL"
"""The argument of a model with the pairs of tokens that may attend, in packed rows."""
SCORES_PER_CHUNK = 1 << 18
"""Attention scores that are computed at a time: one megabyte."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention with the signature that transformers expects.

    Inputs are [batch, heads, length, dimension]; the output is [batch, length, heads, dimension].
    """
    allowed_B1LL = kwargs.pop(ALLOWED_PAIRS, None)
    if allowed_B1LL is not None:  # transformers gives no mask, or the boolean one of a window
        attention_mask = allowed_B1LL if attention_mask is None else attention_mask & allowed_B1LL
    if _would_run_in_16_bits(query):
        with torch.autocast("cpu", enabled=False):
            mask = attention_mask
            if mask is not None and mask.dtype != torch.bool:
                mask = mask.float()
            wide = (query.float(), key.float(), value.float())
            output, _ = attention(module, *wide, mask, dropout, scaling, **kwargs)
        return output.to(query.dtype), None
    if dropout == 0 or not _is_supported(module, (query, key, value), attention_mask, kwargs):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = MaskedAttentionWithDropout.apply(query, key, value, attention_mask, scale, dropout)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2), None


def _would_run_in_16_bits(query: Tensor) -> bool:
    """Return whether the matmuls of this call would run in 16 bits on a CPU."""
    narrow = query.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    return query.device.type == "cpu" and narrow


def _is_supported(
    module: nn.Module, tensors: tuple[Tensor, ...], mask: Tensor | None, kwargs: dict[str, Any]
) -> bool:
    """Return whether this is plain bidirectional self-attention in float32 on a CPU."""
    query, key, _ = tensors
    plain_mask = mask is None or (
        mask.shape[:2] == (len(query), 1) and not mask.requires_grad and mask.device.type == "cpu"
    )
    return (
        plain_mask
        and query.device.type == "cpu"
        and all(tensor.dtype == torch.float32 for tensor in tensors)
        and query.shape == key.shape
        and kwargs.get("position_bias") is None
        and not (mask is None and _is_causal(module, kwargs))
        and not torch.compiler.is_compiling()
    )


def _is_causal(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Return whether attention without a mask is causal, by the rule of transformers."""
    is_causal = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)


class MaskedAttentionWithDropout(torch.autograd.Function):
    """dropout(softmax(query · keyᵀ · scale + mask)) · value."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        scale: float,
        rate: float,
    ) -> Tensor:
        """Compute the output a few heads at a time."""
        seed = draw_seed()
        query_ALD, key_ASD, value_ASD = (t.flatten(0, 1) for t in (query, key, value))
        output_ALD = torch.empty_like(query_ALD)
        for index, heads in enumerate(_head_chunks(query_ALD, key_ASD)):
            bias = _additive_mask(mask, heads, query.shape[1])
            probs = _attention_probs(query_ALD[heads], key_ASD[heads], bias, scale)
            probs *= dropout_mask_like(probs, seed + index, rate)
            torch.bmm(probs, value_ASD[heads], out=output_ALD[heads])
        ctx.save_for_backward(query_ALD, key_ASD, value_ASD, output_ALD, mask)
        ctx.scale, ctx.rate, ctx.seed, ctx.heads = scale, rate, seed, query.shape[1]
        return output_ALD.view(query.shape)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        """Compute the gradients with FlashAttention's formulas, recomputing the scores."""
        with torch.autocast("cpu", enabled=False):
            return *_gradients(ctx, gradient), None, None, None


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    query_ALD, key_ASD, value_ASD, output_ALD, mask = ctx.saved_tensors
    gradient_ALD = gradient.flatten(0, 1)
    grad_query, grad_key, grad_value = (
        torch.empty_like(t) for t in (query_ALD, key_ASD, value_ASD)
    )
    inner_AL1 = (gradient_ALD * output_ALD).sum(dim=-1, keepdim=True)
    for index, heads in enumerate(_head_chunks(query_ALD, key_ASD)):
        bias = _additive_mask(mask, heads, ctx.heads)
        probs = _attention_probs(query_ALD[heads], key_ASD[heads], bias, ctx.scale)
        kept = dropout_mask_like(probs, ctx.seed + index, ctx.rate)
        torch.bmm((probs * kept).mT, gradient_ALD[heads], out=grad_value[heads])
        grad_scores = torch.bmm(gradient_ALD[heads], value_ASD[heads].mT)
        grad_scores.mul_(kept).sub_(inner_AL1[heads]).mul_(probs).mul_(ctx.scale)
        torch.bmm(grad_scores, key_ASD[heads], out=grad_query[heads])
        torch.bmm(grad_scores.mT, query_ALD[heads], out=grad_key[heads])
    shape = (-1, ctx.heads, *query_ALD.shape[1:])
    return tuple(t.view(shape) for t in (grad_query, grad_key, grad_value))


def _head_chunks(query_ALD: Tensor, key_ASD: Tensor) -> list[slice]:
    """Return slices over batch × heads whose scores fit into the cache."""
    size = max(1, SCORES_PER_CHUNK // (query_ALD.shape[1] * key_ASD.shape[1]))
    count = len(query_ALD)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _attention_probs(query: Tensor, key: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    scores = torch.bmm(query, key.mT).mul_(scale)
    if bias is not None:
        scores += bias
    return torch.softmax(scores, dim=-1)


def _additive_mask(mask: Tensor | None, heads: slice, head_count: int) -> Tensor | None:
    """Return the additive attention mask of a slice over batch × heads."""
    if mask is None:
        return None
    rows = torch.arange(heads.start, heads.stop) // head_count
    chosen = mask[rows, 0]
    if mask.dtype != torch.bool:
        return chosen
    return torch.zeros(chosen.shape).masked_fill_(~chosen, torch.finfo(torch.float32).min)
