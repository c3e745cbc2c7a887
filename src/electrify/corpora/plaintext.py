"""Read plain text and JSON lines from files or folders, compressed or not."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import MAX_DOCUMENT_BYTES, PART_BYTES, Truncated, compressed_suffixes
from electrify.corpora.clean import decode_utf8, replace_surrogates
from electrify.corpora.document import SHORT_DOCUMENT, Document, Part, part_of_files
from electrify.corpora.troubles import CUT, EMPTY, TOO_LARGE, TRUNCATED, missing
from electrify.errors import UserError

MIN_FOR_ADVICE = 100  # documents; fewer say too little
NOTABLE_FRACTION = 0.05  # of the text
MAX_TITLE_CHARS = 1_000
CHUNK_BYTES = 2_000_000  # that a worker reads of a file at a time


class Chunk(NamedTuple):
    """Complete units of one file in order; `first` is the number of the first unit."""

    data: bytes
    first: int
    left_out: int
    layout: Any = None
    """What a reader needs to know about the file besides."""


class ChunkOrigin(NamedTuple):
    """The file that the data of a part comes from, the number of its first unit and its layout."""

    name: str
    first: int
    layout: Any = None


_BOMS = (  # UTF-32 before UTF-16, whose little-endian mark is a prefix of it
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def as_utf8(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Convert a stream to UTF-8 by its byte order mark, and remove the mark."""
    stream, start = iter(blocks), b""
    for block in stream:
        start += block
        if len(start) >= 4:
            break
    bom, encoding = next((pair for pair in _BOMS if start.startswith(pair[0])), (b"", "utf-8"))
    yield from archive.to_utf8(chain([start[len(bom) :]], stream), encoding)


# Space, no-break space and ideographic space: a blank line contains nothing else. No group is
# possessive: Python before 3.11.5 matches those wrongly (github.com/python/cpython/issues/106052).
_SPACE_BYTES = b" \t\v\f\xc2\xa0\xe3\x80"
_BLANK_LINES = re.compile(rb"\n[ \t\v\f\n]*(?:(?:\xc2\xa0|\xe3\x80\x80)[ \t\v\f\n]*)*\n")


def _fold(data: bytes) -> bytes:
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return _BLANK_LINES.sub(b"\n\n", lines)


def fold_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Normalize to LF line ends without NUL, and any run of blank lines to b"\n\n"."""
    kept = b"\n"  # so that leading blank lines are folded too
    try:
        for block in blocks:
            data = kept + block.replace(b"\0", b"")
            # White space at the end of a block may belong to a blank line that continues.
            body = data.rstrip(_SPACE_BYTES + b"\r\n")
            kept = data[len(body) :]
            yield _fold(body)
            if len(kept) > archive.BLOCK_BYTES:  # a run of white space this long is shortened
                kept = b"\n" * min(2, kept.count(b"\n") or kept.count(b"\r")) + b" " + kept[-4:]
    except Truncated:
        yield _fold(kept)
        raise
    yield _fold(kept)


def _chunks(blocks: Iterable[bytes], boundary: bytes, size: int) -> Iterator[Chunk]:
    first = 1
    for data, left_out in archive.cut_after(blocks, boundary, size, MAX_DOCUMENT_BYTES):
        yield Chunk(data, first, left_out)
        first += data.count(boundary) + left_out


# Splits a file into chunks of the size of a part and reports the bytes read to the second argument;
# without one, into smaller chunks for a worker that takes them one after another.
Splitter = Callable[[Path, Callable[[int], None] | None], Iterator[Chunk]]


def split_files(files: Sequence[tuple[Path, str]], chunks: Splitter | None) -> Iterator[Part]:
    """Group small files into parts, and split large files into chunks if `chunks` is given."""
    total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0
    for batch in archive.group(files, lambda file: archive.estimate_text_bytes(file[0])):
        path, name = batch[0]
        if chunks is None or archive.estimate_text_bytes(path) <= PART_BYTES:
            done += sum(path.stat().st_size for path, _ in batch)
            yield part_of_files(batch, done / total)
        else:
            yield from _large_parts(path, name, chunks, done, total)
            done += path.stat().st_size


def _large_parts(path: Path, name: str, chunks: Splitter, done: int, total: int) -> Iterator[Part]:
    """Yield the parts of a large file, before which `done` of `total` bytes were read."""
    read = [0]
    try:
        for chunk in chunks(path, read.append):
            problems = (TOO_LARGE,) * chunk.left_out
            origin = ChunkOrigin(name, chunk.first, chunk.layout)
            fraction = (done + read[-1]) / total
            yield Part(name, chunk.data, context=origin, problems=problems, fraction=fraction)
            del read[:-1]
    except Truncated:
        fraction = (done + path.stat().st_size) / total
        origin = ChunkOrigin(name, 0)
        yield Part(name, context=origin, problems=(TRUNCATED,), fraction=fraction)


def chunks_of(
    part: Part, chunks: Splitter, tally: Counter[str]
) -> Iterator[tuple[str, Iterator[Chunk]]]:
    """Yield the name and the chunks of each file of a part that `split_files` made."""
    if not part.slices:
        origin: ChunkOrigin = part.context
        yield origin.name, iter([Chunk(part.data, origin.first, 0, origin.layout)])
        return
    for source, name in zip(part.slices, part.context, strict=True):
        yield name, _counted(chunks(source.path, None), tally)


def _counted(chunks: Iterator[Chunk], tally: Counter[str]) -> Iterator[Chunk]:
    empty = True
    try:
        for chunk in chunks:
            empty = empty and not (chunk.data.strip() or chunk.left_out)
            tally.update((TOO_LARGE,) * chunk.left_out)
            yield chunk
    except Truncated:
        empty = False
        tally[TRUNCATED] += 1
    tally.update((EMPTY,) * empty)


@dataclass(frozen=True)
class Text:
    """Plain text: .txt files, compressed or not, or any file given by name."""

    suffixes: ClassVar[Sequence[str]] = compressed_suffixes(".txt")
    split: Literal["blank", "file"] = "blank"
    """blank: a blank line ends a document; file: each file is one document."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        yield from split_files(files, _text_chunks if self.split == "blank" else None)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        if self.split == "file":
            yield from _file_documents(part, tally)
            return
        for name, chunks in chunks_of(part, _text_chunks, tally):
            for chunk in chunks:
                for number, unit in enumerate(chunk.data.split(b"\n\n"), chunk.first):
                    if len(unit) > MAX_DOCUMENT_BYTES:
                        tally[TOO_LARGE] += 1
                    elif text := decode_utf8(unit, tally).strip():
                        yield Document(f"{name}:{number}", text, name)

    def advice(self, counts: Mapping[str, int]) -> str | None:
        """Return a note if blank lines seem to separate paragraphs rather than documents."""
        mostly_short = 2 * counts["short"] > counts["documents"]
        lost = counts["dropped"] / max(1, counts["characters"])
        signs = {
            f"most documents have fewer than {SHORT_DOCUMENT} characters": mostly_short,
            f"{lost:.0%} of the text was left out": lost > NOTABLE_FRACTION,
        }
        found = " and ".join(sign for sign, is_present in signs.items() if is_present)
        if self.split != "blank" or counts["documents"] < MIN_FOR_ADVICE or not found:
            return None
        return (
            f"split at blank lines into {counts['documents']:,} documents; {found}; "
            "if a file is one document (a book, an article), use --split file"
        )


def _text_chunks(path: Path, on_read: Callable[[int], None] | None) -> Iterator[Chunk]:
    blocks = _without_first_line_end(fold_lines(as_utf8(archive.read_blocks(path, on_read))))
    return _chunks(blocks, b"\n\n", PART_BYTES if on_read else CHUNK_BYTES)


def _without_first_line_end(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Remove the line ends that `fold_lines` leaves before the first text."""
    for block in blocks:
        if text := block.lstrip(b"\n"):
            yield text
            break
    yield from blocks


def _file_documents(part: Part, tally: Counter[str]) -> Iterator[Document]:
    for source, name in zip(part.slices, part.context, strict=True):
        try:
            data = archive.read_all(as_utf8(archive.read_blocks(source.path)), MAX_DOCUMENT_BYTES)
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
    """The fields of a row that make a document."""

    text: str = "text"
    """Field (in a table: column) with the text."""
    id: str = "id"
    """Field that identifies a row, if present; it is appended to the id of the document."""
    title: str = "title"
    """Field with the title, if present."""

    def document(self, name: str, row: int, text: str, row_id: object, title: object) -> Document:
        """Return the document of a row.

        Its id is `name:row`, which is unique, followed by the id in the data, which need not be.
        Titles are shortened because documents are held in memory by the thousand.
        """
        unique_id = f"{name}:{row}"
        if isinstance(row_id, str | int) and not isinstance(row_id, bool):
            unique_id += f":{replace_surrogates(str(row_id)[:200], Counter())}"
        if isinstance(title, str):
            title = replace_surrogates(title[:MAX_TITLE_CHARS], Counter())
        return Document(unique_id, text, name, title if isinstance(title, str) else None)


@dataclass(frozen=True)
class JsonLines(TextFields):
    """One JSON object per line: .jsonl or .ndjson files, compressed or not.

    A .json file is read too if it is given by name, or if every line is an object with a text.
    """

    suffixes: ClassVar[Sequence[str]] = compressed_suffixes(".jsonl", ".ndjson", ".json")

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        self._require_text_field(files)
        excluded = [
            file
            for file in files
            if file[0] not in sources
            and file[0].name.lower().endswith(compressed_suffixes(".json"))
            and not self._every_line_has_text(file[0])
        ]
        if excluded:
            problems = (OTHER_JSON,) * len(excluded)
            yield Part(excluded[0][1], context=ChunkOrigin("", 1), problems=problems, fraction=0)
        yield from split_files([file for file in files if file not in excluded], _lines)

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        for name, chunks in chunks_of(part, _lines, tally):
            for chunk in chunks:
                yield from self._line_documents(name, chunk, tally)

    def _line_documents(self, name: str, chunk: Chunk, tally: Counter[str]) -> Iterator[Document]:
        for row, line in enumerate(chunk.data.split(b"\n"), chunk.first):
            record = _json_object(line, tally) if line.strip() else None
            if record is None:
                continue
            if self.text not in record:
                tally["no text field"] += 1
            elif not isinstance(text := record[self.text], str):
                tally["text is not a string"] += 1
            elif len(text) > MAX_DOCUMENT_BYTES:
                tally[TOO_LARGE] += 1
            else:
                row_id, title = record.get(self.id), record.get(self.title)
                yield self.document(name, row, replace_surrogates(text, tally), row_id, title)

    def _require_text_field(self, files: Sequence[tuple[Path, str]]) -> None:
        """Raise an error unless the beginning of some file has the text field."""
        first, fields = "", dict[str, None]()  # a set that keeps its order
        for path, name in files:
            for record in _beginning(path, PART_BYTES):
                if record is not None and self.text in record:
                    return
                first = first or name
                fields.update(dict.fromkeys(record or ()) if len(fields) < 100 else {})
        if fields:
            raise missing(first, "field", "--text", self.text, list(fields))
        if first:
            raise UserError(
                f"{first} is not JSON lines",
                got="no line that is a JSON object",
                fix="put one JSON object on each line, or choose another kind of corpus",
            )

    def _every_line_has_text(self, path: Path) -> bool:
        records = list(_beginning(path, archive.BLOCK_BYTES))
        return all(record is not None and self.text in record for record in records)


OTHER_JSON = "file is not JSON lines with that field"


def _beginning(path: Path, size: int) -> Iterator[dict[str, Any] | None]:
    """Yield the records of the first `size` bytes of a file; None for a line that is not one."""
    chunks = archive.cut_after(
        as_utf8(archive.read_blocks(path)), b"\n", archive.BLOCK_BYTES, MAX_DOCUMENT_BYTES
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
    except Truncated:  # counted when the file is read
        return


def _lines(path: Path, on_read: Callable[[int], None] | None) -> Iterator[Chunk]:
    blocks = as_utf8(archive.read_blocks(path, on_read))
    return _chunks(blocks, b"\n", PART_BYTES if on_read else CHUNK_BYTES)


def _json_object(line: bytes, tally: Counter[str]) -> dict[str, Any] | None:
    if len(line) > MAX_DOCUMENT_BYTES:
        tally[TOO_LARGE] += 1
        return None
    try:
        record = json.loads(decode_utf8(line, tally).strip("\ufeff\0"), strict=False)
    except (ValueError, RecursionError):  # ValueError also for numbers with too many digits
        tally["line is not JSON"] += 1
        return None
    if not isinstance(record, dict):
        tally["line is not a JSON object"] += 1
        return None
    return record
