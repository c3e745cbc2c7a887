"""Pack several examples into each row of a batch, so that it has almost no padding.

Which examples share a row is a function of the shards alone: best fit decreasing, computed on the
histogram of the lengths, so its cost does not depend on the number of examples. The rows then take
the place of examples: they are shuffled, divided among ranks and seen once per epoch.
"""

# E examples, R rows, K documents per row

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.tokens.store import Shards, StoredExample

Indices = NDArray[np.int64]
Group = tuple[int, tuple[int, ...]]
"""A number of rows, and the sizes of the examples in each of them."""


class PackedRow(NamedTuple):
    """The examples of a row one after another, and the starts of its documents."""

    ids: NDArray[Any]
    types: NDArray[np.int64]
    starts: list[int]

    def token_types(self) -> NDArray[np.int64]:
        """Return BERT's token type ids, which start at 0 in each document."""
        return self.types


class PackedRows:
    """The examples of shards as packed rows, a sequence like `Shards`.

    A document is what attends to itself: an example, or, if the shards have the layout packed, each
    of the documents in it.
    """

    def __init__(self, shards: Shards) -> None:
        self.shards, self.folder, self.split = shards, shards.folder, shards.split
        self.manifest, self.length = shards.manifest, shards.length
        self._documents_in_example = self.manifest["identity"]["settings"].get("layout") == "packed"
        lengths_E, starts_E = shards.sizes()
        self._examples, self._bounds = pack_examples(lengths_E, self.length)
        documents_E = starts_E + 1 if self._documents_in_example else np.ones_like(starts_E)
        self.tokens = int(lengths_E.sum())
        self.most_documents = 0
        """The number of documents in the row that has most."""
        if len(self):
            in_order_E = documents_E[self._examples]
            self.most_documents = int(np.add.reduceat(in_order_E, self._bounds[:-1]).max())

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> PackedRow:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        first, last = self._bounds[index : index + 2]
        examples = [self.shards[int(example)] for example in self._examples[first:last]]
        starts: list[int] = []
        end = 0
        for example in examples:
            starts.append(end)
            if self._documents_in_example:
                starts += [end + int(start) for start in example.starts]
            end += len(example.ids)
        types = np.zeros(end, dtype=np.int64)
        if not self._documents_in_example:
            types = np.concatenate([example.token_types() for example in examples])
        return PackedRow(np.concatenate([example.ids for example in examples]), types, starts)

    def open_for(self, indices: Indices) -> None:
        """Do nothing: all shards were opened and verified for the lengths of their examples."""

    def document_starts(self, rows: Sequence[PackedRow | StoredExample]) -> Indices:
        """Return the starts of the documents of rows; unused entries have the length of a row.

        Padding counts as one more document. The shape is the same for any rows of the run.
        """
        starts_BK = np.full((len(rows), self.most_documents + 1), self.length)
        for row, packed in enumerate(rows):
            documents = len(packed.starts)
            starts_BK[row, :documents] = packed.starts
            starts_BK[row, documents] = len(packed.ids)
        return starts_BK


def pack_examples(lengths_E: Indices, length: int) -> tuple[Indices, Indices]:
    """Return the examples of all rows one after another, and where each row starts and ends.

    Rows are in the order of their first examples.

    >>> pack_examples(np.array([5, 3, 6, 2]), 8)
    (array([0, 1, 2, 3]), array([0, 2, 4]))
    """
    counts = np.bincount(lengths_E, minlength=length + 1)
    by_length_E = np.argsort(lengths_E, kind="stable")
    next_of = np.concatenate([[0], np.cumsum(counts)])
    groups = []
    for rows, sizes in compositions(counts.tolist(), length):
        group = np.empty((rows, len(sizes)), dtype=np.int64)
        for column, size in enumerate(sizes):
            group[:, column] = by_length_E[next_of[size] : next_of[size] + rows]
            next_of[size] += rows
        groups.append(np.sort(group, axis=1))
    none = np.zeros(0, dtype=np.int64)
    first_R = np.concatenate([none, *(group[:, 0] for group in groups)])
    widths_R = np.concatenate([none, *(np.full(len(g), g.shape[1]) for g in groups)])
    order_R = np.argsort(first_R)
    starts_R = np.cumsum(widths_R) - widths_R
    bounds = np.concatenate([[0], np.cumsum(widths_R[order_R])]).astype(np.int64)
    moved_R = starts_R[order_R] - bounds[:-1]
    flat_E = np.concatenate([none, *(group.ravel() for group in groups)])
    return flat_E[np.arange(len(flat_E)) + np.repeat(moved_R, widths_R[order_R])], bounds


def compositions(counts: Sequence[int], length: int) -> list[Group]:
    """Return how to fill rows with `counts[size]` examples of each size, by best fit decreasing.

    The longest examples come first, and each goes where the least space is left.

    >>> compositions([0, 0, 3, 0, 1], 6)
    [(1, (4, 2)), (1, (2, 2))]
    """
    done: list[Group] = []
    by_free: dict[int, list[Group]] = {}

    def put(free: int, rows: int, sizes: tuple[int, ...]) -> None:
        if rows:
            (by_free.setdefault(free, []) if free else done).append((rows, sizes))

    for size in range(length, 0, -1):
        left = counts[size] if size < len(counts) else 0
        for free in [*sorted(free for free in by_free if free >= size), length]:
            if not left:
                break
            each = free // size  # after the first one, the same row has the least space
            new_rows: list[Group] = [(-(-left // each), ())]
            for rows, sizes in by_free.pop(free) if free < length else new_rows:
                full, rest = min(rows, left // each), 0
                if full < rows:
                    rest = left - full * each
                put(free - each * size, full, sizes + (size,) * each)
                put(free - rest * size, int(rest > 0), sizes + (size,) * rest)
                put(free, rows - full - (rest > 0), sizes)
                left -= full * each + rest
    return done + [group for groups in by_free.values() for group in groups]
