"""Wikipedia, from the XML dumps that MediaWiki exports.

A dump is read in parts of about 16 MB. A worker opens plain XML and multistream bzip2 by itself, at
the place its part starts; other streams can only be read in order, so the parent reads them. In
both cases a page belongs to the part in which its `<page>` tag starts.
"""

import bz2
import codecs
import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

from electrify.corpora import archive, wikitext
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.troubles import CUT, NOTE, TOO_LARGE, TRUNCATED
from electrify.corpora.wikisite import Site, is_disambiguation, is_redirect
from electrify.errors import UserError

XML_PART = 16 << 20  # bytes of XML
PACKED_PART = 4 << 20  # the same in bzip2, which packs wikitext about 4 : 1
LARGEST_STREAM = 32 << 20  # of packed bytes; a larger one is no gain over reading in order
# Of XML; larger pages are left out and counted. Real ones have 2 MB at most (not with all their
# revisions, but such dumps are not meant here), and eight parts are held at once, within 1 GB.
LARGEST_PAGE = 32 << 20
LARGEST_HEADER = 4 << 20
CLOSING_BYTES = 1024  # bytes at the end in which a whole dump has its closing tag
DAMAGED = NOTE + "source damaged"  # once for each bzip2 stream that is

SUFFIXES = (".xml", *archive.COMPRESSED)
# What lies beside multistream dumps.
_INDEX_SUFFIXES = tuple(f".txt{suffix}" for suffix in archive.COMPRESSED)
_BYTE_ORDERS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
                b"<\0": "utf-16-le", b"\0<": "utf-16-be"}  # fmt: skip
# The header of a bzip2 stream, then the magic number of its first block, or of its end.
_PIECE = 8192  # bytes given to a bzip2 decoder at once: where it fails, what they hold is lost
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_OPENING, _CLOSING, _LAST = b"<page>", b"</page>", b"</mediawiki>"
_FAULT = b"<page><fault/></page>"  # stands where bytes are missing, so that no page bridges a gap


class _Dump(NamedTuple):
    """What a worker must know of the dump that its part belongs to."""

    site: Site
    prefix: str
    """What stands before page ids: two dumps may use the same ones."""


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
            for part in _parts_of(path, name, f"{name}:" if len(files) > 1 else ""):
                yield replace(part, share=(done + size * (part.share or 0)) / total)
            done += size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """The articles of a part; redirects, other namespaces and so on are counted in `tally`."""
        for page in chain(_pages(part.data), _sliced_pages(part.slices, tally)):
            dump: _Dump = part.context
            article = _article(page, dump.site)
            if isinstance(article, str):
                tally[article] += 1
                continue
            text = wikitext.clean(article.wikitext, article.title, dump.site, self.headings)
            if text:
                name = dump.prefix + article.id
                yield Document(name, text, source=part.source, title=article.title)
            else:
                tally["empty"] += 1


# --- cutting, in the parent -----------------------------------------------------------------------


def _parts_of(path: Path, name: str, prefix: str) -> Iterator[Part]:
    header, encoding = _read_header(path, name)
    whole = Part(source=name, context=_Dump(Site.from_header(header), prefix))
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
            for chunk, left_out in archive.cut_after(blocks, _CLOSING, XML_PART, LARGEST_PAGE):
                if held:
                    yield held
                troubles = (TOO_LARGE,) * left_out
                held = replace(whole, data=chunk, troubles=troubles, share=raw.tell() / size)
                tail = (tail + chunk)[-CLOSING_BYTES:]
        except archive.Truncated:
            is_cut = True
    held = held or whole
    on_progress = held.troubles + ((TRUNCATED,) if is_cut or _LAST not in tail else ())
    yield replace(held, troubles=on_progress, share=1.0)


def _to_utf8(blocks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", errors="replace")


def _even_parts(path: Path, whole: Part) -> Iterator[Part]:
    """Plain XML: cut at every XML_PART bytes, wherever that is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - CLOSING_BYTES))
        troubles = () if _LAST in file.read() else (TRUNCATED,)
    yield from _slices(path, [*range(0, size, XML_PART), size], whole, troubles)


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
    while len(tail) < CLOSING_BYTES and count < len(starts):  # streams may be as short as one byte
        count *= 2
        with path.open("rb") as file:
            file.seek(starts[max(-count, -len(starts))])
            tail = _unpacked(file.read(), at_end=True, name=path.name)
    troubles = () if _LAST in tail[-CLOSING_BYTES:] else (TRUNCATED,)
    yield from _slices(path, [*bounds, size], whole, troubles)


def _slices(
    path: Path, bounds: list[int], whole: Part, troubles: tuple[str, ...]
) -> Iterator[Part]:
    for start, stop in pairwise(bounds):
        part = replace(whole, slices=(Slice(path, start, stop),), share=stop / bounds[-1])
        yield replace(part, troubles=troubles) if stop == bounds[-1] else part


# --- reading, in a worker -------------------------------------------------------------------------


def _following(path: Path, start: int) -> Iterator[bytes]:
    """The XML from a place on, unpacked, to where the file ends or is damaged."""
    with archive.open_source(path) as file, suppress(archive.Truncated):
        file.seek(start)
        yield from archive.decompress(file, path.suffix.lower(), path.name)


def _sliced_pages(slices: tuple[Slice, ...], tally: Counter[str]) -> Iterator[bytes]:
    for path, start, stop, _ in slices:
        with archive.open_source(path) as file:
            file.seek(start)
            inside = file.read(-1 if stop is None else stop - start)
            end = file.tell()
            at_end = not file.read(1)
        if path.suffix.lower() == ".bz2":
            inside = _unpacked(inside, at_end, path.name)
        yield from _pages(_finish(inside, _following(path, end), tally))


def _unpacked(packed: bytes, at_end: bool, name: str) -> bytes:
    """What bzip2 streams hold. A damaged one gives what it can, then `_FAULT`; the others go on.

    A fault in the last stream of the file is no news: the parent missed the closing tag already.
    """
    xml = bytearray()
    starts = [found.start() for found in _STREAM.finditer(packed)]
    for start, stop in pairwise([*starts, len(packed)]):
        stream = bz2.BZ2Decompressor()
        try:
            for at in range(start, stop, _PIECE):
                piece = packed[at : min(stop, at + _PIECE)]
                while piece or not (stream.needs_input or stream.eof):
                    xml += stream.decompress(piece, archive.BLOCK_BYTES)
                    archive.refuse_bomb(name, len(xml), at + len(piece))
                    piece = b""
            is_whole = stream.eof and not stream.unused_data
        except (OSError, EOFError):  # bytes that make no sense, or more of them after the end
            is_whole = False
        if not is_whole and not (at_end and stop == len(packed)):
            xml += _FAULT
    return bytes(xml)


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
        if not block or len(read) > last + LARGEST_PAGE:
            tally[TOO_LARGE if block else CUT] += 1
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
        yield data[data.rfind(_OPENING, start, stop) : stop]  # one may break off before the next
        start = data.find(_OPENING, stop)


def _article(page: bytes, site: Site) -> _Article | str:
    """The article that a page is, or the reason why it is none."""
    if _FAULT.startswith(page):
        return DAMAGED
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
