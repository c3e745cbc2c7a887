"""Attention for processors: in float32 always, and with dropout a few heads at a time.

torch's fused attention has no dropout on a processor: it falls back to one that makes, drops and
keeps every probability. Here the scores of a few heads at a time are made, used while they are in
the cache, and made again for the gradient. Without dropout, torch's own kernel is faster still, but
in bfloat16 its gradient takes five times as long as in float32.
"""

# A = batch × heads, L queries, S keys, D width of a head

from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from electrify.models.dropout import draw_seed, dropout_mask_like

NAME = "sdpa_quick_dropout"
CACHED = 1 << 18
"""Scores that are made at a time: a megabyte."""


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
    """As transformers calls it: [batch, heads, length, width], out with heads after lengths."""
    tensors = (query, key, value)
    if _would_be_sixteen_bits(query):
        with torch.autocast("cpu", enabled=False):
            wide = (query.float(), key.float(), value.float())
            mask = attention_mask
            if mask is not None and mask.dtype != torch.bool:
                mask = mask.float()
            found, _ = attention(module, *wide, mask, dropout, scaling, **kwargs)
        return found.to(query.dtype), None
    if dropout == 0 or not _can_attend(module, tensors, attention_mask, kwargs):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    found = MaskedAttentionWithDropout.apply(query, key, value, attention_mask, scale, dropout)  # type: ignore[no-untyped-call]
    return found.transpose(1, 2), None


def _would_be_sixteen_bits(query: Tensor) -> bool:
    """Whether a processor would multiply in 16 bits here."""
    sixteen = query.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cpu")
    return query.device.type == "cpu" and sixteen


def _can_attend(
    module: nn.Module, tensors: tuple[Tensor, ...], mask: Tensor | None, more: dict[str, Any]
) -> bool:
    """Whether this is plain attention of a text to itself, in float32 on a processor."""
    query, key, _ = tensors
    plain_mask = mask is None or (
        mask.shape[:2] == (len(query), 1) and not mask.requires_grad and mask.device.type == "cpu"
    )
    return (
        plain_mask
        and query.device.type == "cpu"
        and all(tensor.dtype == torch.float32 for tensor in tensors)
        and query.shape == key.shape
        and more.get("position_bias") is None
        and not (mask is None and _causal(module, more))
        and not torch.compiler.is_compiling()
    )


def _causal(module: nn.Module, more: dict[str, Any]) -> bool:
    """Whether places without a mask see only those before them, by the rule of transformers."""
    asked = more.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


class MaskedAttentionWithDropout(torch.autograd.Function):
    """softmax(query · key) with some of it dropped, · value."""

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
        """Scores and what they choose, a few heads at a time."""
        seed = draw_seed()
        query_ALD, key_ASD, value_ASD = (t.flatten(0, 1) for t in (query, key, value))
        found_ALD = torch.empty_like(query_ALD)
        for some, number in _few_heads(query_ALD, key_ASD):
            probs = _attention_probs(
                query_ALD[some], key_ASD[some], _added(mask, some, query.shape[1]), scale
            )
            probs *= dropout_mask_like(probs, seed + number, rate)
            torch.bmm(probs, value_ASD[some], out=found_ALD[some])
        ctx.save_for_backward(query_ALD, key_ASD, value_ASD, found_ALD, mask)
        ctx.scale, ctx.rate, ctx.seed, ctx.heads = scale, rate, seed, query.shape[1]
        return found_ALD.view(query.shape)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        """By the formulas of FlashAttention, with the scores made again."""
        with torch.autocast("cpu", enabled=False):
            return *_gradients(ctx, gradient), None, None, None


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    query_ALD, key_ASD, value_ASD, found_ALD, mask = ctx.saved_tensors
    gradient_ALD = gradient.flatten(0, 1)
    to_query, to_key, to_value = (torch.empty_like(t) for t in (query_ALD, key_ASD, value_ASD))
    inner_AL1 = (gradient_ALD * found_ALD).sum(dim=-1, keepdim=True)
    for some, number in _few_heads(query_ALD, key_ASD):
        probs = _attention_probs(
            query_ALD[some], key_ASD[some], _added(mask, some, ctx.heads), ctx.scale
        )
        kept = dropout_mask_like(probs, ctx.seed + number, ctx.rate)
        torch.bmm((probs * kept).mT, gradient_ALD[some], out=to_value[some])
        to_scores = torch.bmm(gradient_ALD[some], value_ASD[some].mT)
        to_scores.mul_(kept).sub_(inner_AL1[some]).mul_(probs).mul_(ctx.scale)
        torch.bmm(to_scores, key_ASD[some], out=to_query[some])
        torch.bmm(to_scores.mT, query_ALD[some], out=to_key[some])
    shape = (-1, ctx.heads, *query_ALD.shape[1:])
    return tuple(t.view(shape) for t in (to_query, to_key, to_value))


def _few_heads(query_ALD: Tensor, key_ASD: Tensor) -> list[tuple[slice, int]]:
    """Slices over batch × heads whose scores fit into the cache, numbered."""
    few = max(1, CACHED // (query_ALD.shape[1] * key_ASD.shape[1]))
    starts = range(0, len(query_ALD), few)
    return [
        (slice(start, min(start + few, len(query_ALD))), number)
        for number, start in enumerate(starts)
    ]


def _attention_probs(query: Tensor, key: Tensor, added: Tensor | None, scale: float) -> Tensor:
    scores = torch.bmm(query, key.mT).mul_(scale)
    if added is not None:
        scores += added
    return torch.softmax(scores, dim=-1)


def _added(mask: Tensor | None, some: slice, heads: int) -> Tensor | None:
    """What is added to the scores of some rows of batch × heads, by the batch's mask."""
    if mask is None:
        return None
    rows = torch.arange(some.start, some.stop) // heads
    chosen = mask[rows, 0]
    if mask.dtype != torch.bool:
        return chosen
    return torch.zeros(chosen.shape).masked_fill_(~chosen, torch.finfo(torch.float32).min)
