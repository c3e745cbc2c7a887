"""Token shards: safetensors files that are memory-mapped, with O(1) access to example i.

A shard holds four arrays: `tokens` (uint16, or uint32 for vocabularies past 65,536), `offsets`
(example i is tokens[offsets[i]:offsets[i+1]]), `starts` (where each segment after the first begins
in its example) and `start_offsets` (example i has starts[start_offsets[i]:start_offsets[i+1]]).
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from electrify.commit import read_manifest
from electrify.errors import DamagedError, UserError
from electrify.tokens.examples import Example

SPLITS = ("train", "validation", "test")
LONGEST_HEADER = 1 << 20
_DTYPES: dict[str, np.dtype[Any]] = {
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
}
_INDEX = ("offsets", "starts", "start_offsets")
_STATED = ("examples", "tokens", "index_crc32")  # see shard_entry


class StoredExample(NamedTuple):
    """One example as it lies on disk: views, not copies."""

    ids: NDArray[Any]
    starts: NDArray[Any]

    def token_types(self) -> NDArray[np.int64]:
        """0 in the first segment, 1 in the second: what BERT calls token types."""
        types = np.zeros(len(self.ids), dtype=np.int64)
        if len(self.starts):
            types[self.starts[0] :] = 1
        return types


def to_arrays(examples: Sequence[Example], vocab_size: int) -> dict[str, NDArray[Any]]:
    """Examples as the arrays of a shard."""
    token_type = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    ids = np.fromiter(chain.from_iterable(e.ids for e in examples), dtype=token_type)
    starts = np.fromiter(chain.from_iterable(e.starts for e in examples), dtype=np.uint32)
    return {
        "tokens": ids,
        "offsets": _offsets(len(example.ids) for example in examples),
        "starts": starts,
        "start_offsets": _offsets(len(example.starts) for example in examples),
    }


def write_shard(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the arrays of a shard."""
    path.write_bytes(save(arrays, metadata={"electrify": "shard 1"}))


def shard_entry(arrays: dict[str, NDArray[Any]]) -> dict[str, int]:
    """What the manifest says of a shard beside its checksum: what is checked when it is opened."""
    return {
        "examples": len(arrays["offsets"]) - 1,
        "tokens": len(arrays["tokens"]),
        "index_crc32": _index_checksum(arrays),
    }


def _offsets(lengths: Iterable[int]) -> NDArray[np.int64]:
    counts = np.fromiter(lengths, dtype=np.int64)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _index_checksum(arrays: dict[str, NDArray[Any]]) -> int:
    checksum = 0
    for name in _INDEX:
        checksum = zlib.crc32(np.ascontiguousarray(arrays[name]).data, checksum)
    return checksum


def map_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, memory-mapped; its header is checked first."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise _damaged(path, f"a header of {length:,} bytes in a file of {size:,}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise _damaged(path, f"a header that is not JSON: {error}") from error
    header.pop("__metadata__", None)
    data = (
        np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length) if size > 8 + length else None
    )
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        try:
            dtype, (count,), (begin, end) = (
                _DTYPES[entry["dtype"]],
                entry["shape"],
                entry["data_offsets"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, f"no known array under {name!r}: {entry}") from error
        if not 0 <= begin <= end <= size - 8 - length or end - begin != count * dtype.itemsize:
            raise _damaged(path, f"{name} claims bytes {begin:,} to {end:,} for {count:,} values")
        arrays[name] = data[begin:end].view(dtype) if data is not None else np.zeros(0, dtype)
    return arrays


def _damaged(path: Path, got: str) -> DamagedError:
    return DamagedError(
        f"{path} is damaged",
        got=got,
        fix="`electrify show DIR --verify` names all such files; prepare the folder again",
    )


class Shard:
    """One open shard."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        arrays = map_arrays(path)
        if set(arrays) != {"tokens", *_INDEX}:
            raise _damaged(path, f"the arrays {sorted(arrays)}")
        if _index_checksum(arrays) != entry["index_crc32"]:
            raise _damaged(path, "an index that does not match the manifest's checksum")
        if (
            len(arrays["offsets"]) != entry["examples"] + 1
            or len(arrays["tokens"]) != entry["tokens"]
        ):
            raise _damaged(
                path, f"{len(arrays['tokens']):,} tokens, the manifest says {entry['tokens']:,}"
            )
        self._tokens, self._offsets = arrays["tokens"], arrays["offsets"]
        self._starts, self._start_offsets = arrays["starts"], arrays["start_offsets"]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> StoredExample:
        begin, end = self._offsets[index], self._offsets[index + 1]
        first, last = self._start_offsets[index], self._start_offsets[index + 1]
        return StoredExample(self._tokens[begin:end], self._starts[first:last])


class Shards:
    """All examples of one split of a prepared folder, as one sequence: `Shards(folder)[i].ids`."""

    def __init__(self, folder: Path, split: str = "train") -> None:
        self.folder, self.split = folder, split
        self.manifest = read_manifest(folder, "shards")
        self._entries = [e for e in self.manifest["files"] if e.get("split") == split]
        for entry in self._entries:
            if not all(isinstance(entry.get(key), int) for key in _STATED):
                raise _damaged(folder / "manifest.json", f"a shard without {', '.join(_STATED)}")
        self._ends = np.cumsum([entry["examples"] for entry in self._entries], dtype=np.int64)
        self._open: dict[int, Shard] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> StoredExample:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        if number not in self._open:
            entry = self._entries[number]
            path = self.folder / entry["name"]
            if not path.is_file():
                raise _damaged(path, "no such file")
            self._open[number] = Shard(path, entry)
        before = int(self._ends[number - 1]) if number else 0
        return self._open[number][index - before]

    def counts(self, vocab_size: int, examples: int) -> NDArray[np.int64]:
        """How often each token occurs in some examples, taken evenly from all."""
        chosen = range(0, len(self), max(1, len(self) // examples))
        ids = np.concatenate([self[index].ids for index in chosen])
        return np.bincount(ids, minlength=vocab_size).astype(np.int64)

    @cached_property
    def length(self) -> int:
        """The most tokens an example may have."""
        return int(self.manifest["identity"]["settings"]["length"])


def check_split(folder: Path, split: str) -> Shards:
    """The split's examples, or an error that says which splits have any."""
    shards = Shards(folder, split)
    if not len(shards):
        counts = {name: len(Shards(folder, name)) for name in SPLITS}
        raise UserError(
            f"{folder} has no {split} examples",
            got=", ".join(f"{name}: {count:,}" for name, count in counts.items()),
            fix="give another split, or prepare with a larger share for this one",
        )
    return shards
