"""The order in which examples are visited: a keyed permutation, so that seeking costs nothing.

Every epoch is a permutation of all examples by a Feistel network; example number k of the run is
found without the ones before it, however many there are.
"""

import numpy as np
from numpy.typing import NDArray

from electrify.batches.keyed_random import key_of, squares32

FEISTEL_ROUNDS = 6


def examples_at(numbers: NDArray[np.int64], total: int, seed: int) -> NDArray[np.int64]:
    """Which examples come at these places of the run, of `total` examples, epoch after epoch."""
    if total < 1:
        raise ValueError(f"no order of {total} examples")
    chosen = np.empty_like(numbers)
    epochs = numbers // total
    for epoch in np.unique(epochs):
        mine = epochs == epoch
        chosen[mine] = permuted(numbers[mine] % total, total, seed, int(epoch))
    return chosen


def permuted(places: NDArray[np.int64], total: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The image of some places under the epoch's permutation of 0 … total - 1."""
    half = max(1, (max(1, total - 1).bit_length() + 1) // 2)
    keys = [key_of(seed, f"order {round_}", epoch) for round_ in range(FEISTEL_ROUNDS)]
    values = places.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    # The network permutes the next power of four; walking on from what is too large stays a
    # permutation of the rest, and takes fewer than four steps on average.
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
