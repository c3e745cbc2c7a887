"""Files, compressed streams and folders, read in order and without trusting them.

Nothing here writes. A stream that ends early or is damaged gives all bytes up to the fault and then
raises `Truncated`; a stream that unpacks to far more than text ever does is refused as a bomb.
"""

import bz2
import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from electrify.errors import UserError, needs
from electrify.storage.commit import sha256_of

BLOCK_BYTES = 1 << 20
MOST_RATIO = 200  # text packs 3 to 10 : 1, logs perhaps 50 : 1
RATIO_SLACK = 1 << 16  # bytes of input for free, so that short streams may pack well
PART = 16_000_000  # bytes of text that one part of a corpus should hold
LIMIT = 10_000_000  # bytes of one document; what is larger is not a text but an accident
PACKED_GAIN = 4  # how much larger packed text is than its file, for balancing parts only

_Item = TypeVar("_Item")


class Truncated(Exception):
    """A stream stopped before its end. What was read until then is good."""


class Readable(Protocol):
    """What can be read in order, and says how far it is read."""

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes, or fewer where the input ends."""
        ...

    def tell(self) -> int:
        """Return how many bytes are read."""
        ...


class _Zstandard:
    """read1 for zstd, which hands the library one block at a time.

    A block unpacks to 128 KiB at most, so no input can make one call return gigabytes; and a frame
    that ends early is seen, where the library's own reader ends it without a word.
    """

    _MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
    _WINDOW = 1 << 27  # what `zstd --ultra -22` needs; `--long=31` would take 2 GB of memory

    def __init__(self, raw: Readable) -> None:
        import zstandard

        self._raw = raw
        self._new = zstandard.ZstdDecompressor(max_window_size=self._WINDOW).decompressobj
        self._frame = self._new()
        self._inside = self._checksum = False

    def read1(self, size: int, /) -> bytes:
        while self._inside or self._next_frame():
            header = self._exactly(3)
            fields = int.from_bytes(header, "little")
            last, kind, length = fields & 1, fields >> 1 & 3, fields >> 3
            # kind 1 repeats one byte `length` times
            out = self._frame.decompress(header + self._exactly(1 if kind == 1 else length))
            if last:
                self._inside = False
                out += self._frame.decompress(self._exactly(4)) if self._checksum else b""
            if out:
                return out
        return b""

    def _next_frame(self) -> bool:
        while start := self._raw.read(4):
            magic = int.from_bytes(start, "little")
            if magic & ~0xF != self._SKIPPABLE:
                break
            left = int.from_bytes(self._exactly(4), "little")
            while left:
                left -= len(self._exactly(min(left, BLOCK_BYTES)))
        else:
            return False
        if magic != self._MAGIC:
            raise EOFError("no zstd frame begins here")
        descriptor = self._exactly(1)
        flags = descriptor[0]
        single = flags >> 5 & 1
        length = (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
        self._frame = self._new()
        self._frame.decompress(start + descriptor + self._exactly(length))
        self._inside, self._checksum = True, bool(flags >> 2 & 1)
        return True

    def _exactly(self, length: int) -> bytes:
        data = self._raw.read(length)
        if len(data) < length:
            raise EOFError("the last frame is not complete")
        return data


_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _Zstandard,
}
COMPRESSED = tuple(_OPENERS)


def packed_suffixes(*suffixes: str) -> tuple[str, ...]:
    """Each suffix alone and with that of every compression."""
    return tuple(suffix + end for suffix in suffixes for end in ("", *COMPRESSED))


def _damage_errors() -> tuple[type[Exception], ...]:
    try:
        from zstandard import ZstdError
    except ImportError:
        return (EOFError, OSError, zlib.error, lzma.LZMAError)
    return (EOFError, OSError, zlib.error, lzma.LZMAError, ZstdError)


def refuse_bomb(name: str, unpacked: int, stored: int) -> None:
    """Raise an error if so few stored bytes cannot be so much text."""
    if unpacked > MOST_RATIO * (stored + RATIO_SLACK):
        raise UserError(
            f"{name} unpacks to far more than text ever does",
            got=f"{unpacked:,} bytes out of {stored:,}, more than {MOST_RATIO} : 1",
            fix="leave this file out; if it is genuine, unpack it yourself and give the result",
        )


def decompress(raw: Readable, suffix: str, name: str) -> Iterator[bytes]:
    """The unpacked blocks of a stream; `suffix` (".gz", …) says how it is packed."""
    if suffix not in _OPENERS:
        try:
            while block := raw.read(BLOCK_BYTES):
                yield block
        except OSError as error:
            raise Truncated(f"{name} cannot be read to its end: {error}") from error
        return
    if suffix == ".zst":
        needs("zstandard", extra="data", why=f"unpacking {name}")
    stream = _OPENERS[suffix](raw)
    damage = _damage_errors()
    total = 0
    while True:
        try:
            block = stream.read1(BLOCK_BYTES)
        except damage as error:
            raise Truncated(f"{name} is cut or damaged after {total:,} bytes: {error}") from error
        if not block:
            return
        total += len(block)
        packed = raw.tell()
        refuse_bomb(name, total, packed)
        yield block


def read_blocks(path: Path, at: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """The content of a file in order, unpacked by its suffix; `at` is told how far it is read."""
    with open_source(path) as raw:
        for block in decompress(raw, path.suffix.lower(), path.name):
            if at:
                at(raw.tell())
            yield block


def open_source(path: Path) -> BinaryIO:
    """The file, opened for reading."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(
            f"{path} cannot be opened",
            got=str(error.strerror),
            fix="check the name and the permission to read it",
        ) from error


def read_all(blocks: Iterable[bytes], limit: int) -> bytes | None:
    """A document that is a whole stream; None if it has more than `limit` bytes."""
    held = bytearray()
    for block in blocks:
        held += block
        if len(held) > limit:
            return None
    return bytes(held)


def cut_after(
    blocks: Iterable[bytes], boundary: bytes, size: int, limit: int
) -> Iterator[tuple[bytes, int]]:
    """Cut a stream after the first `boundary` past `size` bytes, as (chunk, units left out) pairs.

    Where it cuts depends on the content alone, not on how the blocks come. A unit (what lies
    between two boundaries) that would make a chunk longer than `size + limit` is left out and
    counted, so memory stays flat whatever comes. What follows the last boundary is given too,
    unless the stream was cut: then only whole units are.
    """
    held, overlap = bytearray(), len(boundary) - 1
    most = size + limit + len(boundary)
    searched, skipping = size, False
    try:
        for block in blocks:
            held += block
            while True:
                if skipping:
                    found = held.find(boundary)
                    if found < 0:
                        del held[: max(0, len(held) - overlap)]
                        break
                    del held[: found + len(boundary)]
                    skipping = False
                found = held.find(boundary, searched, most)
                if found < 0 and len(held) < most:
                    searched = max(size, len(held) - overlap)
                    break
                skipping, searched = found < 0, size
                last = held.rfind(boundary, 0, size + overlap) if skipping else found
                whole = last + len(boundary) if last >= 0 else 0
                chunk = bytes(held[:whole])
                del held[:whole]  # before the yield: what is given is never held on
                yield chunk, int(skipping)
    except Truncated:
        if not skipping and (last := held.rfind(boundary)) >= 0:
            yield bytes(held[: last + len(boundary)]), 0
        raise
    if held and not skipping:
        yield bytes(held), 0


def group(
    items: Iterable[_Item], weigh: Callable[[_Item], int], size: int = PART
) -> Iterator[list[_Item]]:
    """Neighbours put together up to `size`; an item heavier than that is a group of its own."""
    together: list[_Item] = []
    total = 0
    for item in items:
        weight = weigh(item) + 4096  # opening costs too, and a million empty files are not one part
        if together and total + weight > size:
            yield together
            together, total = [], 0
        together.append(item)
        total += weight
    if together:
        yield together


def text_bytes(path: Path) -> int:
    """About how many bytes of text a file holds, by its size and suffix."""
    return path.stat().st_size * (PACKED_GAIN if path.suffix.lower() in COMPRESSED else 1)


def expand(sources: Sequence[Path], suffixes: Sequence[str]) -> list[tuple[Path, str]]:
    """The files of the sources, folders walked in sorted order, as (path, name for people).

    No two names are the same, also where two folders hold files of one name.
    """
    files: list[tuple[Path, str]] = []
    taken: set[str] = set()
    for source in sources:
        for path, name in _inside(source, suffixes):
            unique = name if name not in taken else f"{printable(source.name)}/{name}"
            count = 1
            while unique in taken:
                count += 1
                unique = f"{name}~{count}"
            taken.add(unique)
            files.append((path, unique))
    return files


def _inside(source: Path, suffixes: Sequence[str]) -> list[tuple[Path, str]]:
    if source.is_file():
        return [(source, printable(source.name))]
    if not source.is_dir():
        raise _unreadable(source)
    named = (
        (path, path.relative_to(source).as_posix())
        for path in source.rglob("*")
        if path.name.lower().endswith(tuple(suffixes))
        and not path.name.startswith(".")
        and path.is_file()
    )
    inside = sorted(named, key=lambda pair: pair[1])
    if not inside:
        raise UserError(
            f"no files to read in {source}",
            got=f"a folder without any {', '.join(suffixes)}",
            fix="check the folder, or the kind of corpus",
        )
    return [(path, printable(name)) for path, name in inside]


def _unreadable(source: Path) -> UserError:
    return UserError(
        f"{source} cannot be read",
        got="neither a file nor a folder" if source.exists() else "no such file or folder",
        fix="check the name",
    )


def printable(name: str) -> str:
    """A file name as text that can be stored: file systems allow bytes that are no characters."""
    return os.fsencode(name).decode("utf-8", "replace")


def source_fingerprint(source: Path) -> dict[str, object]:
    """Name, size and SHA-256 of a source; for a folder, of its sorted `sha256  name` lines."""
    if not source.is_dir() and not source.is_file():  # a pipe would never end
        raise _unreadable(source)
    if not source.is_dir():
        return {"name": source.name, "bytes": source.stat().st_size, "sha256": sha256_of(source)}
    digest, size, count = hashlib.sha256(), 0, 0
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        line = f"{sha256_of(path)}  {path.relative_to(source).as_posix()}\n"
        digest.update(os.fsencode(line))
        size += path.stat().st_size
        count += 1
    return {"name": source.name, "bytes": size, "files": count, "sha256": digest.hexdigest()}
