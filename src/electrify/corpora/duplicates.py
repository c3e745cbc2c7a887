"""Exact de-duplication over any number of documents in bounded memory, first come first kept."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])
KEYS_AT_ONCE = 4_000_000  # about 300 MB while they are sorted


def text_key(text: str) -> bytes:
    """What two documents share only if their texts are the same."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY.itemsize).digest()


def first_occurrences(files: Sequence[Path]) -> list[NDArray[np.bool_]]:
    """For each file of keys, which of them no earlier key in any file equals.

    The keys are looked at in passes, each over those of one residue, so that however many there
    are only a pass's share is in memory.
    """
    counts = [path.stat().st_size // KEY.itemsize for path in files]
    keep = np.zeros(sum(counts), dtype=bool)
    begins = np.cumsum([0, *counts])
    passes = sum(counts) // KEYS_AT_ONCE + 1
    for residue in range(passes):
        keys, places = [np.zeros(0, KEY)], [np.zeros(0, np.int64)]
        for begin, path in zip(begins, files, strict=False):
            mine = np.fromfile(path, dtype=KEY)
            rows = np.flatnonzero(mine["high"] % passes == residue)
            keys.append(mine[rows])
            places.append(begin + rows)
        _, firsts = np.unique(np.concatenate(keys), return_index=True)
        keep[np.concatenate(places)[firsts]] = True
    return np.split(keep, begins[1:-1]) if files else []
