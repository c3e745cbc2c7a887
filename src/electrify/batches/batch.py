"""A masked batch: named fields, as arrays where it is made and as tensors where it is used."""

# B batch, L length, N masked positions a row

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

Array = TypeVar("Array")
Other = TypeVar("Other")


class Totals(NamedTuple):
    """What the losses of a global batch are divided by, known before any is computed."""

    slots: float
    tokens: float


class Batch(NamedTuple, Generic[Array]):
    """A global batch, or some rows of one."""

    ids_BL: Array
    """The original tokens."""
    masked_BL: Array
    """What a masked language model sees."""
    attention_BL: Array
    """1 for real tokens, 0 for padding."""
    types_BL: Array
    """0 in the first segment, 1 in the second."""
    positions_BN: Array
    """The positions to predict; 0 in slots that are not used."""
    weights_BN: Array
    """1 for slots that are used, 0 for others."""
    uniforms_BN: Array
    """One uniform number for each slot, to sample by."""

    def map(self, function: Callable[[Array], Other]) -> "Batch[Other]":
        """Return the batch with a function applied to every field."""
        return Batch._make(function(field) for field in self)

    def rows(self, start: int, stop: int) -> "Batch[Array]":
        """Return some of the rows."""
        return Batch._make(field[start:stop] for field in self)  # type: ignore[index]

    def totals(self) -> Totals:
        """Return what the losses are divided by if this is the whole global batch."""
        weights_BN: Any = self.weights_BN
        attention_BL: Any = self.attention_BL
        return Totals(float(weights_BN.sum()), float(attention_BL.sum()))
