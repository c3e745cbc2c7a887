"""Plain text and JSON lines, as files or folders, packed or not."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import LIMIT, PART, Truncated, packed_suffixes
from electrify.corpora.clean import decode_utf8, storable
from electrify.corpora.document import SHORT, Document, Part, part_of_files
from electrify.corpora.troubles import CUT, EMPTY, TOO_LARGE, TRUNCATED, missing
from electrify.errors import UserError

FEW_DOCUMENTS, NOTABLE = 100, 0.05  # documents, too few to advise on; share of the text
LONGEST_TITLE = 1_000  # characters
SOME = 2_000_000  # bytes that a worker cuts off a file at a time


class Chunk(NamedTuple):
    """Whole units of one file, in order; `first` is the number of the first one."""

    data: bytes
    first: int
    left_out: int


class Stretch(NamedTuple):
    """Where the data of a part comes from."""

    name: str
    first: int


_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def as_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """A stream without its byte order mark, in UTF-8 whatever the mark said."""
    stream, start = iter(blocks), b""
    for block in stream:
        start += block
        if len(start) >= 4:
            break
    mark, encoding = next((pair for pair in _BOMS if start.startswith(pair[0])), (b"", "utf-8"))
    start = start[len(mark) :]
    if encoding == "utf-8":
        yield start
        yield from stream
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(start).encode()
    for block in stream:
        yield decoder.decode(block).encode()
    yield decoder.decode(b"", final=True).encode()


# Space, no-break space and ideographic space; a blank line is one of nothing else. No group is
# possessive: Python before 3.11.5 matches those wrongly (github.com/python/cpython/issues/106052).
_SPACE_BYTES = b" \t\v\f\xc2\xa0\xe3\x80"
_BLANK_LINES = re.compile(rb"\n[ \t\v\f\n]*(?:(?:\xc2\xa0|\xe3\x80\x80)[ \t\v\f\n]*)*\n")


def _fold(data: bytes) -> bytes:
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return _BLANK_LINES.sub(b"\n\n", lines)


def fold_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    r"""LF line ends, no NUL, and b"\n\n" for any run of blank lines: one boundary to cut at."""
    kept = b"\n"  # so that blank lines at the start are folded too
    try:
        for block in blocks:
            data = kept + block.replace(b"\0", b"")
            # Spaces and line ends at the end of a block may belong to a blank line that goes on.
            body = data.rstrip(_SPACE_BYTES + b"\r\n")
            kept = data[len(body) :]
            yield _fold(body)
            if len(kept) > archive.BLOCK_BYTES:  # a megabyte of nothing: two line ends say as much
                kept = b"\n" * min(2, kept.count(b"\n") or kept.count(b"\r")) + b" " + kept[-4:]
    except Truncated:
        yield _fold(kept)
        raise
    yield _fold(kept)


def _chunks(blocks: Iterable[bytes], boundary: bytes, size: int) -> Iterator[Chunk]:
    first = 1
    for data, left_out in archive.cut_after(blocks, boundary, size, LIMIT):
        yield Chunk(data, first, left_out)
        first += data.count(boundary) + left_out


# How a kind cuts a file into chunks: of the size of a part where the second argument is told how
# far the file is read, smaller ones for a worker that takes them one after another.
_Cutter = Callable[[Path, Callable[[int], None] | None], Iterator[Chunk]]


def _parts(files: Sequence[tuple[Path, str]], chunks: _Cutter | None) -> Iterator[Part]:
    """Small files together, a large one cut into chunks (if it may be)."""
    total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0
    for batch in archive.group(files, lambda file: archive.text_bytes(file[0])):
        path, name = batch[0]
        if chunks is None or archive.text_bytes(path) <= PART:
            done += sum(path.stat().st_size for path, _ in batch)
            yield part_of_files(batch, done / total)
        else:
            yield from (
                replace(part, share=(done + read) / total)
                for part, read in _large_parts(path, name, chunks)
            )
            done += path.stat().st_size


def _large_parts(path: Path, name: str, chunks: _Cutter) -> Iterator[tuple[Part, int]]:
    """The parts of a large file, each with how many of its bytes are read by then."""
    read = [0]
    try:
        for chunk in chunks(path, read.append):
            troubles = (TOO_LARGE,) * chunk.left_out
            where = Stretch(name, chunk.first)
            yield Part(name, data=chunk.data, context=where, troubles=troubles), read[-1]
            del read[:-1]
    except Truncated:
        yield Part(name, context=Stretch(name, 0), troubles=(TRUNCATED,)), path.stat().st_size


def _chunks_of(
    part: Part, chunks: _Cutter, tally: Counter[str]
) -> Iterator[tuple[str, Iterator[Chunk]]]:
    """What `_parts` put into a part: each file's name and chunks."""
    if not part.slices:
        yield part.context.name, iter([Chunk(part.data, part.context.first, 0)])
        return
    for piece, name in zip(part.slices, part.context, strict=True):
        yield name, _counted(chunks(piece.path, None), tally)


def _counted(chunks: Iterator[Chunk], tally: Counter[str]) -> Iterator[Chunk]:
    empty = True
    try:
        for chunk in chunks:
            empty = empty and not (chunk.data.strip() or chunk.left_out)
            tally.update({TOO_LARGE: chunk.left_out} if chunk.left_out else {})
            yield chunk
    except Truncated:
        empty = False
        tally[TRUNCATED] += 1
    tally.update({EMPTY: 1} if empty else {})


@dataclass(frozen=True)
class Text:
    """Plain text: .txt files, packed or not, or any file that is named."""

    split: Literal["blank", "file"] = "blank"
    """Where a document ends: at a blank line and at the end of the file, or only there."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, packed_suffixes(".txt"))
        yield from _parts(files, _text_chunks if self.split == "blank" else None)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        if self.split == "file":
            yield from _whole_files(part, tally)
            return
        for name, chunks in _chunks_of(part, _text_chunks, tally):
            for chunk in chunks:
                for number, unit in enumerate(chunk.data.split(b"\n\n"), chunk.first):
                    if len(unit) > LIMIT:
                        tally[TOO_LARGE] += 1
                    elif text := decode_utf8(unit, tally).strip():
                        yield Document(f"{name}:{number}", text, name)

    def advice(self, read: Mapping[str, int]) -> str | None:
        """Say so if blank lines seem to separate paragraphs rather than documents."""
        mostly_short = 2 * read["short"] > read["documents"]
        lost = read["dropped"] / max(1, read["characters"])
        few = read["documents"] < FEW_DOCUMENTS
        if self.split != "blank" or few or not (mostly_short or lost > NOTABLE):
            return None
        found = [f"most documents have fewer than {SHORT} characters"] if mostly_short else []
        found += [f"{lost:.0%} of the text was left out"] if lost > NOTABLE else []
        return (
            f"split at blank lines into {read['documents']:,} documents; {' and '.join(found)}; "
            "if a file is one document (a book, an article), use --split file"
        )


def _text_chunks(path: Path, at: Callable[[int], None] | None) -> Iterator[Chunk]:
    blocks = _without_first_line_end(fold_lines(as_utf8(archive.read_blocks(path, at))))
    return _chunks(blocks, b"\n\n", PART if at else SOME)


def _without_first_line_end(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """What `fold_lines` found before the first text is no document."""
    for block in blocks:
        if text := block.lstrip(b"\n"):
            yield text
            break
    yield from blocks


def _whole_files(part: Part, tally: Counter[str]) -> Iterator[Document]:
    for piece, name in zip(part.slices, part.context, strict=True):
        try:
            data = archive.read_all(as_utf8(archive.read_blocks(piece.path)), LIMIT)
        except Truncated:
            tally.update((TRUNCATED, CUT))
            continue
        if data is None:
            tally[TOO_LARGE] += 1
            continue
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\0", b"")
        if text := decode_utf8(lines, tally).strip():
            yield Document(name, text, name)
        else:
            tally[EMPTY] += 1


@dataclass(frozen=True)
class TextFields:
    """Which fields of a row make a document."""

    text: str = "text"
    """The field (in a table: the column) that holds the text."""
    id: str = "id"
    """The field that identifies a row, if there is one; it becomes the end of the document's id."""
    title: str = "title"
    """The field that holds the title, if there is one."""

    def document(self, name: str, row: int, text: str, given: object, title: object) -> Document:
        """A row as a document.

        Its id is `name:row`, which is unique, and what the data calls it: that need not be. Titles
        have a sensible length: documents are held in memory by the thousand.
        """
        found = f"{name}:{row}"
        if isinstance(given, str | int) and not isinstance(given, bool):
            found += f":{storable(str(given)[:200], Counter())}"
        titled = storable(title[:LONGEST_TITLE], Counter()) if isinstance(title, str) else None
        return Document(found, text, name, titled)


@dataclass(frozen=True)
class JsonLines(TextFields):
    """One JSON object per line: .jsonl or .ndjson files, packed or not.

    A .json file counts too if it is named, or if its lines are objects with the field of the text.
    """

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, packed_suffixes(".jsonl", ".ndjson", ".json"))
        self._refuse_if_none_has_text(files)
        others = [
            file
            for file in files
            if file[0] not in sources
            and file[0].name.lower().endswith(packed_suffixes(".json"))
            and not self._every_line_has_text(file[0])
        ]
        if others:
            troubles = (OTHER_JSON,) * len(others)
            yield Part(others[0][1], context=Stretch("", 1), troubles=troubles, share=0)
        yield from _parts([file for file in files if file not in others], _lines)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        for name, chunks in _chunks_of(part, _lines, tally):
            for chunk in chunks:
                yield from self._of_lines(name, chunk, tally)

    def _of_lines(self, name: str, chunk: Chunk, tally: Counter[str]) -> Iterator[Document]:
        for row, line in enumerate(chunk.data.split(b"\n"), chunk.first):
            record = _json_object(line, tally) if line.strip() else None
            if record is None:
                continue
            if self.text not in record:
                tally["no text field"] += 1
            elif not isinstance(text := record[self.text], str):
                tally["text is not a string"] += 1
            elif len(text) > LIMIT:
                tally[TOO_LARGE] += 1
            else:
                given, title = record.get(self.id), record.get(self.title)
                yield self.document(name, row, storable(text, tally), given, title)

    def _refuse_if_none_has_text(self, files: Sequence[tuple[Path, str]]) -> None:
        """A look at the beginning of each file, until one has the field."""
        first, fields = "", dict[str, None]()  # a set that keeps its order
        for path, name in files:
            for record in _beginning(path, PART):
                if record is not None and self.text in record:
                    return
                first = first or name
                fields.update(dict.fromkeys(record or ()) if len(fields) < 100 else {})
        if fields:
            raise missing(first, "field", "--text", self.text, list(fields))
        if first:
            raise UserError(
                f"{first} is not JSON lines",
                got="lines, but none of them a JSON object",
                fix="put one JSON object on each line, or choose another kind of corpus",
            )

    def _every_line_has_text(self, path: Path) -> bool:
        records = list(_beginning(path, archive.BLOCK_BYTES))
        return all(record is not None and self.text in record for record in records)


OTHER_JSON = "file is not JSON lines with that field"


def _beginning(path: Path, size: int) -> Iterator[dict[str, Any] | None]:
    """The records of the first `size` bytes or more of a file; None where a line is no object."""
    chunks = archive.cut_after(
        as_utf8(archive.read_blocks(path)), b"\n", archive.BLOCK_BYTES, LIMIT
    )
    read = 0
    try:
        for data, _ in chunks:
            for line in data.split(b"\n"):
                if line.strip():
                    yield _json_object(line, Counter())
            read += len(data)
            if read >= size:
                return
    except Truncated:  # that is counted when the file is read
        return


def _lines(path: Path, at: Callable[[int], None] | None) -> Iterator[Chunk]:
    blocks = as_utf8(archive.read_blocks(path, at))
    return _chunks(blocks, b"\n", PART if at else SOME)


def _json_object(line: bytes, tally: Counter[str]) -> dict[str, Any] | None:
    if len(line) > LIMIT:
        tally[TOO_LARGE] += 1
        return None
    try:
        record = json.loads(decode_utf8(line, tally).strip("\ufeff\0"), strict=False)
    except (ValueError, RecursionError):  # ValueError also for a number of too many digits
        tally["line is not JSON"] += 1
        return None
    if not isinstance(record, dict):
        tally["line is not a JSON object"] += 1
        return None
    return record
