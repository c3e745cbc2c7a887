"""Labelled texts as rows of tokens, in which order fine-tuning sees them, and batches of them.

Batch k is a function of the seed and k. Every epoch is a new shuffle. Within stretches of it
examples of like length are put together, so that a batch is padded to the longest of its own and
short texts do not pay for long ones; then the batches are shuffled. The last batch of an epoch may
be smaller.
"""

# B batch, L length

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from electrify.batches.keyed_random import key_of
from electrify.finetuning.encoder import Encoding
from electrify.finetuning.heads import Examples, Labelled
from electrify.finetuning.options import LabelKind

BATCHES_SORTED_TOGETHER = 50


class Rows(NamedTuple):
    """Examples as tokens."""

    ids: list[NDArray[np.int64]]
    types: list[NDArray[np.int64]]
    labels: NDArray[np.float64]
    """Numbers of classes, or scores as they are to be learned; zeros where there are none."""
    kind: LabelKind
    pad: int

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [len(ids) for ids in self.ids]

    def collate(self, numbers: NDArray[np.int64]) -> Labelled:
        """Some rows as a batch that is as long as the longest of them."""
        ids, types = ([some[number] for number in numbers] for some in (self.ids, self.types))
        labels_B = torch.from_numpy(self.labels[numbers])
        labels_B = labels_B.long() if self.kind == "classes" else labels_B.float()
        return Labelled(*padded(ids, types, self.pad), labels_B, torch.ones(len(numbers)))


def as_rows(made: Sequence[Encoding], labels: ArrayLike, kind: LabelKind, pad: int) -> Rows:
    """Encodings as rows; no labels are zeros."""
    given = np.asarray(labels, np.float64)
    values = given if len(given) else np.zeros(len(made))
    ids, types = ([np.array(getattr(e, n)) for e in made] for n in ("ids", "type_ids"))
    return Rows(ids, types, values, kind, pad)


def padded(
    ids: Sequence[NDArray[np.int64]], types: Sequence[NDArray[np.int64]], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows as long as the longest of them: ids, which are real, and in which segment."""
    ids_BL = np.full((len(ids), max(map(len, ids))), pad)
    types_BL, attention_BL = np.zeros_like(ids_BL), np.zeros_like(ids_BL)
    for row, (some, kinds) in enumerate(zip(ids, types, strict=True)):
        ids_BL[row, : len(some)] = some
        types_BL[row, : len(some)] = kinds
        attention_BL[row, : len(some)] = 1
    return torch.from_numpy(ids_BL), torch.from_numpy(attention_BL), torch.from_numpy(types_BL)


class Numbers(NamedTuple):
    """The numbers of the examples of a batch, or of some rows of one."""

    examples: NDArray[np.int64]
    lengths: NDArray[np.int64]
    """Their tokens."""

    def rows(self, start: int, stop: int) -> "Numbers":
        """Some rows; fewer than asked for where the batch ends."""
        return Numbers(self.examples[start:stop], self.lengths[start:stop])

    def totals(self) -> Examples:
        """Return what the losses of the batch are divided by."""
        return Examples(len(self.examples), float(self.lengths.sum()))


class Shuffled:
    """`shuffled[k]` is batch k of epoch after epoch."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = np.asarray(lengths)
        self.batch_size, self.seed = batch_size, seed
        self.per_epoch = math.ceil(len(self.lengths) / batch_size)
        self._epoch = lru_cache(maxsize=2)(self._shuffled)

    def __getitem__(self, number: int) -> Numbers:
        epoch, place = divmod(number, self.per_epoch)
        chosen = self._epoch(epoch)[place]
        return Numbers(chosen, self.lengths[chosen])

    def _shuffled(self, epoch: int) -> list[NDArray[np.int64]]:
        draw = np.random.default_rng(int(key_of(self.seed, "fine-tuning order", epoch)))
        order = draw.permutation(len(self.lengths))
        stretch = self.batch_size * BATCHES_SORTED_TOGETHER
        batches: list[NDArray[np.int64]] = []
        for start in range(0, len(order), stretch):
            part = order[start : start + stretch]
            part = part[np.argsort(self.lengths[part], kind="stable")]
            batches += np.split(part, range(self.batch_size, len(part), self.batch_size))
        return [batches[place] for place in draw.permutation(len(batches))]


def by_length(lengths: Sequence[int], batch_size: int) -> list[NDArray[np.int64]]:
    """The numbers of all examples in batches of like length, for prediction."""
    order = np.argsort(np.asarray(lengths), kind="stable")
    return np.split(order, range(batch_size, len(order), batch_size)) if len(order) else []
