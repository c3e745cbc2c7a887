"""Project Gutenberg: books as plain text, without header, licence and hard line ends."""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from electrify.corpora import archive
from electrify.corpora.archive import LIMIT, Truncated, packed_suffixes
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.troubles import CUT, EMPTY, TOO_LARGE, TRUNCATED
from electrify.corpora.wrapping import blocks_of, joined_prose, wrap_width
from electrify.errors import UserError

# --- bytes to characters

_DECLARED = re.compile(rb"character set encoding:\s*([\w\- ]+)", re.IGNORECASE)
_CODECS = {  # what the header calls it -> what Python calls it
    "macroman": "mac_roman",
    "macintosh": "mac_roman",
    "cp437": "cp437",
    "ibm437": "cp437",
    "codepage437": "cp437",
    "cp850": "cp850",
    "codepage850": "cp850",
    "cp1250": "cp1250",
    "windows1250": "cp1250",
    "cp1251": "cp1251",
    "windows1251": "cp1251",
    "iso88592": "iso8859-2",
    "iso88597": "iso8859-7",
    "iso885915": "iso8859-15",
    "koi8r": "koi8-r",
    "big5": "big5",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shiftjis": "shift_jis",
    "eucjp": "euc_jp",
}
_DOS_OR_MAC = re.compile(rb"[A-Za-z][\x81-\x8f][a-z]")  # é, ü, à there; hardly a letter in CP1252
_WINDOWS = re.compile(rb"[A-Za-z][\xc0-\xff]|[\xc0-\xff][a-z]")
_MARKS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def book_text(data: bytes) -> str:
    """The characters of a book: by its mark, as UTF-8, as its header says, or by its letters."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data.decode(codec, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode(_codec(data), "replace")


def _codec(data: bytes) -> str:
    declared = _DECLARED.search(data[:20_000])
    if declared:
        name = re.sub(r"[^a-z0-9]", "", declared[1].decode().lower())
        if name in _CODECS:
            return _CODECS[name]
        if name.startswith("utf"):
            return "utf-8"
    if len(_DOS_OR_MAC.findall(data)) > len(_WINDOWS.findall(data)):
        return "cp437" if data.count(b"\x82") >= data.count(b"\x8e") else "mac_roman"  # é in each
    # Books that say ISO-8859-1 often have the quotation marks of CP1252, which is a superset.
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
_LONGEST_TAIL = 600  # the licence has about 380
_FIRST, _LAST = 8, 4  # blocks at the ends of a book where credits and notes are
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
    """What a file says about itself, and its lines without header and licence."""

    title: str | None
    author: str | None
    lines: list[str]


def open_book(text: str, name: str) -> Book:
    """Take the header and the licence off; `name` helps where the header says nothing."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    last = range(max(0, len(lines) - _LONGEST_TAIL), len(lines))
    end = next((n for n in last if _END.match(lines[n])), len(lines))
    head = max((n + 1 for n in range(min(_LONGEST_HEAD, end)) if _HEAD.match(lines[n])), default=0)
    # below the header only: the licence at the end of some books stands at the top of others
    tails = (n for n in last if n >= head and (_END.match(lines[n]) or _LICENCE.match(lines[n])))
    tail = next(tails, len(lines))
    # a long title may push the closing asterisks of the marker to the next line or the one after
    for n in range(head, min(head + 3, tail) if head else 0):
        if lines[n].rstrip().endswith("***"):
            head = n + 1
    about = {match[1]: match[2].strip() for match in map(_FIELD.match, lines[:head]) if match}
    author, _, title = PurePosixPath(name).name.partition(".txt")[0].partition("___")
    if not title:
        author, title = "", ""
    return Book(
        about.get("Title") or title or None, about.get("Author") or author or None, lines[head:tail]
    )


# --- notes, credits and the text itself


def body(lines: Sequence[str]) -> str:
    """The text of a book, one paragraph per line."""
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
            kept.append(joined_prose(block, width))
    return "\n".join(kept)


# --- files and the zip

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks others without any bound
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError)


@dataclass(frozen=True)
class Gutenberg:
    """Books of Project Gutenberg: .txt files in folders or zip archives. One book, one document,
    one paragraph per line; verse and tables keep their lines. The label is the author.
    """

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut the sources into parts."""
        files = archive.expand(sources, (*packed_suffixes(".txt"), ".zip"))
        pieces = (piece for path, name in files for piece in _pieces(path, name))
        total, done = max(1, sum(path.stat().st_size for path, _ in files)), 0.0
        for batch in archive.group(pieces, lambda piece: piece.size):
            done += sum(piece.stored for piece in batch)
            slices = tuple(piece.slice for piece in batch)
            names = tuple(piece.name for piece in batch)
            yield Part(names[0], slices=slices, context=names, share=min(1, done / total))

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The documents of a part."""
        for piece, name in zip(part.slices, part.context, strict=True):
            for member, data in _contents(piece, name, tally):
                if data is None:
                    tally[TOO_LARGE] += 1
                    continue
                book = open_book(book_text(data), member)
                if text := body(book.lines):
                    yield Document(member, text, name, book.title, book.author)
                else:
                    tally[EMPTY] += 1


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


class _Piece(NamedTuple):
    """A file, or a run of members of a zip: bytes of text in it, and bytes it takes on disk."""

    slice: Slice
    name: str
    size: int
    stored: float


def _pieces(path: Path, name: str) -> Iterator[_Piece]:
    if not _is_zip(path):
        yield _Piece(Slice(path), name, archive.text_bytes(path), path.stat().st_size)
        return
    with _open_zip(path, name) as book:
        infos = book.infolist()
        total, stored = sum(info.file_size for info in infos), path.stat().st_size
        # zipfile gives no more of a member than its stated size
        archive.refuse_bomb(name, total, stored)
        for run in archive.group(range(len(infos)), lambda number: infos[number].file_size):
            size = sum(infos[number].file_size for number in run)
            place = Slice(path, run[0], run[-1] + 1)
            yield _Piece(place, name, size, stored * len(run) / len(infos))


def _open_zip(path: Path, name: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (*_DAMAGE, NotImplementedError) as error:
        raise UserError(
            f"{name} is not a whole zip archive",
            got=str(error),
            fix="get the file again: the table of contents is at its end, so it may be cut",
        ) from error


def _contents(piece: Slice, name: str, tally: Counter[str]) -> Iterator[tuple[str, bytes | None]]:
    """Name and bytes of each book of a slice; no bytes where a book is over the limit."""
    if _is_zip(piece.path):
        yield from _zip_members(piece, name, tally)
        return
    try:
        yield name, archive.read_all(archive.read_blocks(piece.path), LIMIT)
    except Truncated:
        tally.update((TRUNCATED, CUT))


def _zip_members(
    piece: Slice, name: str, tally: Counter[str]
) -> Iterator[tuple[str, bytes | None]]:
    with _open_zip(piece.path, name) as book:
        for number, info in enumerate(book.infolist()[piece.start : piece.stop], piece.start + 1):
            if info.is_dir() or info.filename.startswith("__MACOSX/"):
                continue
            if not info.filename.lower().endswith(".txt"):
                tally["not a .txt file"] += 1
            elif info.flag_bits & 1:
                tally["encrypted"] += 1
            elif info.compress_type not in _PACKINGS:
                tally["packed in an uncommon way"] += 1
            else:
                shown = archive.printable(info.filename)[-200:]
                try:
                    with book.open(info) as file:
                        data = file.read(LIMIT + 1)
                except (*_DAMAGE, NotImplementedError):
                    tally["damaged in archive"] += 1
                    continue
                yield f"{name}:{number}:{shown}", data if len(data) <= LIMIT else None
