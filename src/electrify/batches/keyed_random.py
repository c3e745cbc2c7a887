"""Counter-based random numbers: each is a function of (seed, purpose, step, row, slot).

There is no generator state, so a resumed run, another world size or another number of workers draws
the same numbers. The generator is Squares (Widynski, 2020): four rounds of squaring a counter under
a key.
"""

# R rows, K numbers per row

import hashlib

import numpy as np
from numpy.typing import NDArray

_HALF = np.uint64(32)


def key_of(seed: int, purpose: str, step: int = 0) -> np.uint64:
    """Return an irregular odd key, as Squares requires, for a seed, a purpose and a step."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "big") | 1)


def squares32(counters: NDArray[np.uint64], key: np.uint64) -> NDArray[np.uint64]:
    """Return 32 random bits for each counter."""
    x = y = counters * key
    z = y + key
    for added in (y, z, y):
        x = x * x + added
        x = (x >> _HALF) | (x << _HALF)
    return np.asarray((x * x + z) >> _HALF)


def uniforms(key: np.uint64, rows: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return uniform numbers in (0, 1) for rows of a batch, [R, K], independent of other rows."""
    with np.errstate(over="ignore"):
        # Squares is weak for small counters, so they start well above zero.
        start = (rows.astype(np.uint64) + np.uint64(1)) << _HALF
        counters_RK = np.add.outer(start, np.arange(count, dtype=np.uint64))
        bits_RK = squares32(counters_RK, key)
    return (bits_RK.astype(np.float64) + 0.5) / 2**32
