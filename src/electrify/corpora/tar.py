"""Tar archives, read in order and never unpacked to disk.

`tarfile` reads the 512-byte headers; the walk from one to the next is done here. The library's own
walk keeps every member it has seen, reads extended headers of any length into memory and, before
Python 3.11.10, searches them in quadratic time (CVE-2024-6232).
"""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from electrify.corpora.archive import BLOCK_BYTES, Readable, Truncated

SPARSE, LINK = "sparse file in archive", "link or device in archive"
MOST_HEADER = 1 << 20  # bytes of an extended header, the rest of it is skipped
NAME_SHOWN = 200

_LONG_NAME = tarfile.GNUTYPE_LONGNAME
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_UNUSED = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)  # about links, or about all members at once
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NOT_READ = dict.fromkeys(_FILES) | {tarfile.DIRTYPE: "", tarfile.GNUTYPE_SPARSE: SPARSE}


class Input(Readable, Protocol):
    """An archive that is read in order."""

    def skip(self, size: int) -> None:
        """Pass over bytes, which must be there."""
        ...


class Stream:
    """Blocks in order, as something to read from. A fault is raised after the bytes before it."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._held, self._position = blocks, memoryview(b""), 0
        self._fault: Truncated | None = None

    def read(self, size: int, /) -> bytes:
        """Read `size` bytes, or fewer where the stream ends."""
        pieces = []
        while size > 0 and (self._held or self._fill()):
            pieces.append(self._held[:size])
            self._held = self._held[size:]
            size -= len(pieces[-1])
        if not pieces and size > 0 and self._fault:
            raise self._fault
        data = b"".join(pieces)
        self._position += len(data)
        return data

    def skip(self, size: int) -> None:
        """Pass over bytes, which must be there."""
        while size > 0:
            passed = len(self.read(min(size, BLOCK_BYTES)))
            if not passed:
                raise Truncated("the archive ends inside a member")
            size -= passed

    def tell(self) -> int:
        """Return how many bytes are read."""
        return self._position

    def _fill(self) -> bool:
        try:
            self._held = memoryview(next(self._blocks, b""))
        except Truncated as fault:
            self._fault = fault
        return bool(self._held)


class Bounded:
    """The next `size` bytes of an input, as a file that can be unpacked."""

    def __init__(self, source: Readable, size: int) -> None:
        self._source, self._start, self._stop = source, source.tell(), source.tell() + size

    def read(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes, all that are left if it is negative."""
        left = max(0, self._stop - self._source.tell())
        return self._source.read(left if size < 0 else min(size, left))

    def tell(self) -> int:
        """Return how many bytes are read."""
        return self._source.tell() - self._start


class FileWindow(Bounded):
    """Bytes `start` to `stop` of a file, as an archive."""

    def __init__(self, file: BinaryIO, start: int, stop: int) -> None:
        file.seek(start)
        super().__init__(file, stop - start)
        self._file = file

    def skip(self, size: int) -> None:
        """Pass over bytes, which must be there."""
        if self._file.tell() + size > self._stop:
            raise Truncated("the archive ends inside a member")
        self._file.seek(size, 1)


class Member(NamedTuple):
    """One entry of a tar archive. Right after it is given, the input stands at its data."""

    number: int
    name: str
    size: int
    not_read: str | None
    """None for a file; otherwise why it is left out, "" for a folder: that is no loss."""


class NotTar(Exception):
    """What should be a tar archive does not begin like one."""


class _Extension(NamedTuple):
    """What the extended headers before a member say about it."""

    name: str = ""
    size: int | None = None
    sparse: bool = False


def members(source: Input) -> Iterator[Member]:
    """The entries of a tar archive in order; the caller may read the data of each, or not."""
    number, extension = 0, _Extension()
    while (header := _header(source)) is not None:
        if header.type == _LONG_NAME:
            after = _end(source, header.size)
            long_name = source.read(min(header.size, MOST_HEADER)).rstrip(b"\0")
            extension = extension._replace(name=long_name.decode("utf-8", "replace"))
        elif header.type in _PAX:
            after = _end(source, header.size)
            extension = _pax(source.read(min(header.size, MOST_HEADER)), extension)
        elif header.type in _UNUSED:
            after = _end(source, header.size)
        else:
            number += 1
            size = header.size if extension.size is None else extension.size
            reason = _NOT_READ.get(header.type, LINK)
            after = _end(source, 0 if reason in ("", LINK) else size)  # these have no data
            name = _only_a_name(extension.name or header.name)
            yield Member(number, name, size, SPARSE if extension.sparse else reason)
            extension = _Extension()
        source.skip(after - source.tell())


def _end(source: Input, size: int) -> int:
    return source.tell() + size + -size % tarfile.BLOCKSIZE


def _header(source: Input) -> tarfile.TarInfo | None:
    start = source.tell()
    block = source.read(tarfile.BLOCKSIZE)
    if len(block) == tarfile.BLOCKSIZE and not any(block):
        return None  # a block of zeros is how an archive ends
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
        if header.size < 0:
            raise tarfile.HeaderError("negative size")
    except (tarfile.TarError, ValueError) as error:
        fault = Truncated if start else NotTar
        raise fault(f"no header at byte {start:,}: {error}") from error
    more = header.type == tarfile.GNUTYPE_SPARSE and block[482]
    while more:  # blocks that only list the holes
        block = source.read(tarfile.BLOCKSIZE)
        more = len(block) == tarfile.BLOCKSIZE and block[504]
    return header


def _pax(body: bytes, extension: _Extension) -> _Extension:
    """The records `length key=value` of a pax header that we need; others are stepped over."""
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


def _only_a_name(name: str) -> str:
    """A member's name as text for an id: no way up, no root, nothing unprintable; the end of it
    where it is very long, because that is where the suffix is.
    """
    steps = [step for step in name[-MOST_HEADER:].split("/") if step not in ("", ".", "..")]
    shown = "/".join(steps)[-NAME_SHOWN:]
    return "".join(char if char.isprintable() else "\ufffd" for char in shown)
