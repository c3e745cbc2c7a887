"""The order of the examples: a keyed permutation, so that seeking to any step is free.

Every epoch is a permutation of all examples by a Feistel network, which computes example number k
of the run without those before it.
"""

import numpy as np
from numpy.typing import NDArray

from electrify.batches.keyed_random import key_of, squares32

FEISTEL_ROUNDS = 6


def examples_at(numbers: NDArray[np.int64], total: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of the examples at these positions of the run, over all epochs."""
    if total < 1:
        raise ValueError(f"cannot order {total} examples")
    chosen = np.empty_like(numbers)
    epochs = numbers // total
    for epoch in np.unique(epochs):
        in_epoch = epochs == epoch
        chosen[in_epoch] = permuted(numbers[in_epoch] % total, total, seed, int(epoch))
    return chosen


def permuted(positions: NDArray[np.int64], total: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Apply an epoch's permutation of 0 … total - 1 to some positions."""
    half = max(1, (max(1, total - 1).bit_length() + 1) // 2)
    keys = [key_of(seed, f"order {round_}", epoch) for round_ in range(FEISTEL_ROUNDS)]
    values = positions.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    # The network permutes the next power of four. Applying it again to values that are too large
    # (cycle walking) keeps it a permutation, and takes fewer than four rounds on average.
    while outside.any():
        values[outside] = _network(values[outside], half, keys)
        outside = values >= np.uint64(total)
    return values.astype(np.int64)


def _network(values: NDArray[np.uint64], half: int, keys: list[np.uint64]) -> NDArray[np.uint64]:
    shift, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = values >> shift, values & mask
    with np.errstate(over="ignore"):
        for key in keys:
            mixed = squares32(right + np.uint64(1 << 32), key) & mask
            left, right = right, left ^ mixed
    return np.asarray((left << shift) | right)
