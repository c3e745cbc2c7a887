"""Exact deduplication of any number of documents in bounded memory; the first one is kept."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])
KEYS_PER_PASS = 4_000_000  # about 300 MB while they are sorted


def text_key(text: str) -> bytes:
    """Return a hash of a text by which duplicates are found."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY.itemsize).digest()


def first_occurrences(files: Sequence[Path]) -> list[NDArray[np.bool_]]:
    """Return, for each file of keys, a mask of the keys that equal no earlier key in any file.

    The keys are compared in passes, one for each residue, so that only the keys of one pass are in
    memory at a time.
    """
    counts = [path.stat().st_size // KEY.itemsize for path in files]
    keep = np.zeros(sum(counts), dtype=bool)
    offsets = np.cumsum([0, *counts])
    passes = sum(counts) // KEYS_PER_PASS + 1
    for residue in range(passes):
        keys, positions = [np.zeros(0, KEY)], [np.zeros(0, np.int64)]
        for offset, path in zip(offsets, files, strict=False):
            file_keys = np.fromfile(path, dtype=KEY)
            rows = np.flatnonzero(file_keys["high"] % passes == residue)
            keys.append(file_keys[rows])
            positions.append(offset + rows)
        _, firsts = np.unique(np.concatenate(keys), return_index=True)
        keep[np.concatenate(positions)[firsts]] = True
    return np.split(keep, offsets[1:-1]) if files else []
