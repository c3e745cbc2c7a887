"""Read files, folders and compressed streams in order, without trusting their content.

Nothing here writes. A truncated or damaged stream yields all bytes up to the fault and then raises
`Truncated`. A stream that decompresses to far more than text ever does is refused as a bomb.
"""

import bz2
import codecs
import gzip
import hashlib
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from electrify.corpora.troubles import (
    CLOSED_FOLDER,
    HIDDEN_FILE,
    LINKED_FOLDER,
    NOT_A_FILE,
    OTHER_SUFFIX,
)
from electrify.errors import UserError, needs
from electrify.storage.commit import sha256_of

BLOCK_BYTES = 1 << 20
MAX_RATIO = 200  # text compresses 3 to 10 : 1, logs perhaps 50 : 1
RATIO_SLACK = 1 << 16  # bytes added to the input, so that short streams may compress well
PART_BYTES = 16_000_000  # target size of the text in one part of a corpus
MAX_DOCUMENT_BYTES = 10_000_000  # anything larger is an accident, not a text
TYPICAL_RATIO = 4  # of text to its compressed size; used only to balance parts

_Item = TypeVar("_Item")


class Truncated(Exception):
    """A stream stopped before its end; everything read until then is valid."""


class Readable(Protocol):
    """Anything that can be read in order and reports its position."""

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes, or fewer at the end of the input."""
        ...

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        ...


class _Zstandard:
    """Implement `read1` for zstd by passing the library one block at a time.

    A block decompresses to at most 128 KiB, so no input can make one call return gigabytes. A frame
    that ends early is detected, whereas the library's own reader stops silently.
    """

    _MAGIC, _SKIPPABLE = 0xFD2FB528, 0x184D2A50
    _WINDOW = 1 << 27  # what `zstd --ultra -22` needs; `--long=31` would take 2 GB of memory

    def __init__(self, raw: Readable) -> None:
        import zstandard

        self._raw = raw
        self._new = zstandard.ZstdDecompressor(max_window_size=self._WINDOW).decompressobj
        self._frame = self._new()
        self._in_frame = self._has_checksum = False

    def read1(self, size: int, /) -> bytes:
        while self._in_frame or self._next_frame():
            header = self._read_exactly(3)
            fields = int.from_bytes(header, "little")
            last, block_type, length = fields & 1, fields >> 1 & 3, fields >> 3
            # block type 1 repeats one byte `length` times
            content = self._read_exactly(1 if block_type == 1 else length)
            out = self._frame.decompress(header + content)
            if last:
                self._in_frame = False
                out += self._frame.decompress(self._read_exactly(4)) if self._has_checksum else b""
            if out:
                return out
        return b""

    def _next_frame(self) -> bool:
        while start := self._raw.read(4):
            magic = int.from_bytes(start, "little")
            if magic & ~0xF != self._SKIPPABLE:
                break
            remaining = int.from_bytes(self._read_exactly(4), "little")
            while remaining:
                remaining -= len(self._read_exactly(min(remaining, BLOCK_BYTES)))
        else:
            return False
        if magic != self._MAGIC:
            raise EOFError("not a zstd frame")
        descriptor = self._read_exactly(1)
        flags = descriptor[0]
        single = flags >> 5 & 1
        length = (0 if single else 1) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
        self._frame = self._new()
        self._frame.decompress(start + descriptor + self._read_exactly(length))
        self._in_frame, self._has_checksum = True, bool(flags >> 2 & 1)
        return True

    def _read_exactly(self, length: int) -> bytes:
        data = self._raw.read(length)
        if len(data) < length:
            raise EOFError("the last frame is incomplete")
        return data


_OPENERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": _Zstandard,
}
COMPRESSED = tuple(_OPENERS)


def compressed_suffixes(*suffixes: str) -> tuple[str, ...]:
    """Return each suffix alone and followed by the suffix of every compression format."""
    return tuple(suffix + compression for suffix in suffixes for compression in ("", *COMPRESSED))


def refuse_bomb(name: str, decompressed: int, stored: int) -> None:
    """Raise an error if the compression ratio is too high for text."""
    if decompressed > MAX_RATIO * (stored + RATIO_SLACK):
        raise UserError(
            f"{name} decompresses to far more than text ever does",
            got=f"{stored:,} bytes give {decompressed:,}, more than {MAX_RATIO} : 1",
            fix="leave this file out; if it is genuine, decompress it and use the result",
        )


def decompress(raw: Readable, suffix: str, name: str) -> Iterator[bytes]:
    """Yield the decompressed blocks of a stream whose format is given by `suffix` (".gz", …)."""
    if suffix not in _OPENERS:
        try:
            while block := raw.read(BLOCK_BYTES):
                yield block
        except OSError as error:
            raise Truncated(f"{name} cannot be read to its end: {error}") from error
        return
    damage: tuple[type[Exception], ...] = (EOFError, OSError, zlib.error, lzma.LZMAError)
    if suffix == ".zst":
        damage += (needs("zstandard", extra="data", why=f"decompressing {name}").ZstdError,)
    stream, total = _OPENERS[suffix](raw), 0
    while True:
        try:
            block = stream.read1(BLOCK_BYTES)
        except damage as error:
            raise Truncated(
                f"{name} is truncated or damaged after {total:,} bytes: {error}"
            ) from error
        if not block:
            return
        total += len(block)
        refuse_bomb(name, total, raw.tell())
        yield block


def read_blocks(path: Path, on_read: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """Yield the blocks of a file, decompressed by its suffix.

    Before each block, `on_read` is called with the number of bytes of the file read so far.
    """
    with open_source(path) as raw:
        for block in decompress(raw, path.suffix.lower(), path.name):
            if on_read:
                on_read(raw.tell())
            yield block


def open_source(path: Path) -> BinaryIO:
    """Open a file for reading."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(
            f"{path} cannot be opened",
            got=str(error.strerror),
            fix="check the path and the read permission",
        ) from error


def to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Convert a stream to UTF-8; invalid bytes become U+FFFD, unless it is UTF-8 already."""
    if encoding == "utf-8":
        return iter(blocks)
    return (text.encode() for text in codecs.iterdecode(blocks, encoding, "replace"))


def read_all(blocks: Iterable[bytes], limit: int) -> bytes | None:
    """Join the blocks of a stream; return None if there are more than `limit` bytes."""
    data = bytearray()
    for block in blocks:
        data += block
        if len(data) > limit:
            return None
    return bytes(data)


def cut_after(
    blocks: Iterable[bytes], boundary: bytes, size: int, limit: int
) -> Iterator[tuple[bytes, int]]:
    """Split a stream after the first `boundary` past `size` bytes.

    Yields pairs of a chunk and the number of units left out. The split points depend on the content
    alone, not on the sizes of the blocks. A unit (the bytes between two boundaries) that would make
    a chunk longer than `size + limit` is left out and counted, so memory use is bounded. The bytes
    after the last boundary are a unit too, unless the stream was truncated.
    """
    buffer, overlap = bytearray(), len(boundary) - 1
    max_chunk = size + limit + len(boundary)
    searched, skipping = size, False
    try:
        for block in blocks:
            buffer += block
            while True:
                if skipping:
                    found = buffer.find(boundary)
                    if found < 0:
                        del buffer[: max(0, len(buffer) - overlap)]
                        break
                    del buffer[: found + len(boundary)]
                    skipping = False
                found = buffer.find(boundary, searched, max_chunk)
                if found < 0 and len(buffer) < max_chunk:
                    searched = max(size, len(buffer) - overlap)
                    break
                skipping, searched = found < 0, size
                last = buffer.rfind(boundary, 0, size + overlap) if skipping else found
                end = last + len(boundary) if last >= 0 else 0
                chunk = bytes(buffer[:end])
                del buffer[:end]  # before the yield, so that the chunk is not held twice
                yield chunk, int(skipping)
    except Truncated:
        if not skipping and (last := buffer.rfind(boundary)) >= 0:
            yield bytes(buffer[: last + len(boundary)]), 0
        raise
    if buffer and not skipping:
        yield bytes(buffer), 0


def group(
    items: Iterable[_Item], size_of: Callable[[_Item], int], max_size: int = PART_BYTES
) -> Iterator[list[_Item]]:
    """Group consecutive items up to `max_size`; a larger item is a group of its own."""
    batch: list[_Item] = []
    total = 0
    for item in items:
        size = size_of(item) + 4096  # opening a file costs too: a million empty ones are many parts
        if batch and total + size > max_size:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def estimate_text_bytes(path: Path) -> int:
    """Estimate the bytes of text in a file from its size and suffix."""
    return path.stat().st_size * (TYPICAL_RATIO if path.suffix.lower() in COMPRESSED else 1)


def expand(sources: Sequence[Path], suffixes: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the files of the sources as (path, display name), folders in sorted order.

    Display names are unique, even if two folders contain files of the same name.
    """
    files: list[tuple[Path, str]] = []
    used: set[str] = set()
    for source in sources:
        for path, name in _files_in(source, suffixes):
            numbered = (f"{name}~{number}" for number in count(2))
            names = chain((name, f"{printable(source.name)}/{name}"), numbered)
            unique = next(candidate for candidate in names if candidate not in used)
            used.add(unique)
            files.append((path, unique))
    return files


def _files_in(source: Path, suffixes: Sequence[str]) -> list[tuple[Path, str]]:
    if source.is_file():
        return [(source, printable(source.name))]
    if not source.is_dir():
        raise unreadable(source)
    named = (
        (path, path.relative_to(source).as_posix())
        for path, reason in _walk(source, suffixes)
        if not reason
    )
    found = sorted(named, key=lambda pair: pair[1])
    if not found:
        raise UserError(
            f"{source} contains no files to read",
            got=f"a folder without any {', '.join(suffixes)} files",
            fix="check the folder, or choose another kind of corpus",
        )
    return [(path, printable(name)) for path, name in found]


def count_unread(sources: Sequence[Path], suffixes: Sequence[str]) -> Counter[str]:
    """Count, by reason, what `expand` leaves out in the folders among the sources."""
    folders = (source for source in sources if suffixes and source.is_dir())
    found = (reason for folder in folders for _, reason in _walk(folder, suffixes))
    return Counter(filter(None, found))


def _walk(folder: Path, suffixes: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield what is in a folder, and the reason not to read it; empty for a file to read.

    Links to folders are not followed, because they may lead back to where they are.
    """
    closed: list[OSError] = []
    for parent, names, files in os.walk(folder, onerror=closed.append):
        linked = (Path(parent, name) for name in names)
        yield from ((path, LINKED_FOLDER) for path in linked if path.is_symlink())
        for path in (Path(parent, name) for name in files):
            if path.name.startswith("."):
                yield path, HIDDEN_FILE
            elif not path.name.lower().endswith(tuple(suffixes)):
                yield path, OTHER_SUFFIX
            else:
                yield path, "" if path.is_file() else NOT_A_FILE
    yield from ((Path(error.filename), CLOSED_FOLDER) for error in closed)


def unreadable(source: Path) -> UserError:
    """Return the error for a source that is neither a file nor a folder."""
    return UserError(
        f"{source} cannot be read",
        got="neither a file nor a folder" if source.exists() else "no such file or folder",
        fix="check the path",
    )


def printable(name: str) -> str:
    """Return a file name as valid Unicode: file systems allow arbitrary bytes."""
    return os.fsencode(name).decode("utf-8", "replace")


def source_fingerprint(source: Path) -> dict[str, object]:
    """Return name, size and SHA-256 of a source; a folder is hashed by its `sha256  name` lines."""
    if source.is_file():
        return {"name": source.name, "bytes": source.stat().st_size, "sha256": sha256_of(source)}
    if not source.is_dir():  # reading a pipe might never end
        raise unreadable(source)
    files = sorted(path for path in source.rglob("*") if path.is_file())
    lines = (f"{sha256_of(path)}  {path.relative_to(source).as_posix()}\n" for path in files)
    return {
        "name": source.name,
        "bytes": sum(path.stat().st_size for path in files),
        "files": len(files),
        "sha256": hashlib.sha256(os.fsencode("".join(lines))).hexdigest(),
    }
