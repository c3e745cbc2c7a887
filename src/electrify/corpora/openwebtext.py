"""OpenWebText: archives of archives of text files, read in order and never unpacked to disk.

`tarfile` reads the 512-byte headers; the walk from one to the next is done here. The library's own
walk keeps every member it has seen, reads extended headers of any length into memory and, before
Python 3.11.10, searches them in quadratic time (CVE-2024-6232).
"""

import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from electrify.corpora import archive
from electrify.corpora.archive import COMPRESSED, LIMIT, PACKED_GAIN, PART, Truncated
from electrify.corpora.clean import decode
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.troubles import EMPTY, TOO_LARGE, TRUNCATED
from electrify.errors import UserError

ARCHIVES = (".tar", *COMPRESSED)  # the inner ones are named `…_data.xz`, without .tar
DEEPEST = 2
# Bytes of an inner archive that the parent hands on packed; of a larger one it hands on the texts.
# The real ones have about 1 MB.
MOST_INLINE = PART
MOST_HEADER = 1 << 20  # bytes of an extended header, the rest of it is skipped
NAME_SHOWN = 200

_LONG_NAME = tarfile.GNUTYPE_LONGNAME
_PAX = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_UNUSED = (tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE)  # about links, or about all members at once
SPARSE, LINK = "sparse file in archive", "link or device in archive"
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NOT_READ = dict.fromkeys(_FILES) | {tarfile.DIRTYPE: "", tarfile.GNUTYPE_SPARSE: SPARSE}


class _Input(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def skip(self, size: int) -> None: ...

    def tell(self) -> int: ...


class _Stream:
    """Blocks in order, as something to read from. A fault is raised after the bytes before it."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._held, self._position = blocks, memoryview(b""), 0
        self._fault: Truncated | None = None

    def read(self, size: int, /) -> bytes:
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
        while size > 0:
            passed = len(self.read(min(size, archive.BLOCK)))
            if not passed:
                raise Truncated("the archive ends inside a member")
            size -= passed

    def tell(self) -> int:
        return self._position

    def _fill(self) -> bool:
        try:
            self._held = memoryview(next(self._blocks, b""))
        except Truncated as fault:
            self._fault = fault
        return bool(self._held)


class _Window:
    """Bytes `start` to `stop` of a file, as something to read from."""

    def __init__(self, file: BinaryIO, start: int, stop: int) -> None:
        self._file, self._start, self._stop = file, start, stop
        file.seek(start)

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._stop - self._file.tell())
        return self._file.read(left if size < 0 else min(size, left))

    def skip(self, size: int) -> None:
        if self._file.tell() + size > self._stop:
            raise Truncated("the archive ends inside a member")
        self._file.seek(size, 1)

    def tell(self) -> int:
        return self._file.tell() - self._start


class _Head:
    """The next `size` bytes of an input, as a file that can be unpacked."""

    def __init__(self, source: _Input, size: int) -> None:
        self._source, self._start, self._stop = source, source.tell(), source.tell() + size

    def read(self, size: int = -1, /) -> bytes:
        left = self._stop - self._source.tell()
        return self._source.read(left if size < 0 else min(size, left))

    def tell(self) -> int:
        return self._source.tell() - self._start


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


def members(source: _Input) -> Iterator[Member]:
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


def _end(source: _Input, size: int) -> int:
    return source.tell() + size + -size % tarfile.BLOCKSIZE


def _header(source: _Input) -> tarfile.TarInfo | None:
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


class _Piece(NamedTuple):
    """A file inside an outer archive, or a trouble that was found instead of one."""

    name: str = ""
    start: int = 0
    stop: int = 0
    data: bytes = b""
    trouble: str = ""


def _weight(piece: _Piece) -> int:
    size = len(piece.data) or piece.stop - piece.start
    return size * (1 if piece.name.lower().endswith(".txt") else PACKED_GAIN)


def _kind(name: str) -> str:
    lower = name.lower()
    return "text" if lower.endswith(".txt") else "archive" if lower.endswith(ARCHIVES) else ""


def _trouble(member: Member) -> str | None:
    """Why a member is not to be read, or None if it is."""
    if member.not_read is not None:
        return member.not_read
    kind = _kind(member.name)
    if not kind:
        return "not a .txt file"
    return TOO_LARGE if kind == "text" and member.size > LIMIT else None


def _pieces(name: str, source: _Input, inline: bool) -> Iterator[_Piece]:
    """The files of an outer archive: where they are, or (`inline`) what is in them."""
    try:
        for member in members(source):
            trouble = _trouble(member)
            if trouble is not None:
                yield _Piece(trouble=trouble)
                continue
            start = source.tell()
            label = f"{name}:{member.number}:{member.name}"
            if not inline:
                yield _Piece(label, start, start + member.size)
            elif member.size <= MOST_INLINE:
                data = source.read(member.size)
                if len(data) == member.size or _kind(member.name) == "archive":
                    yield _Piece(label, start, start + member.size, data)
            else:
                tally: Counter[str] = Counter()
                for text_name, text in _of_file(label, source, member.size, 2, tally):
                    yield _Piece(text_name, data=text)
                yield from (_Piece(trouble=trouble) for trouble in tally.elements())
    except Truncated:
        yield _Piece(trouble=TRUNCATED)


@dataclass(frozen=True)
class OpenWebText:
    """OpenWebText as published: tar archives (packed or not) of packed tar archives of .txt files,
    or a folder of the inner ones. One .txt file is one document.
    """

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, ARCHIVES)
        total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0
        for batch in archive.group(files, lambda file: _file_weight(file[0])):
            path, name = batch[0]
            if path.suffix.lower() in COMPRESSED and archive.text_bytes(path) <= PART:
                done += sum(path.stat().st_size for path, _ in batch)
                slices = tuple(Slice(path) for path, _ in batch)
                names = tuple(name for _, name in batch)
                yield Part(name, slices=slices, context=names, share=done / total)
                continue
            with archive.open_source(path) as file:
                for part in _outer_parts(path, name, file):
                    yield replace(part, share=min(1, (done + file.tell()) / total))
            done += path.stat().st_size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        for name, text in _texts(part, tally):
            if content := decode(text, tally).strip():
                yield Document(name, content, part.source)
            else:
                tally[EMPTY] += 1


def _file_weight(path: Path) -> int:
    """A plain tar is always a group of its own: it is cut into its members."""
    return archive.text_bytes(path) if path.suffix.lower() in COMPRESSED else PART


def _outer_parts(path: Path, name: str, file: BinaryIO) -> Iterator[Part]:
    """The parts of a large archive: where its files are or, if it is packed, what is in them."""
    suffix = path.suffix.lower()
    inline = suffix in COMPRESSED
    source: _Input = _Window(file, 0, path.stat().st_size)
    if inline:
        source = _Stream(archive.decompress(file, suffix, path.name))
    try:
        for batch in archive.group(_pieces(name, source, inline), _weight):
            troubles = tuple(piece.trouble for piece in batch if piece.trouble)
            files = [piece for piece in batch if piece.name]
            if not files and not troubles:
                continue
            names = tuple(piece.name for piece in files)
            if inline:
                data = b"".join(piece.data for piece in files)
                sizes = tuple(len(piece.data) for piece in files)
                yield Part(name, data=data, context=(names, sizes), troubles=troubles)
            else:
                slices = tuple(Slice(path, piece.start, piece.stop) for piece in files)
                yield Part(name, slices=slices, context=names, troubles=troubles)
    except NotTar as error:
        raise _not_tar(name, error) from error


def _not_tar(name: str, error: Exception) -> UserError:
    return UserError(
        f"{name} is not a tar archive", got=str(error), fix="check the file, or the kind of corpus"
    )


def _texts(part: Part, tally: Counter[str]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every text file of a part."""
    if not part.slices:
        start = 0
        for name, size in zip(*(part.context or ((), ())), strict=True):
            yield from _of_file(
                name, _Stream(iter([part.data[start : start + size]])), size, 2, tally
            )
            start += size
        return
    for piece, name in zip(part.slices, part.context, strict=True):
        with archive.open_source(piece.path) as file:
            if piece.stop is None:
                blocks = archive.decompress(file, piece.path.suffix.lower(), name)
                yield from _of_archive(name, _Stream(blocks), 1, tally)
            else:
                window = _Window(file, piece.start, piece.stop)
                yield from _of_file(name, window, piece.stop - piece.start, 2, tally)


def _of_file(
    name: str, source: _Input, size: int, depth: int, tally: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    """The texts of a file in an archive: itself, or those in it if it is an archive too."""
    if _kind(name) == "text":
        data = source.read(size)
        if len(data) < size:
            raise Truncated(f"{name} is cut")
        yield name, data
    elif depth > DEEPEST:
        tally["archives nested too deep"] += 1
    else:
        suffix = "." + name.lower().rpartition(".")[2]
        raw = cast(BinaryIO, cast(Any, _Head(source, size)))
        yield from _of_archive(name, _Stream(archive.decompress(raw, suffix, name)), depth, tally)


def _of_archive(
    name: str, source: _Input, depth: int, tally: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    try:
        for member in members(source):
            trouble = _trouble(member)
            if trouble is None:
                label = f"{name}:{member.number}:{member.name}"
                yield from _of_file(label, source, member.size, depth + 1, tally)
            elif trouble:
                tally[trouble] += 1
    except Truncated:
        tally[TRUNCATED] += 1
    except NotTar as error:
        if depth == 1:
            raise _not_tar(name, error) from error
        tally["member is not a tar archive"] += 1
