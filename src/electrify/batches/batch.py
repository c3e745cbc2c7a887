"""A masked batch: named fields that are NumPy arrays in the loader and tensors in training."""

# B batch, L length, N masked positions per row, K documents per row

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

Array = TypeVar("Array")
Other = TypeVar("Other")


class Totals(NamedTuple):
    """The denominators of the losses of a global batch, known before any loss is computed."""

    slots: float
    tokens: float


class Batch(NamedTuple, Generic[Array]):
    """A global batch, or some rows of one."""

    ids_BL: Array
    """The original tokens."""
    masked_BL: Array
    """The tokens with [MASK], the input of a masked language model."""
    attention_BL: Array
    """1 for real tokens, 0 for padding."""
    types_BL: Array
    """0 in the first segment, 1 in the second."""
    positions_BN: Array
    """The positions to predict; 0 in unused slots."""
    weights_BN: Array
    """1 for used slots, 0 for unused ones."""
    uniforms_BN: Array
    """A uniform random number per slot, for sampling."""
    starts_BK: Array | None = None
    """Packed rows: the start of each document, then that of the padding, then L; else None."""

    def map(self, function: Callable[[Array], Other]) -> "Batch[Other]":
        """Return the batch with a function applied to every field."""
        return Batch._make(None if field is None else function(field) for field in self)

    def rows(self, start: int, stop: int) -> "Batch[Array]":
        """Return some of the rows."""
        return self.map(lambda field: field[start:stop])  # type: ignore[index]

    def totals(self) -> Totals:
        """Return the denominators of the losses if this is the whole global batch."""
        weights_BN: Any = self.weights_BN
        attention_BL: Any = self.attention_BL
        return Totals(float(weights_BN.sum()), float(attention_BL.sum()))
