"""Token shards: memory-mapped safetensors files with O(1) access to example i.

A shard has four arrays: `tokens` (uint16, or uint32 for vocabularies above 65,536), `offsets`
(example i is tokens[offsets[i]:offsets[i+1]]), `starts` (the start of each segment after the first
in its example) and `start_offsets` (example i has starts[start_offsets[i]:start_offsets[i+1]]).
"""

import json
import operator
import os
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from electrify.errors import DamagedError, UserError
from electrify.storage.commit import describe_damage, read_manifest
from electrify.storage.verified import Stamp, Verified, stamp_of
from electrify.tokens import tokenizer
from electrify.tokens.examples import Example
from electrify.tokens.splits import SPLITS

LONGEST_HEADER = 1 << 20
_DTYPES: dict[str, np.dtype[Any]] = {
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
}
_INDEX = ("offsets", "starts", "start_offsets")


class StoredExample(NamedTuple):
    """One example, as views of the memory-mapped file."""

    ids: NDArray[Any]
    starts: NDArray[Any]

    def token_types(self) -> NDArray[np.int64]:
        """Return BERT's token type ids: 0 in the first segment, 1 in the others."""
        types = np.zeros(len(self.ids), dtype=np.int64)
        if len(self.starts):
            types[self.starts[0] :] = 1
        return types

    def window(self, length: int, draw: float) -> "StoredExample":
        """Return `length` tokens of a longer example: its first and last, and some in between.

        `draw`, at least 0 and below 1, chooses where the window starts.
        """
        if len(self.ids) <= length:
            return self
        start = 1 + int(draw * (len(self.ids) - length + 1))
        ids = np.concatenate([self.ids[:1], self.ids[start : start + length - 2], self.ids[-1:]])
        shifted = self.starts.astype(np.int64) - start + 1
        return StoredExample(ids, shifted[(shifted > 1) & (shifted < length - 1)])


def to_arrays(examples: Sequence[Example], vocab_size: int) -> dict[str, NDArray[Any]]:
    """Return examples as the arrays of a shard."""
    dtype = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    ids = np.fromiter(chain.from_iterable(e.ids for e in examples), dtype=dtype)
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
    """Return the fields of a manifest entry that are checked when a shard is opened."""
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
    """Return the memory-mapped arrays of a safetensors file after checking its header."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise _damaged(path, f"a header of {length:,} bytes in a file of {size:,}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise _damaged(path, f"a header that is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _damaged(path, f"a header that is not an object but {type(header).__name__}")
    header.pop("__metadata__", None)
    data = (
        np.memmap(path, dtype=np.uint8, mode="r", offset=8 + length) if size > 8 + length else None
    )
    arrays: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        try:
            dtype = _DTYPES[entry["dtype"]]
            (count,) = map(operator.index, entry["shape"])
            begin, end = map(operator.index, entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            got = f"an invalid description of array {name!r:.100}: {entry!r:.100}"
            raise _damaged(path, got) from error
        if not 0 <= begin <= end <= size - 8 - length or end - begin != count * dtype.itemsize:
            raise _damaged(path, f"{name} claims bytes {begin:,} to {end:,} for {count:,} values")
        arrays[name] = data[begin:end].view(dtype) if data is not None else np.zeros(0, dtype)
    return arrays


def _damaged(path: Path, got: str) -> DamagedError:
    return DamagedError(
        f"{path} is damaged",
        got=got,
        fix="prepare the folder again; `electrify show DIR --verify` lists all damaged files",
    )


class Shard:
    """One open shard."""

    def __init__(self, path: Path, entry: dict[str, Any]) -> None:
        arrays = map_arrays(path)
        if set(arrays) != {"tokens", *_INDEX}:
            raise _damaged(path, f"the arrays {sorted(arrays)}")
        if _index_checksum(arrays) != entry["index_crc32"]:
            raise _damaged(path, "an index that does not match its checksum in the manifest")
        self._tokens, self._offsets = arrays["tokens"], arrays["offsets"]
        self._starts, self._start_offsets = arrays["starts"], arrays["start_offsets"]
        counts = len(self._offsets) - 1, len(self._tokens)
        if counts != (entry["examples"], entry["tokens"]):
            got = f"{len(self._tokens):,} tokens, the manifest says {entry['tokens']:,}"
            raise _damaged(path, got)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def fault(self, vocab_size: int, length: int) -> str:
        """Describe ids or lengths that cannot be right; empty if there are none."""
        if self._tokens.dtype.kind != "u":
            return f"tokens of type {self._tokens.dtype}"
        largest = int(self._tokens.max(initial=0))
        if largest >= vocab_size:
            return f"token {largest:,} in a vocabulary of {vocab_size:,}"
        index = ((self._offsets, self._tokens), (self._start_offsets, self._starts))
        for bounds, values in index:
            covers = len(bounds) == len(self) + 1 and bounds[0] == 0 and bounds[-1] == len(values)
            if not covers or (np.diff(bounds) < 0).any():
                return "an index that does not cover its examples"
        longest = int(np.diff(self._offsets).max(initial=0))
        return f"an example of {longest:,} tokens, the maximum is {length:,}" * (longest > length)

    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of tokens and of segment starts of every example."""
        return np.diff(self._offsets), np.diff(self._start_offsets)

    def __getitem__(self, index: int) -> StoredExample:
        begin, end = self._offsets[index], self._offsets[index + 1]
        first, last = self._start_offsets[index], self._start_offsets[index + 1]
        return StoredExample(self._tokens[begin:end], self._starts[first:last])


class Shards:
    """The examples of one split of a prepared folder, as a sequence: `Shards(folder)[i].ids`.

    A shard is verified against its checksum when its first example is read, or earlier by
    `verify_ahead`. Every process verifies what it reads, so all of them stop at the same batch.
    """

    def __init__(
        self, folder: Path, split: str = "train", verified: Verified | None = None
    ) -> None:
        self.folder, self.split = folder, split
        self.verified = Verified() if verified is None else verified
        self.manifest = read_manifest(folder, "shards")
        identity = self.manifest["identity"]
        self.vocab_size: int = identity["tokenizer"]["vocab_size"]
        self.length: int = identity["settings"]["length"]
        """The maximum number of tokens per example."""
        self._entries = [e for e in self.manifest["files"] if e.get("split") == split]
        self._ends = np.cumsum([entry["examples"] for entry in self._entries], dtype=np.int64)
        self._open: dict[int, Shard] = {}
        self._renew_locks()
        _ALL_SHARDS.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and split; the copy in another process opens the files itself."""
        return Shards, (self.folder, self.split)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> StoredExample:
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index, side="right"))
        shard = self._open.get(number)
        if shard is None:
            shard = self._opened(number)
        before = int(self._ends[number - 1]) if number else 0
        return shard[index - before]

    @property
    def full(self) -> bool:
        """Whether every example has the maximum number of tokens, so that none is padded."""
        return sum(int(entry["tokens"]) for entry in self._entries) == len(self) * self.length

    def open_for(self, indices: NDArray[np.int64]) -> None:
        """Open and verify the shards that contain these examples."""
        for number in np.unique(np.searchsorted(self._ends, indices, side="right")):
            self._opened(int(number))

    @property
    def all_open(self) -> bool:
        """Return whether every shard has been opened and verified."""
        return len(self._open) == len(self._entries)

    def sizes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of tokens and of segment starts of every example of all shards."""
        sizes = [self._opened(number).sizes() for number in range(len(self._entries))]
        lengths, starts = zip(*sizes, strict=True) if sizes else ((), ())
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *lengths]), np.concatenate([none, *starts])

    def _renew_locks(self) -> None:
        self._locks = [Lock() for _ in self._entries]

    def _opened(self, number: int) -> Shard:
        with self._locks[number]:  # only one of several threads computes the hash
            if number not in self._open:
                self._open[number] = self._verified(self._entries[number])
            return self._open[number]

    def _verified(self, entry: dict[str, Any]) -> Shard:
        path, stamp = self.folder / entry["name"], self._stamp(entry)
        if stamp in self.verified:
            return Shard(path, entry)
        if fault := describe_damage(self.folder, entry):
            raise _damaged(path, fault)
        shard = Shard(path, entry)
        if fault := shard.fault(self.vocab_size, self.length):
            raise _damaged(path, fault)
        if stamp:
            self.verified.add(stamp)
        return shard

    def _stamp(self, entry: dict[str, Any]) -> Stamp | None:
        path = self.folder / entry["name"]
        return stamp_of(path, entry["sha256"]) if path.is_file() else None

    def unverified(self) -> list[int]:
        """Return the sizes in bytes of the shards that have not been verified."""
        return [e["bytes"] for e in self._entries if self._stamp(e) not in self.verified]

    def verify(self, count: int) -> None:
        """Verify the shards that contain the first `count` examples."""
        last = int(np.searchsorted(self._ends, count - 1, side="right"))
        for number in range(last + 1):
            self._opened(number)

    def verify_ahead(self) -> None:
        """Verify all shards in the background, ahead of the batches that need them."""
        Thread(target=self._verify_all, daemon=True).start()

    def _verify_all(self) -> None:
        for number in range(len(self._entries)):
            with suppress(DamagedError, OSError):  # raised again when an example is read
                self._opened(number)
        self.verified.save()

    def tokenizer(self) -> tokenizer.LoadedTokenizer:
        """Load the tokenizer of the shards; it is an error if its files have changed."""
        for entry in self.manifest["files"]:
            if "split" not in entry and (fault := describe_damage(self.folder, entry)):
                raise _damaged(self.folder / entry["name"], fault)
        loaded = tokenizer.load_tokenizer(self.folder / "tokenizer")
        if loaded.vocab_size != self.vocab_size:
            got = f"{loaded.vocab_size:,} tokens, the manifest says {self.vocab_size:,}"
            raise _damaged(self.folder / "tokenizer", got)
        return loaded

    def counts(self, vocab_size: int, examples: int) -> NDArray[np.int64]:
        """Count each token in about `examples` evenly spaced examples."""
        chosen = range(0, len(self), max(1, len(self) // examples))
        ids = np.concatenate([self[index].ids for index in chosen])
        return np.bincount(ids, minlength=vocab_size).astype(np.int64)


_ALL_SHARDS: WeakSet[Shards] = WeakSet()


def _renew_locks_after_fork() -> None:
    """Replace locks, because threads that held them do not exist in the child process."""
    for shards in _ALL_SHARDS:
        shards._renew_locks()


os.register_at_fork(after_in_child=_renew_locks_after_fork)


def check_split(folder: Path, split: str, verified: Verified | None = None) -> Shards:
    """Return the examples of a split; if it has none, the error lists the counts of all splits."""
    shards = Shards(folder, split, verified)
    if not len(shards):
        counts = {name: len(Shards(folder, name)) for name in SPLITS}
        raise UserError(
            f"{folder} has no {split} examples",
            got=", ".join(f"{name}: {count:,}" for name, count in counts.items()),
            fix="use another split, or prepare with a larger fraction for this one",
        )
    return shards
