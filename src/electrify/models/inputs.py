"""What a masked batch is to a model, and how any architecture is called with it."""

# B batch, L length, N slots a row

import inspect
from typing import Any, NamedTuple

from torch import Tensor, nn


class Inputs(NamedTuple):
    """One batch, or some rows of one, as tensors."""

    ids_BL: Tensor
    """The original tokens."""
    masked_BL: Tensor
    """What the generator sees."""
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor
    """0 in the first segment, 1 in the second."""
    positions_BN: Tensor
    """The chosen places; 0 in slots that are not used."""
    weights_BN: Tensor
    """1 for slots that are used, 0 for others."""
    uniforms_BN: Tensor
    """One uniform number for each slot, to sample by."""


class Totals(NamedTuple):
    """What the losses of the global batch are divided by, known before any is computed."""

    slots: float
    tokens: float


def totals_of(inputs: Inputs) -> Totals:
    """The totals of a batch that is not split."""
    return Totals(float(inputs.weights_BN.sum()), float(inputs.attention_BL.sum()))


def call(model: nn.Module, ids_BL: Tensor, inputs: Inputs) -> Any:
    """A model's output for some ids, with token types where the architecture knows them."""
    arguments = {"input_ids": ids_BL, "attention_mask": inputs.attention_BL}
    if takes_token_types(model):
        arguments["token_type_ids"] = inputs.types_BL
    return model(**arguments)


def takes_token_types(model: nn.Module) -> bool:
    """Whether the model has a table of two or more token types."""
    config: Any = model.config
    if getattr(config, "type_vocab_size", 0) < 2:
        return False
    return "token_type_ids" in inspect.signature(model.forward).parameters
