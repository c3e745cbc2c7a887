"""Keep the documents of packed rows apart, in any architecture whose attention can be restricted.

Each document attends to itself alone and its positions start at 0, so its outputs are those it has
in a row of its own. The restriction is given as the arguments that the attention understands:
the bounds of the documents for flash attention, a mask for the others.
"""

# B batch, L length, K documents per row

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.models import attention

MASKED_IN_ENCODER = {"deberta", "deberta-v2"}
"""Architectures that take a mask of pairs of tokens in the encoder, but not in the model."""


def document_numbers(starts_BK: Tensor, length: int) -> Tensor:
    """Return the number of each token's document in its row, from 0.

    >>> document_numbers(torch.tensor([[0, 2, 5]]), 5)
    tensor([[0, 0, 1, 1, 1]])
    """
    index_L1 = torch.arange(length, device=starts_BK.device).unsqueeze(1)
    return (index_L1 >= starts_BK.unsqueeze(1)).sum(dim=-1) - 1


def document_positions(starts_BK: Tensor, length: int) -> Tensor:
    """Return the position of each token in its document.

    >>> document_positions(torch.tensor([[0, 2, 5]]), 5)
    tensor([[0, 1, 0, 1, 2]])
    """
    starts_BL = starts_BK.gather(1, document_numbers(starts_BK, length))
    return torch.arange(length, device=starts_BK.device) - starts_BL


def document_arguments(model: nn.Module, starts_BK: Tensor, length: int) -> dict[str, Any]:
    """Return the arguments of a model that restrict attention to the documents."""
    config: Any = model.config
    implementation = config._attn_implementation
    if "flash" in implementation:
        return flash_arguments(starts_BK, length)
    numbers_BL = document_numbers(starts_BK, length)
    same_B1LL = (numbers_BL.unsqueeze(1) == numbers_BL.unsqueeze(2)).unsqueeze(1)
    if implementation == attention.NAME:
        return {attention.ALLOWED_PAIRS: same_B1LL}
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        raise UserError(
            f"{config.model_type} loses its sliding windows in packed rows with this attention",
            got=f"attention {implementation}",
            fix="use --run.attn-implementation auto",
        )
    if config.model_type in MASKED_IN_ENCODER:
        return {"attention_mask": same_B1LL.squeeze(1)}
    bias_B1LL = torch.zeros(same_B1LL.shape, device=starts_BK.device)
    return {"attention_mask": bias_B1LL.masked_fill_(~same_B1LL, torch.finfo(torch.float32).min)}


def flash_arguments(starts_BK: Tensor, length: int) -> dict[str, Any]:
    """Return the bounds of the documents in the flattened batch, for varlen flash attention.

    Unused entries become documents without tokens, so the shapes are those of any other batch, and
    the host does not have to wait for a GPU.

    >>> flash_arguments(torch.tensor([[0, 2, 5], [0, 5, 5]]), 5)["cu_seq_lens_q"]
    tensor([ 0,  2,  5,  5, 10, 10, 10], dtype=torch.int32)
    """
    rows_B1 = torch.arange(len(starts_BK), device=starts_BK.device).unsqueeze(1) * length
    end = len(starts_BK) * length
    bounds = nn.functional.pad((starts_BK + rows_B1).flatten(), (0, 1), value=end).to(torch.int32)
    values = {"cu_seq_lens": bounds, "max_length": length}
    return {f"{name}_{side}": value for name, value in values.items() for side in "qk"}


@contextmanager
def masked_in_encoder(model: nn.Module, mask_BLL: Tensor) -> Iterator[None]:
    """Give the encoder of a model a mask of pairs of tokens instead of the model's own mask."""

    def replace(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        hidden_BLH, _, *others = arguments
        return (hidden_BLH, mask_BLL, *others), named

    encoder: Any = model.base_model
    handle = encoder.encoder.register_forward_pre_hook(replace, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
