"""OpenWebText: archives of archives of text files, read in order and never unpacked to disk."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import COMPRESSED, LIMIT, PACKED_GAIN, PART, Truncated
from electrify.corpora.clean import decode_utf8
from electrify.corpora.document import Document, Part, Slice, part_of_files
from electrify.corpora.tar import Bounded, FileWindow, Input, Member, NotTar, Stream, members
from electrify.corpora.troubles import EMPTY, TOO_LARGE, TRUNCATED
from electrify.errors import UserError

ARCHIVES = (".tar", *COMPRESSED)  # the inner ones are named `…_data.xz`, without .tar
MOST_NESTED = 2
# Bytes of an inner archive that the parent hands on packed; of a larger one it hands on the texts.
# The real ones have about 1 MB.
MOST_INLINE = PART


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


def _pieces(name: str, source: Input, inline: bool) -> Iterator[_Piece]:
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
                yield part_of_files(batch, done / total)
                continue
            with archive.open_source(path) as file:
                for part in _outer_parts(path, name, file):
                    yield replace(part, share=min(1, (done + file.tell()) / total))
            done += path.stat().st_size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        for name, text in _texts(part, tally):
            if content := decode_utf8(text, tally).strip():
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
    source: Input = FileWindow(file, 0, path.stat().st_size)
    if inline:
        source = Stream(archive.decompress(file, suffix, path.name))
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
                name, Stream(iter([part.data[start : start + size]])), size, 2, tally
            )
            start += size
        return
    for piece, name in zip(part.slices, part.context, strict=True):
        with archive.open_source(piece.path) as file:
            if piece.stop is None:
                blocks = archive.decompress(file, piece.path.suffix.lower(), name)
                yield from _of_archive(name, Stream(blocks), 1, tally)
            else:
                window = FileWindow(file, piece.start, piece.stop)
                yield from _of_file(name, window, piece.stop - piece.start, 2, tally)


def _of_file(
    name: str, source: Input, size: int, depth: int, tally: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    """The texts of a file in an archive: itself, or those in it if it is an archive too."""
    if _kind(name) == "text":
        data = source.read(size)
        if len(data) < size:
            raise Truncated(f"{name} is cut")
        yield name, data
    elif depth > MOST_NESTED:
        tally["archives nested too deep"] += 1
    else:
        suffix = "." + name.lower().rpartition(".")[2]
        blocks = archive.decompress(Bounded(source, size), suffix, name)
        yield from _of_archive(name, Stream(blocks), depth, tally)


def _of_archive(
    name: str, source: Input, depth: int, tally: Counter[str]
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
