"""Wikipedia, from the XML dumps that MediaWiki exports.

A dump is read in parts of about 16 MB. A worker opens plain XML and multistream bzip2 by itself, at
the place its part starts; other streams can only be read in order, so the parent reads them. In
both cases a page belongs to the part in which its `<page>` tag starts.
"""

import codecs
import io
import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from electrify.corpora import archive, wikitext
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.wikisite import Site, is_disambiguation, is_redirect
from electrify.errors import UserError

PART = 16 << 20  # bytes of XML
PACKED_PART = 4 << 20  # the same in bzip2, which packs wikitext about 4 : 1
LARGEST_STREAM = 32 << 20  # of packed bytes; a larger one is no gain over reading in order
LARGEST_PAGE = 256 << 20  # with all its revisions; larger ones are left out and counted
LARGEST_HEADER = 4 << 20
TAIL = 1024  # bytes at the end in which a whole dump has its closing tag
CUT = "source truncated"

SUFFIXES = (".xml", *archive.COMPRESSED)
_INDEX_SUFFIXES = tuple(
    f".txt{suffix}" for suffix in archive.COMPRESSED
)  # beside multistream dumps
_BYTE_ORDERS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
                b"<\0": "utf-16-le", b"\0<": "utf-16-be"}  # fmt: skip
_STREAM = re.compile(
    rb"BZh[1-9]1AY&SY"
)  # header of a bzip2 stream, magic number of its first block
_OPENING, _CLOSING, _LAST = b"<page>", b"</page>", b"</mediawiki>"


@dataclass(frozen=True)
class Wikipedia:
    """Articles of a MediaWiki dump as clean prose."""

    headings: bool = False
    """Keep the titles of sections, each on a line of its own."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Cut dumps into parts; see the module for which of them carry data."""
        files = [
            (path, name, path.stat().st_size)
            for path, name in archive.expand(sources, SUFFIXES)
            if path in sources or not name.endswith(_INDEX_SUFFIXES)
        ]
        done, total = 0, sum(size for *_, size in files) or 1
        for path, name, size in files:
            for part in _parts_of(path, name):
                yield replace(part, share=(done + size * (part.share or 0)) / total)
            done += size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The articles of a part; redirects, other namespaces and so on are counted in `tally`."""
        for page in chain(_pages(part.data), _sliced_pages(part.slices, tally)):
            article = _article(page, part.context)
            if isinstance(article, str):
                tally[article] += 1
                continue
            text = wikitext.clean(article.wikitext, article.title, part.context, self.headings)
            if text:
                yield Document(article.id, text, source=part.source, title=article.title)
            else:
                tally["empty"] += 1


# --- cutting, in the parent -----------------------------------------------------------------------


def _parts_of(path: Path, name: str) -> Iterator[Part]:
    header, encoding = _read_header(path, name)
    whole = Part(source=name, context=Site.from_header(header))
    if encoding == "utf-8" and path.suffix.lower() not in archive.COMPRESSED:
        yield from _even_parts(path, whole)
    elif encoding == "utf-8" and (starts := _stream_starts(path)):
        yield from _grouped_parts(path, starts, whole)
    else:
        yield from _parts_in_order(path, encoding, whole)


def _read_header(path: Path, name: str) -> tuple[str, str]:
    """What stands before the first page, and the encoding of the whole; refuses what is no dump."""
    raw = b""
    try:
        for block in archive.read_blocks(path):
            raw += block
            encoding = _BYTE_ORDERS.get(raw[:2], "utf-8")
            opening = "<page>".encode(encoding)
            if opening in raw or len(raw) > LARGEST_HEADER:
                break
    except archive.Truncated:
        pass
    if not raw:
        raise UserError(f"{name} is empty", got="no bytes", fix="download the dump again")
    encoding = _BYTE_ORDERS.get(raw[:2], "utf-8")
    header = raw.decode(encoding, errors="replace").partition("<page>")[0]
    if "<!doctype" in header[:LARGEST_HEADER].lower():
        raise UserError(
            f"{name} has a DOCTYPE, which no MediaWiki export has",
            got=repr(header[:80]),
            fix="give a dump as MediaWiki exports it, from dumps.wikimedia.org or Special:Export",
        )
    if "<mediawiki" not in header:
        raise UserError(
            f"{name} is not a MediaWiki export",
            got=f"a file that starts with {header[:80]!r}",
            fix="give a pages-articles dump (.xml, .xml.bz2, .xml.gz)",
        )
    return header, encoding


def _parts_in_order(path: Path, encoding: str, whole: Part) -> Iterator[Part]:
    size, tail, is_cut = path.stat().st_size, b"", False
    held: Part | None = None  # one part behind, as only the end shows whether the source was cut
    with archive.open_source(path) as raw:
        blocks = archive.decompress(raw, path.suffix.lower(), path.name)
        if encoding != "utf-8":
            blocks = _to_utf8(blocks, encoding)
        try:
            for chunk, left_out in archive.cut(blocks, _CLOSING, PART, LARGEST_PAGE):
                if held:
                    yield held
                too_long = f"{left_out} page of more than {LARGEST_PAGE >> 20} MB left out"
                troubles = (too_long,) if left_out else ()
                held = replace(whole, data=chunk, troubles=troubles, share=raw.tell() / size)
                tail = (tail + chunk)[-TAIL:]
        except archive.Truncated:
            is_cut = True
    held = held or whole
    told = held.troubles + ((CUT,) if is_cut or _LAST not in tail else ())
    yield replace(held, troubles=told, share=1.0)


def _to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", errors="replace")


def _even_parts(path: Path, whole: Part) -> Iterator[Part]:
    """Plain XML: cut at every PART bytes, wherever that is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - TAIL))
        troubles = () if _LAST in file.read() else (CUT,)
    yield from _slices(path, [*range(0, size, PART), size], whole, troubles)


def _stream_starts(path: Path) -> list[int]:
    """Where the streams of a multistream bzip2 file start; none if it must be read in order."""
    if path.suffix.lower() != ".bz2":
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as packed:
        starts = [found.start() for found in _STREAM.finditer(packed)]
        gaps = [
            stop - start for start, stop in zip(starts, [*starts[1:], len(packed)], strict=True)
        ]
    return starts if len(starts) > 1 and starts[0] == 0 and max(gaps) <= LARGEST_STREAM else []


def _grouped_parts(path: Path, starts: list[int], whole: Part) -> Iterator[Part]:
    """Multistream bzip2: whole streams, until they are PACKED_PART bytes."""
    bounds = [0]
    for start in starts:
        if start - bounds[-1] >= PACKED_PART:
            bounds.append(start)
    size = path.stat().st_size
    tail, count = b"", 1
    while len(tail) < TAIL and count < len(starts):  # streams may be as short as one byte
        count *= 2
        tail = b"".join(
            _until_fault(_unpacked(Slice(path, starts[max(-count, -len(starts))], size)))
        )
    troubles = () if _LAST in tail[-TAIL:] else (CUT,)
    yield from _slices(path, [*bounds, size], whole, troubles)


def _slices(
    path: Path, bounds: list[int], whole: Part, troubles: tuple[str, ...]
) -> Iterator[Part]:
    for start, stop in pairwise(bounds):
        part = replace(whole, slices=(Slice(path, start, stop),), share=stop / bounds[-1])
        yield replace(part, troubles=troubles) if stop == bounds[-1] else part


# --- reading, in a worker -------------------------------------------------------------------------


def _unpacked(where: Slice) -> Iterator[bytes]:
    """The XML in a slice, unpacked; to the end of the file if the slice has no stop."""
    with archive.open_source(where.path) as file:
        file.seek(where.start)
        raw: BinaryIO = file
        if where.stop is not None:
            raw = io.BytesIO(file.read(where.stop - where.start))
        yield from archive.decompress(raw, where.path.suffix.lower(), where.path.name)


def _until_fault(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks before the stream breaks off; the parent has told of it already."""
    with suppress(archive.Truncated):
        yield from blocks


def _sliced_pages(slices: tuple[Slice, ...], tally: Counter[str]) -> Iterator[bytes]:
    for where in slices:
        inside = b"".join(_until_fault(_unpacked(where)))
        following = _until_fault(_unpacked(Slice(where.path, where.stop or 0)))
        yield from _pages(_finish(inside, following, tally))


def _finish(inside: bytes, following: Iterator[bytes], tally: Counter[str]) -> bytes:
    """The bytes of a part, with as much of what follows as its last page needs."""
    border, read = len(inside), bytearray(inside)
    if any(inside.endswith(_OPENING[:length]) for length in range(1, len(_OPENING))):
        for block in following:  # a page's very tag may lie across the border
            read += block
            if len(read) >= border + len(_OPENING):
                break
    last = read.rfind(_OPENING, 0, border + len(_OPENING) - 1)
    if last < 0:
        return b""
    searched = last
    while (end := read.find(_CLOSING, searched)) < 0:
        searched = max(last, len(read) - len(_CLOSING) + 1)
        block = next(following, b"")
        if len(read) > last + LARGEST_PAGE:
            tally["too long"] += 1
            block = b""
        if not block:
            return bytes(read[:last])
        read += block
    return bytes(read[: end + len(_CLOSING)])


# --- pages ----------------------------------------------------------------------------------------

_TITLE = re.compile(rb"<title>([^<]*)</title>")
_NAMESPACE = re.compile(rb"<ns>\s*(-?\d+)\s*</ns>")
_ID = re.compile(rb"<id>\s*(\d+)\s*</id>")
_MODEL = re.compile(rb"<model>([^<]*)</model>")
_TEXT = re.compile(rb"<text\b[^>]*(?<!/)>")
# The ampersand comes last, or "&amp;lt;" would become "<".
_ESCAPES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))


class _Article(NamedTuple):
    id: str
    title: str
    wikitext: str


def _pages(data: bytes) -> Iterator[bytes]:
    """The whole pages in some XML. Text is escaped in it, so a tag is always a tag."""
    start = data.find(_OPENING)
    while start >= 0 and (stop := data.find(_CLOSING, start)) >= 0:
        yield data[start:stop]
        start = data.find(_OPENING, stop)


def _article(page: bytes, site: Site) -> _Article | str:
    """The article that a page is, or the reason why it is none."""
    revisions = page.find(b"<revision")
    head = page[:revisions] if revisions >= 0 else page
    revision = page[max(0, page.rfind(b"<revision")) :]
    title_found, id_found = _TITLE.search(head), _ID.search(head)
    if not title_found or not id_found:
        return "no title or id"
    title = unescape(title_found[1].decode("utf-8", errors="replace"))
    namespace = _NAMESPACE.search(head)
    if namespace[1] != b"0" if namespace else not site.is_article_title(title):
        return "other namespace"
    if b"<redirect" in head:
        return "redirect"
    model = _MODEL.search(revision)
    if model and model[1] != b"wikitext":
        return "not wikitext"
    start = _TEXT.search(revision)  # the first is the main slot; an empty one is <text />
    stop = revision.find(b"</text>", start.end()) if start else -1
    text = revision[start.end() : stop].decode("utf-8", errors="replace") if start else ""
    for escape, sign in _ESCAPES:
        text = text.replace(escape, sign)
    if is_redirect(text):
        return "redirect"
    if is_disambiguation(title, text):
        return "disambiguation"
    return _Article(id_found[1].decode(), title, text)
