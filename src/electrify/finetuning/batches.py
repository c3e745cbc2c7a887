"""Tokenized examples, the order in which fine-tuning sees them, and their batches.

Batch k is a function of the seed and k. Every epoch has a new order. Within chunks of the shuffled
order, examples of similar length are batched together, which saves padding; then the batches are
shuffled. The last batch of an epoch may be smaller.
"""

# B batch, L length

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from electrify.batches.keyed_random import key_of
from electrify.finetuning.encoder import Encoding
from electrify.finetuning.heads import Examples, Labelled
from electrify.finetuning.options import LabelKind

BATCHES_SORTED_TOGETHER = 50


class Rows(NamedTuple):
    """Tokenized examples."""

    ids: list[NDArray[np.int64]]
    types: list[NDArray[np.int64]]
    labels: NDArray[np.float64]
    """Class indices, or scores as the model learns them; zeros if there are no labels."""
    kind: LabelKind
    pad: int

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of each row."""
        return [len(ids) for ids in self.ids]

    def collate(self, indices: NDArray[np.int64]) -> Labelled:
        """Return the rows at the given indices as a batch, padded to the longest of them."""
        ids, types = ([column[index] for index in indices] for column in (self.ids, self.types))
        labels_B = torch.from_numpy(self.labels[indices])
        labels_B = labels_B.long() if self.kind == "classes" else labels_B.float()
        return Labelled(*padded(ids, types, self.pad), labels_B, torch.ones(len(indices)))


def to_rows(encodings: Sequence[Encoding], labels: ArrayLike, kind: LabelKind, pad: int) -> Rows:
    """Return encodings as rows; empty labels become zeros."""
    values = np.asarray(labels, np.float64)
    if not len(values):
        values = np.zeros(len(encodings))
    ids, types = ([np.array(getattr(e, n)) for e in encodings] for n in ("ids", "type_ids"))
    return Rows(ids, types, values, kind, pad)


def padded(
    ids: Sequence[NDArray[np.int64]], types: Sequence[NDArray[np.int64]], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Pad rows to the longest of them; returns ids, attention mask and token types."""

    def stack(rows: Iterable[NDArray[np.int64]], value: int = 0) -> Tensor:
        tensors = [torch.from_numpy(np.asarray(row, np.int64)) for row in rows]
        return pad_sequence(tensors, batch_first=True, padding_value=value)

    return stack(ids, pad), stack(np.ones_like(row) for row in ids), stack(types)


class BatchIndices(NamedTuple):
    """The indices of the examples of a batch or micro-batch."""

    examples: NDArray[np.int64]
    lengths: NDArray[np.int64]
    """Number of tokens of each example."""

    def rows(self, start: int, stop: int) -> "BatchIndices":
        """Return a slice of the rows; it may be shorter at the end of the batch."""
        return BatchIndices(self.examples[start:stop], self.lengths[start:stop])

    def totals(self) -> Examples:
        """Return the totals that the losses of the batch are divided by."""
        return Examples(len(self.examples), float(self.lengths.sum()))


class Shuffled:
    """Shuffled batches: `shuffled[k]` is batch k, counted across epochs."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed = batch_size, seed
        self.per_epoch = math.ceil(len(self.lengths) / batch_size)
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, index: int) -> BatchIndices:
        epoch, position = divmod(index, self.per_epoch)
        examples = self._epoch(epoch)[position]
        return BatchIndices(examples, self.lengths[examples])

    def _shuffled(self, epoch: int) -> list[NDArray[np.int64]]:
        rng = np.random.default_rng(int(key_of(self.seed, "fine-tuning order", epoch)))
        order = rng.permutation(len(self.lengths))
        chunk_size = self.batch_size * BATCHES_SORTED_TOGETHER
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), chunk_size):
            chunk = order[start : start + chunk_size]
            chunk = chunk[np.argsort(self.lengths[chunk], kind="stable")]
            batches += np.split(chunk, range(self.batch_size, len(chunk), self.batch_size))
        return [batches[position] for position in rng.permutation(len(batches))]


def batches_by_length(lengths: Sequence[int], batch_size: int) -> list[NDArray[np.int64]]:
    """Return the indices of all examples in batches of similar length, for prediction."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    return np.split(order, range(batch_size, len(order), batch_size)) if len(order) else []
