"""Read Project Gutenberg books as plain text, without header, licence and wrapped lines."""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import ClassVar, NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import MAX_DOCUMENT_BYTES, Truncated, compressed_suffixes
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.troubles import CUT, EMPTY, TOO_LARGE, TRUNCATED
from electrify.corpora.wrapping import blocks_of, unwrap_prose, wrap_width
from electrify.errors import UserError

# --- bytes to characters

_DECLARED = re.compile(rb"character set encoding:\s*([\w\- ]+)", re.IGNORECASE)
_CODECS = {  # name in the header -> name in Python
    "macroman": "mac_roman", "macintosh": "mac_roman",
    "cp437": "cp437", "ibm437": "cp437", "codepage437": "cp437",
    "cp850": "cp850", "codepage850": "cp850",
    "cp1250": "cp1250", "windows1250": "cp1250",
    "cp1251": "cp1251", "windows1251": "cp1251",
    "iso88592": "iso8859-2", "iso88597": "iso8859-7", "iso885915": "iso8859-15",
    "koi8r": "koi8-r", "big5": "big5", "gb2312": "gb18030", "gbk": "gb18030",
    "shiftjis": "shift_jis", "eucjp": "euc_jp",
}  # fmt: skip
_DOS_OR_MAC = re.compile(rb"[A-Za-z][\x81-\x8f][a-z]")  # é, ü, à in those; rare in CP1252
_WINDOWS = re.compile(rb"[A-Za-z][\xc0-\xff]|[\xc0-\xff][a-z]")
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def book_text(data: bytes) -> str:
    """Decode a book by its BOM, as UTF-8, as its header declares, or by its letters."""
    for bom, codec in _BOMS:
        if data.startswith(bom):
            return data.decode(codec, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode(_codec(data), "replace")


def _codec(data: bytes) -> str:
    if declared := _DECLARED.search(data[:20_000]):
        name = re.sub(r"[^a-z0-9]", "", declared[1].decode().lower())
        if name in _CODECS:
            return _CODECS[name]
        if name.startswith("utf"):
            return "utf-8"
    if len(_DOS_OR_MAC.findall(data)) > len(_WINDOWS.findall(data)):
        # é is 82 in CP437 and 8E in Mac Roman
        return "cp437" if data.count(b"\x82") >= data.count(b"\x8e") else "mac_roman"
    # Books that declare ISO-8859-1 often use the quotation marks of CP1252, which is a superset.
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


# --- header and licence

_HEAD = re.compile(
    r"\s*\*{1,3} ?START OF (?:THE |THIS )?PROJECT GUTENBERG"
    r"|.*\*? ?END ?\*? ?(?:OF )?THE SMALL PRINT"
    r"|\s*\*END\*"
    r"|.*\(Small Print\b.*\bEND\b",
    re.IGNORECASE,
)
_END = re.compile(
    r"\s*(?:\*{2,3} ?)?(?:THE )?END OF (?:THE |THIS )?PROJECT GUTENBERG", re.IGNORECASE
)
_LICENCE = re.compile(
    r"\s*\*{3} ?START: FULL LICENSE"
    r"|\s*\*{2,3} ?START ?\*\* ?THE SMALL PRINT"
    r"|[\s*]*This file should be named .*\.(?:txt|zip)",
    re.IGNORECASE,
)
_LONGEST_HEAD = 1000  # lines
_LONGEST_MARK = 1000  # characters of a line in which a marker is sought: the time is quadratic
_LONGEST_TAIL = 600  # the licence has about 380
_FIRST, _LAST = 8, 4  # blocks at the ends of a book that may be credits and notes
_LONGEST_CREDIT = 600  # characters
_ORNAMENTS = ("[Illustration]", "*", "* * *", "* * * * *")
_CREDIT = re.compile(
    r"(?:this |the )?(?:e-?text|e-?book|file|transcription|html version)?\s*(?:was |is )?"
    r"(?:produced|prepared|scanned|transcribed|proofread|proofed|typed|digiti[sz]ed|created|"
    r"updated editions? will)\b.{0,400}?(?:by|from)\b"
    r"|distributed proofread|online distributed|\(this file was produced"
    r"|end of (?:the |this )?project gutenberg"
    r"|(?:the )?project gutenberg e-?(?:text|book) (?:of|,)"
    r"|https?://(?:www\.)?(?:gutenberg|pgdp|archive)\.\S+$",
    re.IGNORECASE | re.DOTALL,
)
_NOTE = re.compile(r"\[?\**\s*(?:transcriber|transcription)\W?s?\W? notes?\b", re.IGNORECASE)
_FIELD = re.compile(r"(Title|Author):[ \t]+(\S.*)")


class Book(NamedTuple):
    """The title and author of a book, and its lines without header and licence."""

    title: str | None
    author: str | None
    lines: list[str]


def open_book(text: str, name: str) -> Book:
    """Remove the header and the licence; the file name stands in for a missing title or author."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = range(max(0, len(lines) - _LONGEST_TAIL), len(lines))
    end = next((n for n in last if _END.match(lines[n])), len(lines))
    heads = (n for n in range(min(_LONGEST_HEAD, end)) if _HEAD.match(lines[n][:_LONGEST_MARK]))
    head = max((n + 1 for n in heads), default=0)
    # only below the header, because some books have the licence at the top
    tails = (n for n in last if n >= head and (_END.match(lines[n]) or _LICENCE.match(lines[n])))
    tail = next(tails, len(lines))
    # a long title may push the closing asterisks of the marker to the next line or the one after
    for n in range(head, min(head + 3, tail) if head else 0):
        if lines[n].rstrip().endswith("***"):
            head = n + 1
    fields = {match[1]: match[2].strip() for match in map(_FIELD.match, lines[:head]) if match}
    author, _, title = PurePosixPath(name).name.partition(".txt")[0].partition("___")
    if not title:
        author, title = "", ""
    title, author = fields.get("Title") or title, fields.get("Author") or author
    return Book(title or None, author or None, lines[head:tail])


# --- notes, credits and the text itself


def book_body(lines: Sequence[str]) -> str:
    """Return the text of a book, one paragraph per line."""
    width = wrap_width(lines)
    blocks = list(blocks_of(lines))
    kept: list[str] = []
    in_note = False
    for number, block in enumerate(blocks):
        text = " ".join(block).strip()
        edge = number < _FIRST or number >= len(blocks) - _LAST
        if in_note or (edge and _NOTE.match(text)) or text.startswith("[Transcriber"):
            opened = in_note or text.startswith("[")
            in_note = opened and "]" not in text and number < len(blocks) - 1 and edge
            continue
        if edge and len(text) < _LONGEST_CREDIT and _CREDIT.match(text.lstrip("[(")):
            continue
        if text not in _ORNAMENTS:
            kept.append(unwrap_prose(block, width))
    return "\n".join(kept)


# --- files and the zip

# zipfile decompresses the other methods without any bound
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)


@dataclass(frozen=True)
class Gutenberg:
    """Project Gutenberg books: .txt files in folders or zip archives.

    Each book is a document with one paragraph per line; verse and tables keep their lines. The
    label of a document is its author.
    """

    suffixes: ClassVar[Sequence[str]] = (*compressed_suffixes(".txt"), ".zip")

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split the sources into parts."""
        files = archive.expand(sources, self.suffixes)
        runs = (run for path, name in files for run in _runs(path, name))
        total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0.0
        for batch in archive.group(runs, lambda run: run.size):
            done += sum(run.stored for run in batch)
            slices = tuple(run.slice for run in batch)
            names = tuple(run.name for run in batch)
            yield Part(names[0], slices=slices, context=names, fraction=min(1, done / total))

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the documents of a part."""
        for source, name in zip(part.slices, part.context, strict=True):
            for member, data in _contents(source, name, tally):
                if data is None:
                    tally[TOO_LARGE] += 1
                    continue
                book = open_book(book_text(data), member)
                if text := book_body(book.lines):
                    yield Document(member, text, name, book.title, book.author)
                else:
                    tally[EMPTY] += 1


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


class _Run(NamedTuple):
    """A file, or consecutive members of a zip: bytes of text, and bytes on disk."""

    slice: Slice
    name: str
    size: int
    stored: float


def _runs(path: Path, name: str) -> Iterator[_Run]:
    if not _is_zip(path):
        yield _Run(Slice(path), name, archive.estimate_text_bytes(path), path.stat().st_size)
        return
    with _open_zip(path, name) as file:
        infos = file.infolist()
        total, stored = sum(info.file_size for info in infos), path.stat().st_size
        # zipfile returns no more of a member than its stated size
        archive.refuse_bomb(name, total, stored)
        for batch in archive.group(range(len(infos)), lambda number: infos[number].file_size):
            size = sum(infos[number].file_size for number in batch)
            members = Slice(path, batch[0], batch[-1] + 1)
            yield _Run(members, name, size, stored * len(batch) / len(infos))


def _open_zip(path: Path, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (*_DAMAGE, NotImplementedError) as error:
        raise UserError(
            f"{name} is not a complete zip archive",
            got=str(error),
            fix="download it again: its table of contents is at the end, so it may be truncated",
        ) from error


def _contents(source: Slice, name: str, tally: Counter[str]) -> Iterator[tuple[str, bytes | None]]:
    """Yield name and bytes of each book of a slice; None for a book that is too large."""
    if not _is_zip(source.path):
        try:
            yield name, archive.read_all(archive.read_blocks(source.path), MAX_DOCUMENT_BYTES)
        except Truncated:
            tally.update((TRUNCATED, CUT))
        return
    with _open_zip(source.path, name) as file:
        infos = file.infolist()[source.start : source.stop]
        for number, info in enumerate(infos, source.start + 1):
            if info.is_dir() or info.filename.startswith("__MACOSX/"):
                continue
            if not info.filename.lower().endswith(".txt"):
                tally["not a .txt file"] += 1
            elif info.flag_bits & 1:
                tally["encrypted"] += 1
            elif info.compress_type not in _METHODS:
                tally["packed in an uncommon way"] += 1
            else:
                shown = archive.printable(info.filename)[-200:]
                try:
                    with file.open(info) as member:
                        data = member.read(MAX_DOCUMENT_BYTES + 1)
                except (*_DAMAGE, NotImplementedError):
                    tally["damaged in archive"] += 1
                    continue
                yield f"{name}:{number}:{shown}", data if len(data) <= MAX_DOCUMENT_BYTES else None
