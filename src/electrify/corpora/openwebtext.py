"""Read OpenWebText: nested archives of text files, read in order and never extracted to disk."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import COMPRESSED, MAX_DOCUMENT_BYTES, PART_BYTES, Truncated
from electrify.corpora.clean import decode_utf8
from electrify.corpora.document import Document, Part, Slice, part_of_files
from electrify.corpora.tar import Bounded, FileWindow, Input, Member, NotTar, Stream, members
from electrify.corpora.troubles import EMPTY, TOO_LARGE, TRUNCATED
from electrify.errors import UserError

ARCHIVES = (".tar", *COMPRESSED)  # the inner archives are named `…_data.xz`, without .tar
MAX_DEPTH = 2
# The parent passes an inner archive of up to this size to a worker as it is, and the texts of a
# larger one. The real archives have about 1 MB.
MAX_INLINE_BYTES = PART_BYTES


class _Entry(NamedTuple):
    """A file inside an outer archive, or a problem that was found instead of one."""

    name: str = ""
    start: int = 0
    stop: int = 0
    data: bytes = b""
    problem: str = ""


def _entry_size(entry: _Entry) -> int:
    size = len(entry.data) or entry.stop - entry.start
    return size * (1 if entry.name.lower().endswith(".txt") else archive.TYPICAL_RATIO)


def _kind(name: str) -> str:
    lower = name.lower()
    return "text" if lower.endswith(".txt") else "archive" if lower.endswith(ARCHIVES) else ""


def _problem(member: Member) -> str | None:
    """Return why a member is not read, or None if it is."""
    if member.not_read is not None:
        return member.not_read
    kind = _kind(member.name)
    if not kind:
        return "not a .txt file"
    return TOO_LARGE if kind == "text" and member.size > MAX_DOCUMENT_BYTES else None


def _entries(name: str, source: Input, inline: bool) -> Iterator[_Entry]:
    """Yield the files of an outer archive: their offsets or, if `inline`, their content."""
    try:
        for member in members(source):
            problem = _problem(member)
            if problem is not None:
                yield _Entry(problem=problem)
                continue
            start = source.tell()
            label = f"{name}:{member.number}:{member.name}"
            if not inline:
                yield _Entry(label, start, start + member.size)
            elif member.size <= MAX_INLINE_BYTES:
                data = source.read(member.size)
                if len(data) == member.size or _kind(member.name) == "archive":
                    yield _Entry(label, start, start + member.size, data)
            else:
                tally: Counter[str] = Counter()
                for text_name, text in _texts_of_file(label, source, member.size, 2, tally):
                    yield _Entry(text_name, data=text)
                yield from (_Entry(problem=problem) for problem in tally.elements())
    except Truncated:
        yield _Entry(problem=TRUNCATED)


@dataclass(frozen=True)
class OpenWebText:
    """OpenWebText as published: tar archives of compressed tar archives of .txt files.

    The outer archive may be compressed too; a folder of the inner archives also works. Each .txt
    file is a document.
    """

    suffixes: ClassVar[Sequence[str]] = ARCHIVES

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0
        for batch in archive.group(files, lambda file: _group_size(file[0])):
            path, name = batch[0]
            if path.suffix.lower() in COMPRESSED and _group_size(path) <= PART_BYTES:
                done += sum(path.stat().st_size for path, _ in batch)
                yield part_of_files(batch, done / total)
                continue
            with archive.open_source(path) as file:
                for part in _outer_parts(path, name, file):
                    yield replace(part, fraction=min(1, (done + file.tell()) / total))
            done += path.stat().st_size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        for name, text in _texts(part, tally):
            if content := decode_utf8(text, tally).strip():
                yield Document(name, content, part.source)
            else:
                tally[EMPTY] += 1


def _group_size(path: Path) -> int:
    """Return the size for grouping; a plain tar is a group of its own, split into its members."""
    return archive.estimate_text_bytes(path) if path.suffix.lower() in COMPRESSED else PART_BYTES


def _outer_parts(path: Path, name: str, file: BinaryIO) -> Iterator[Part]:
    """Yield the parts of a large archive: file offsets or, if it is compressed, file contents."""
    suffix = path.suffix.lower()
    inline = suffix in COMPRESSED
    source: Input = FileWindow(file, 0, path.stat().st_size)
    if inline:
        source = Stream(archive.decompress(file, suffix, path.name))
    try:
        for batch in archive.group(_entries(name, source, inline), _entry_size):
            problems = tuple(entry.problem for entry in batch if entry.problem)
            files = [entry for entry in batch if entry.name]
            if not files and not problems:
                continue
            names = tuple(entry.name for entry in files)
            if inline:
                data = b"".join(entry.data for entry in files)
                sizes = tuple(len(entry.data) for entry in files)
                yield Part(name, data=data, context=(names, sizes), problems=problems)
            else:
                slices = tuple(Slice(path, entry.start, entry.stop) for entry in files)
                yield Part(name, slices=slices, context=names, problems=problems)
    except NotTar as error:
        raise _not_tar(name, error) from error


def _not_tar(name: str, error: Exception) -> UserError:
    return UserError(
        f"{name} is not a tar archive",
        got=str(error),
        fix="check the file, or choose another kind of corpus",
    )


def _texts(part: Part, tally: Counter[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of every text file of a part."""
    if not part.slices:
        start = 0
        for name, size in zip(*(part.context or ((), ())), strict=True):
            yield from _texts_of_file(
                name, Stream(iter([part.data[start : start + size]])), size, 2, tally
            )
            start += size
        return
    for (path, start, stop, _), name in zip(part.slices, part.context, strict=True):
        with archive.open_source(path) as file:
            if stop is None:
                blocks = archive.decompress(file, path.suffix.lower(), name)
                yield from _texts_of_archive(name, Stream(blocks), 1, tally)
            else:
                window = FileWindow(file, start, stop)
                yield from _texts_of_file(name, window, stop - start, 2, tally)


def _texts_of_file(
    name: str, source: Input, size: int, depth: int, tally: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the texts of a file in an archive: the file itself, or those in a nested archive."""
    if _kind(name) == "text":
        data = source.read(size)
        if len(data) < size:
            raise Truncated(f"{name} is truncated")
        yield name, data
    elif depth > MAX_DEPTH:
        tally["archives nested too deep"] += 1
    else:
        suffix = "." + name.lower().rpartition(".")[2]
        blocks = archive.decompress(Bounded(source, size), suffix, name)
        yield from _texts_of_archive(name, Stream(blocks), depth, tally)


def _texts_of_archive(
    name: str, source: Input, depth: int, tally: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    try:
        for member in members(source):
            problem = _problem(member)
            if problem is None:
                label = f"{name}:{member.number}:{member.name}"
                yield from _texts_of_file(label, source, member.size, depth + 1, tally)
            elif problem:
                tally[problem] += 1
    except Truncated:
        tally[TRUNCATED] += 1
    except NotTar as error:
        if depth == 1:
            raise _not_tar(name, error) from error
        tally["member is not a tar archive"] += 1
