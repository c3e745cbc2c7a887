"""Mix general text into the examples of a run: a fixed fraction, at fixed positions.

Example number k of the run is a function of k and the seed, as without a mixture: general text
has every position at which k times its share passes an integer. Each source has its own order
and its own epochs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from electrify.batches.order import examples_at
from electrify.tokens.store import Shards, StoredExample


class Mixture:
    """The examples of two folders of shards, numbered one after the other."""

    def __init__(self, main: Shards, general: Shards, share: float) -> None:
        self.main, self.general, self.share = main, general, share
        self.folder, self.split, self.length = main.folder, main.split, main.length
        self.manifest: dict[str, Any] = main.manifest

    def __len__(self) -> int:
        """Return the examples of a run that has seen all of the main text once."""
        return round(len(self.main) / (1 - self.share))

    def __getitem__(self, index: int) -> StoredExample:
        count = len(self.main)
        return self.main[index] if index < count else self.general[index - count]

    def chosen(self, numbers: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return the indices of the examples at these positions of the run."""
        before = np.floor(numbers * self.share).astype(np.int64)
        is_general = np.floor((numbers + 1) * self.share).astype(np.int64) > before
        chosen = np.empty_like(numbers)
        here = numbers[~is_general] - before[~is_general]
        chosen[~is_general] = examples_at(here, len(self.main), seed)
        there = examples_at(before[is_general], len(self.general), seed)
        chosen[is_general] = len(self.main) + there
        return chosen

    @property
    def full(self) -> bool:
        """Whether no example of either is padded."""
        return self.main.full and self.general.full

    @property
    def all_open(self) -> bool:
        """Return whether every shard has been opened and verified."""
        return self.main.all_open and self.general.all_open

    def open_for(self, indices: NDArray[np.int64]) -> None:
        """Open and verify the shards that contain these examples."""
        count = len(self.main)
        self.main.open_for(indices[indices < count])
        self.general.open_for(indices[indices >= count] - count)
