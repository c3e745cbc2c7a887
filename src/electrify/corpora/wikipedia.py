"""Read Wikipedia from the XML dumps that MediaWiki exports.

A dump is read in parts of about 16 MB. A worker opens plain XML and multistream bzip2 itself, at
the offset where its part starts; other streams can only be read in order, so the parent reads them.
In both cases a page belongs to the part in which its `<page>` tag starts.
"""

import bz2
import codecs
import mmap
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import unescape
from itertools import chain, pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

from electrify.corpora import archive, wikitext
from electrify.corpora.clean import decode_utf8
from electrify.corpora.document import Document, Part, Slice
from electrify.corpora.troubles import CUT, NOTE, OTHER_SUFFIX, TOO_LARGE, TRUNCATED
from electrify.corpora.wikisite import Site, is_disambiguation, is_redirect
from electrify.errors import UserError

XML_PART_BYTES = 16 << 20  # bytes of XML
BZ2_PART_BYTES = 4 << 20  # the same in bzip2, which compresses wikitext about 4 : 1
MAX_STREAM_BYTES = 32 << 20  # compressed; larger ones are no faster than reading in order
# Larger pages are dropped and counted. Real pages have at most 2 MB of XML (dumps with the full
# history are not supported), and up to eight parts are in memory, within 1 GB.
MAX_PAGE_BYTES = 32 << 20
MAX_HEADER_SIZE = 4 << 20
CLOSING_BYTES = 1024  # at the end of a complete dump, which contain its closing tag
DAMAGED = NOTE + "source damaged"  # counted once for each damaged bzip2 stream

# Of the index files beside multistream dumps.
_INDEX_SUFFIXES = tuple(f".txt{suffix}" for suffix in archive.COMPRESSED)
_BYTE_ORDERS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be",
                b"<\0": "utf-16-le", b"\0<": "utf-16-be"}  # fmt: skip
_ENCODING = re.compile(
    rb"""(?:\xef\xbb\xbf)?\s*<\?xml[^>]{,200}?encoding=["']([\w.:-]{1,40})["']"""
)
_DECODER_BYTES = 8192  # passed to a bzip2 decoder at a time; lost if it fails on them
# The header of a bzip2 stream, then the magic number of its first block, or of its end.
_STREAM = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
_OPENING, _CLOSING, _LAST = b"<page>", b"</page>", b"</mediawiki>"
_FAULT = b"<page><fault/></page>"  # replaces missing bytes, so that no page spans a gap


class _Dump(NamedTuple):
    """What a worker needs to know about the dump of its part."""

    site: Site
    prefix: str
    """Prefix of page ids, because two dumps may use the same ids."""


@dataclass(frozen=True)
class Wikipedia:
    """Articles of a MediaWiki dump as clean prose."""

    suffixes: ClassVar[Sequence[str]] = (".xml", *archive.COMPRESSED)
    headings: bool = False
    """Keep section headings, each on its own line."""

    def parts(self, sources: Sequence[Path]) -> Iterator[Part]:
        """Split dumps into parts; the module docstring says which of them carry data."""
        found = archive.expand(sources, self.suffixes)
        files = [
            (path, name, path.stat().st_size)
            for path, name in found
            if path in sources or not name.endswith(_INDEX_SUFFIXES)
        ]
        unread = (OTHER_SUFFIX,) * (len(found) - len(files))
        done, total = 0, sum(size for *_, size in files) or 1
        for path, name, size in files:
            for part in _parts_of(path, name, f"{name}:" if len(files) > 1 else ""):
                fraction = (done + size * (part.fraction or 0)) / total
                yield replace(part, problems=unread + part.problems, fraction=fraction)
                unread = ()
            done += size

    def documents(self, part: Part, tally: Counter[str]) -> Iterator[Document]:
        """Yield the articles of a part; redirects, other namespaces etc. are counted in `tally`."""
        for page in chain(_pages(part.data, tally), _sliced_pages(part.slices, tally)):
            dump: _Dump = part.context
            article = _article(page, dump.site, tally)
            if isinstance(article, str):
                tally[article] += 1
                continue
            text = wikitext.clean(article.wikitext, article.title, dump.site, self.headings)
            if text:
                name = dump.prefix + article.id
                yield Document(name, text, source=part.source, title=article.title)
            else:
                tally["empty"] += 1


# --- splitting, in the parent ---------------------------------------------------------------------


def _parts_of(path: Path, name: str, prefix: str) -> Iterator[Part]:
    header, encoding = _read_header(path, name)
    template = Part(source=name, context=_Dump(Site.from_header(header), prefix))
    if encoding == "utf-8" and path.suffix.lower() not in archive.COMPRESSED:
        yield from _even_parts(path, template)
    elif encoding == "utf-8" and (starts := _stream_starts(path)):
        yield from _grouped_parts(path, starts, template)
    else:
        yield from _parts_in_order(path, encoding, template)


def _read_header(path: Path, name: str) -> tuple[str, str]:
    """Return the text before the first page and the encoding; raise an error if not a dump."""
    raw = b""
    with suppress(archive.Truncated):
        for block in archive.read_blocks(path):
            raw += block
            opening = "<page>".encode(_BYTE_ORDERS.get(raw[:2], "utf-8"))
            if opening in raw or len(raw) > MAX_HEADER_SIZE:
                break
    if not raw:
        raise UserError(f"{name} is empty", got="0 bytes", fix="download the dump again")
    encoding = _BYTE_ORDERS.get(raw[:2]) or _declared_encoding(raw, name)
    header = raw.decode(encoding, errors="replace").partition("<page>")[0]
    if "<!doctype" in header[:MAX_HEADER_SIZE].lower():
        raise UserError(
            f"{name} has a DOCTYPE, unlike any MediaWiki export",
            got=repr(header[:80]),
            fix="use a MediaWiki export, from dumps.wikimedia.org or Special:Export",
        )
    if "<mediawiki" not in header:
        raise UserError(
            f"{name} is not a MediaWiki export",
            got=f"a file that starts with {header[:80]!r}",
            fix="use a pages-articles dump (.xml, .xml.bz2, .xml.gz)",
        )
    return header, encoding


def _declared_encoding(raw: bytes, name: str) -> str:
    """Return the encoding in the XML declaration of a dump that starts like ASCII text."""
    declared = _ENCODING.match(raw)
    encoding = declared[1].decode().lower() if declared else "utf-8"
    if encoding.startswith(("utf-8", "utf8", "utf-16", "utf-32", "ascii", "us-ascii")):
        return "utf-8"  # what looks like ASCII is neither UTF-16 nor UTF-32
    try:
        known = _OPENING.decode(encoding, "replace") == _OPENING.decode()
    except (LookupError, UnicodeError):
        known = False
    if not known:
        raise UserError(
            f"{name} is in an unknown encoding",
            got=f"encoding {encoding!r} in its XML declaration",
            fix="convert the dump to UTF-8, and change the declaration",
        )
    return encoding


def _parts_in_order(path: Path, encoding: str, template: Part) -> Iterator[Part]:
    size, tail, truncated = path.stat().st_size, b"", False
    held: Part | None = None  # held back, because only the end shows if the dump is truncated
    with archive.open_source(path) as raw:
        decompressed = archive.decompress(raw, path.suffix.lower(), path.name)
        blocks = archive.to_utf8(decompressed, encoding)
        try:
            chunks = archive.cut_after(blocks, _CLOSING, XML_PART_BYTES, MAX_PAGE_BYTES)
            for chunk, left_out in chunks:
                if held:
                    yield held
                problems = (TOO_LARGE,) * left_out
                fraction = raw.tell() / size
                held = replace(template, data=chunk, problems=problems, fraction=fraction)
                tail = (tail + chunk)[-CLOSING_BYTES:]
        except archive.Truncated:
            truncated = True
    held = held or template
    problems = held.problems + ((TRUNCATED,) if truncated or _LAST not in tail else ())
    yield replace(held, problems=problems, fraction=1.0)


def _even_parts(path: Path, template: Part) -> Iterator[Part]:
    """Split plain XML every XML_PART_BYTES bytes, wherever that is."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - CLOSING_BYTES))
        problems = () if _LAST in file.read() else (TRUNCATED,)
    yield from _slices(path, [*range(0, size, XML_PART_BYTES), size], template, problems)


def _stream_starts(path: Path) -> list[int]:
    """Return the offsets of the streams of multistream bzip2; none if it must be read in order."""
    if path.suffix.lower() != ".bz2":
        return []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = [found.start() for found in _STREAM.finditer(data)]
        sizes = [stop - start for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]
    return starts if len(starts) > 1 and starts[0] == 0 and max(sizes) <= MAX_STREAM_BYTES else []


def _grouped_parts(path: Path, starts: list[int], template: Part) -> Iterator[Part]:
    """Group the streams of multistream bzip2 into parts of BZ2_PART_BYTES bytes."""
    bounds = [0]
    for start in starts:
        if start - bounds[-1] >= BZ2_PART_BYTES:
            bounds.append(start)
    size = path.stat().st_size
    tail, count = b"", 1
    while len(tail) < CLOSING_BYTES and count < len(starts):  # streams may be as short as one byte
        count *= 2
        with path.open("rb") as file:
            file.seek(starts[max(-count, -len(starts))])
            tail = _decompress(file.read(), at_end=True, name=path.name)
    problems = () if _LAST in tail[-CLOSING_BYTES:] else (TRUNCATED,)
    yield from _slices(path, [*bounds, size], template, problems)


def _slices(
    path: Path, bounds: list[int], template: Part, problems: tuple[str, ...]
) -> Iterator[Part]:
    for start, stop in pairwise(bounds):
        part = replace(template, slices=(Slice(path, start, stop),), fraction=stop / bounds[-1])
        yield replace(part, problems=problems) if stop == bounds[-1] else part


# --- reading, in a worker -------------------------------------------------------------------------


def _following(path: Path, start: int) -> Iterator[bytes]:
    """Yield the decompressed XML from an offset to the end of the file or the first damage."""
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
            inside = _decompress(inside, at_end, path.name)
        yield from _pages(_finish(inside, _following(path, end), tally), tally)


def _decompress(data: bytes, at_end: bool, name: str) -> bytes:
    """Decompress bzip2 streams; a damaged stream gives its valid bytes, then `_FAULT`.

    A fault in the last stream of the file is already known: the parent missed the closing tag.
    """
    xml = bytearray()
    starts = [found.start() for found in _STREAM.finditer(data)]
    for start, stop in pairwise([*starts, len(data)]):
        stream = bz2.BZ2Decompressor()
        try:
            for at in range(start, stop, _DECODER_BYTES):
                block = data[at : min(stop, at + _DECODER_BYTES)]
                while block or not (stream.needs_input or stream.eof):
                    xml += stream.decompress(block, archive.BLOCK_BYTES)
                    archive.refuse_bomb(name, len(xml), at + len(block))
                    block = b""
            complete = stream.eof and not stream.unused_data
        except (OSError, EOFError):  # invalid bytes, or bytes after the end of the stream
            complete = False
        if not complete and not (at_end and stop == len(data)):
            xml += _FAULT
    return bytes(xml)


def _finish(inside: bytes, following: Iterator[bytes], tally: Counter[str]) -> bytes:
    """Return the bytes of a part, extended to the end of its last page."""
    border, read = len(inside), bytearray(inside)
    if any(inside.endswith(_OPENING[:length]) for length in range(1, len(_OPENING))):
        for block in following:  # the tag itself may cross the border
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
        if not block or len(read) > last + MAX_PAGE_BYTES:
            tally[TOO_LARGE if block else CUT] += 1
            return bytes(read[:last])
        read += block
    if read.find(_OPENING, last + 1, end) >= 0:  # the page of the next part, which reads it
        tally[CUT] += 1
        return bytes(read[:last])
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


def _pages(data: bytes, tally: Counter[str]) -> Iterator[bytes]:
    """Yield the complete pages in XML, where text is escaped, so every tag is real."""
    start, cut = data.find(_OPENING), 0
    while start >= 0 and (stop := data.find(_CLOSING, start)) >= 0:
        page = data[data.rfind(_OPENING, start, stop) : stop]  # one may break off before the next
        fault = _FAULT.startswith(page)  # counted, so that the page before it is not
        cut += max(0, data.count(_OPENING, start, stop) - (2 if fault else 1))
        yield page
        start = data.find(_OPENING, stop)
    if cut := cut + (data.count(_OPENING, start) if start >= 0 else 0):
        tally[CUT] += cut


def _article(page: bytes, site: Site, tally: Counter[str]) -> _Article | str:
    """Return the article of a page, or the reason to drop the page."""
    if _FAULT.startswith(page):
        return DAMAGED
    revisions = page.find(b"<revision")
    head = page[:revisions] if revisions >= 0 else page
    revision = page[max(0, page.rfind(b"<revision")) :]
    title_found, id_found = _TITLE.search(head), _ID.search(head)
    if not title_found or not id_found:
        return "no title or id"
    title = unescape(title_found[1].decode(errors="replace"))
    namespace = _NAMESPACE.search(head)
    if namespace[1] != b"0" if namespace else not site.is_article_title(title):
        return "other namespace"
    if b"<redirect" in head:
        return "redirect"
    model = _MODEL.search(revision)
    if model and model[1] != b"wikitext":
        return "not wikitext"
    start = _TEXT.search(revision)  # the first is the main slot; an empty text is <text />
    stop = revision.find(b"</text>", start.end()) if start else -1
    if start and stop < 0:
        return CUT
    text = decode_utf8(revision[start.end() : stop], tally) if start else ""
    for escape, sign in _ESCAPES:
        text = text.replace(escape, sign)
    if is_redirect(text):
        return "redirect"
    if is_disambiguation(title, text):
        return "disambiguation"
    return _Article(id_found[1].decode(), title, text)
