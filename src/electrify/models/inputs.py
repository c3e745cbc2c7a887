"""What a masked batch is to a model, and how any architecture is called with it."""

# B batch, L length, N slots a row

import inspect
from typing import Any, Protocol

from torch import Tensor, nn


class Framed(Protocol):
    """What a model must know of a batch beside its ids: which are real, and in which segment."""

    @property
    def attention_BL(self) -> Tensor:  # noqa: N802
        """1 for real tokens, 0 for padding."""

    @property
    def types_BL(self) -> Tensor:  # noqa: N802
        """0 in the first segment, 1 in the second."""


def call(model: nn.Module, ids_BL: Tensor, inputs: Framed) -> Any:
    """A model's output for some ids: what it knows of a token besides never depends on the ids."""
    arguments = {"input_ids": ids_BL, "attention_mask": inputs.attention_BL}
    if takes_token_types(model):
        arguments["token_type_ids"] = inputs.types_BL
    padding = padding_position(model)
    if padding is not None:
        arguments["position_ids"] = position_ids(inputs.attention_BL, padding)
    return model(**arguments)


def takes_token_types(model: nn.Module) -> bool:
    """Whether the model has a table of two or more token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) < 2:
        return False
    return "token_type_ids" in inspect.signature(model.forward).parameters


def padding_position(model: nn.Module) -> int | None:
    """Where padding is, in architectures that count places from 1 past it; None in others.

    RoBERTa and its kin count the ids that are not [PAD] (MPNet: not 1). A generator can sample that
    id, which would move every token after it; so they are told the places.
    """
    body: Any = model.base_model
    embeddings = getattr(body, "embeddings", None)
    if not hasattr(embeddings, "position_embeddings"):
        return None
    padding = getattr(embeddings, "padding_idx", None)
    return padding if isinstance(padding, int) else None


def position_ids(attention_BL: Tensor, padding: int) -> Tensor:
    """The places of real tokens, counted from 1 past that of padding.

    >>> import torch
    >>> position_ids(torch.tensor([[1, 1, 1, 0]]), 1)
    tensor([[2, 3, 4, 1]])
    """
    return attention_BL.cumsum(dim=1) * attention_BL + padding
