"""Read tar archives in order, without extracting them to disk.

`tarfile` parses the 512-byte headers; this module walks from one to the next. The library's own
iteration keeps every member in memory, reads extended headers of any length and, before Python
3.11.10, searches them in quadratic time (CVE-2024-6232).
"""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from electrify.corpora.archive import BLOCK_BYTES, Readable, Truncated

SPARSE, LINK = "sparse file in archive", "link or device in archive"
MAX_HEADER_BYTES = 1 << 20  # of an extended header; the rest of it is skipped
MAX_NAME_CHARS = 200

_LONG_NAME = tarfile.GNUTYPE_LONGNAME
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_UNUSED = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)  # for links, or for all members
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NOT_READ = dict.fromkeys(_FILES) | {tarfile.DIRTYPE: "", tarfile.GNUTYPE_SPARSE: SPARSE}


class Input(Readable, Protocol):
    """An archive that can be read in order."""

    def skip(self, size: int) -> None:
        """Skip bytes; raise `Truncated` if the input ends first."""
        ...


class Stream:
    """A readable stream made of blocks; a fault is raised after the bytes before it."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._buffer, self._position = blocks, memoryview(b""), 0
        self._fault: Truncated | None = None

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes, or fewer at the end of the stream."""
        chunks = []
        while size > 0 and (self._buffer or self._fill()):
            chunks.append(self._buffer[:size])
            self._buffer = self._buffer[size:]
            size -= len(chunks[-1])
        if not chunks and size > 0 and self._fault:
            raise self._fault
        data = b"".join(chunks)
        self._position += len(data)
        return data

    def skip(self, size: int) -> None:
        """Skip bytes; raise `Truncated` if the input ends first."""
        while size > 0:
            skipped = len(self.read(min(size, BLOCK_BYTES)))
            if not skipped:
                raise Truncated("the archive ends inside a member")
            size -= skipped

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._position

    def _fill(self) -> bool:
        try:
            self._buffer = memoryview(next(self._blocks, b""))
        except Truncated as fault:
            self._fault = fault
        return bool(self._buffer)


class Bounded:
    """The next `size` bytes of an input as a file, which may be compressed."""

    def __init__(self, source: Readable, size: int) -> None:
        self._source, self._start, self._stop = source, source.tell(), source.tell() + size

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, or all remaining bytes if it is negative."""
        remaining = max(0, self._stop - self._source.tell())
        return self._source.read(remaining if size < 0 else min(size, remaining))

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._source.tell() - self._start


class FileWindow(Bounded):
    """Bytes `start` to `stop` of a file as an archive."""

    def __init__(self, file: BinaryIO, start: int, stop: int) -> None:
        file.seek(start)
        super().__init__(file, stop - start)
        self._file = file

    def skip(self, size: int) -> None:
        """Skip bytes; raise `Truncated` if the input ends first."""
        if self._file.tell() + size > self._stop:
            raise Truncated("the archive ends inside a member")
        self._file.seek(size, 1)


class Member(NamedTuple):
    """An entry of a tar archive; when it is yielded, the input is positioned at its data."""

    number: int
    name: str
    size: int
    not_read: str | None
    """None for a file; otherwise the reason not to read it, "" for a folder."""


class NotTar(Exception):
    """The input does not begin like a tar archive."""


class _Extension(NamedTuple):
    """The fields of a member that the extended headers before it override."""

    name: str = ""
    size: int | None = None
    sparse: bool = False


def members(source: Input) -> Iterator[Member]:
    """Yield the entries of a tar archive; the caller may read the data of each."""
    number, extension = 0, _Extension()
    while (header := _header(source)) is not None:
        after = _end(source, header.size)
        if header.type == _LONG_NAME:
            long_name = source.read(min(header.size, MAX_HEADER_BYTES)).rstrip(b"\0")
            extension = extension._replace(name=long_name.decode("utf-8", "replace"))
        elif header.type in _PAX:
            extension = _pax(source.read(min(header.size, MAX_HEADER_BYTES)), extension)
        elif header.type not in _UNUSED:
            number += 1
            size = header.size if extension.size is None else extension.size
            reason = _NOT_READ.get(header.type, LINK)
            after = _end(source, 0 if reason in ("", LINK) else size)  # these have no data
            name = _safe_name(extension.name or header.name)
            yield Member(number, name, size, SPARSE if extension.sparse else reason)
            extension = _Extension()
        source.skip(after - source.tell())


def _end(source: Input, size: int) -> int:
    return source.tell() + size + -size % tarfile.BLOCKSIZE


def _header(source: Input) -> tarfile.TarInfo | None:
    start = source.tell()
    block = source.read(tarfile.BLOCKSIZE)
    if len(block) == tarfile.BLOCKSIZE and not any(block):
        return None  # a block of zeros ends an archive
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        if header.size < 0:
            raise tarfile.HeaderError("negative size")
    except (tarfile.TarError, ValueError) as error:
        fault = Truncated if start else NotTar
        raise fault(f"no tar header at byte {start:,}: {error}") from error
    more = header.type == tarfile.GNUTYPE_SPARSE and block[482]
    while more:  # blocks that continue the list of holes
        block = source.read(tarfile.BLOCKSIZE)
        more = len(block) == tarfile.BLOCKSIZE and block[504]
    return header


def _pax(body: bytes, extension: _Extension) -> _Extension:
    """Parse the needed records of a pax header, which have the form `length key=value`."""
    position = 0
    while True:
        length, space, _ = body[position : position + 20].partition(b" ")
        if not (space and length.isdigit() and int(length) > len(length) + 1):
            return extension
        key, _, value = body[position + len(length) + 1 : position + int(length) - 1].partition(
            b"="
        )
        if key == b"path":
            extension = extension._replace(name=value.decode("utf-8", "replace"))
        elif key == b"size" and value.isdigit() and len(value) < 20:
            extension = extension._replace(size=int(value))
        elif key.startswith(b"GNU.sparse."):
            extension = extension._replace(sparse=True)
        position += int(length)


def _safe_name(name: str) -> str:
    """Return a member's name for use in an id: relative, without "..", printable.

    Only the end of a long name is kept, because it has the suffix.
    """
    parts = [part for part in name[-MAX_HEADER_BYTES:].split("/") if part not in ("", ".", "..")]
    shown = "/".join(parts)[-MAX_NAME_CHARS:]
    return "".join(char if char.isprintable() else "\ufffd" for char in shown)
