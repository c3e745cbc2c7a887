"""Call a model of any architecture with a batch."""

# B batch, L length, N slots per row

import inspect
from collections.abc import Collection
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from electrify.models.documents import document_arguments, document_positions, masked_in_encoder


class ModelInputs(Protocol):
    """The inputs of a model besides the token ids: which tokens are real, and their segment."""

    @property
    def attention_BL(self) -> Tensor:  # noqa: N802
        """1 for real tokens, 0 for padding."""

    @property
    def types_BL(self) -> Tensor:  # noqa: N802
        """0 in the first segment, 1 in the second."""


def call(model: nn.Module, ids_BL: Tensor, inputs: ModelInputs) -> Any:
    """Run a model on token ids; mask, segments and position ids never depend on the ids."""
    starts_BK = getattr(inputs, "starts_BK", None)
    if starts_BK is not None:
        return _call_packed(model, ids_BL, inputs.types_BL, starts_BK)
    arguments = {"input_ids": ids_BL, "attention_mask": inputs.attention_BL}
    if is_unpadded(inputs.attention_BL) and not finds_padding(model):
        del arguments["attention_mask"]
    if takes_token_types(model):
        arguments["token_type_ids"] = inputs.types_BL
    padding = padding_position(model)
    if padding is not None:
        arguments["position_ids"] = position_ids(inputs.attention_BL, padding)
    return model(**arguments)


def _call_packed(model: nn.Module, ids_BL: Tensor, types_BL: Tensor, starts_BK: Tensor) -> Any:
    """Run a model on packed rows, in which padding is a document like the others."""
    length = ids_BL.shape[1]
    arguments = document_arguments(model, starts_BK, length)
    if takes_token_types(model):
        arguments["token_type_ids"] = types_BL
    if "position_ids" in _forward_parameters(model):
        padding = padding_position(model)
        first = 0 if padding is None else padding + 1
        arguments["position_ids"] = document_positions(starts_BK, length) + first
    mask = arguments.get("attention_mask")
    in_encoder = mask is not None and mask.ndim == 3
    with masked_in_encoder(model, arguments.pop("attention_mask")) if in_encoder else nullcontext():
        return model(input_ids=ids_BL, **arguments)


def batch_to_device(batch: Any, device: torch.device, keep_mask: bool = False) -> Any:
    """Move a named tuple of tensors to a device, without waiting for it.

    Without padding, the mask of real tokens becomes a single 1 that is expanded: `is_unpadded` can
    tell without reading it, for which the host would have to wait for a GPU. With `keep_mask` all
    batches have a mask: compiled networks would have to be compiled with and without one.
    """
    given = {name: tensor for name, tensor in batch._asdict().items() if tensor is not None}
    tensors = {name: copied_to(device, tensor) for name, tensor in given.items()}
    mask_BL = batch.attention_BL
    if not keep_mask and bool(mask_BL.all()):
        one = torch.ones((), dtype=mask_BL.dtype, device=device)
        tensors["attention_BL"] = one.expand(mask_BL.shape)
    return batch._replace(**tensors)


def copied_to(device: torch.device, tensor: Tensor) -> Tensor:
    """Copy a tensor from the CPU to a device, without waiting for it."""
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def is_unpadded(mask_BL: Tensor) -> bool:
    """Return whether the mask of real tokens is a single 1 that is expanded.

    >>> is_unpadded(torch.ones(()).expand(2, 3)), is_unpadded(torch.ones(2, 3))
    (True, False)
    """
    return not any(mask_BL.stride())


def finds_padding(model: nn.Module) -> bool:
    """Return whether a model without a mask counts [PAD] ids, which a generator can sample.

    XLM and Flaubert do, whose mask can also be given as the lengths of the rows.
    """
    return "lengths" in _forward_parameters(model)


def _forward_parameters(model: nn.Module) -> Collection[str]:
    return inspect.signature(model.forward).parameters


def takes_token_types(model: nn.Module) -> bool:
    """Return whether a model has embeddings for two or more token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) < 2:
        return False
    return "token_type_ids" in _forward_parameters(model)


def padding_position(model: nn.Module) -> int | None:
    """Return the position id of padding in RoBERTa-like architectures; None in others.

    These number positions from 1 past padding by counting the ids that are not [PAD] (MPNet: not
    1). A generator can sample that id, which would shift every token after it, so position ids are
    passed to them.
    """
    encoder: Any = model.base_model
    embeddings = getattr(encoder, "embeddings", None)
    if not hasattr(embeddings, "position_embeddings"):
        return None
    padding = getattr(embeddings, "padding_idx", None)
    return padding if isinstance(padding, int) else None


def position_ids(attention_BL: Tensor, padding: int) -> Tensor:
    """Return the position ids of real tokens, counted from 1 past that of padding.

    >>> import torch
    >>> position_ids(torch.tensor([[1, 1, 1, 0]]), 1)
    tensor([[2, 3, 4, 1]])
    """
    return attention_BL.cumsum(dim=1) * attention_BL + padding
