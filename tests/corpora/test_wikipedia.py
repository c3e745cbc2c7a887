"""Dumps in every container and schema give the same documents, complete or truncated."""

import bz2
import gzip
import lzma
import pickle
import re
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from electrify.corpora import wikipedia
from electrify.corpora.document import Document, Part
from electrify.corpora.troubles import CUT, OTHER_SUFFIX, TOO_LARGE, TRUNCATED
from electrify.corpora.wikipedia import DAMAGED, Wikipedia
from electrify.errors import UserError

NAMESPACES = """<namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>"""
HEAD = f"""<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="de">
  <siteinfo>
    <sitename>Wikipedia</sitename>
    {NAMESPACES}
  </siteinfo>
"""


def page(
    number: int,
    title: str,
    text: str,
    ns: str = "<ns>0</ns>",
    extra: str = "",
    model: str = "<model>wikitext</model>",
    attributes: str = ' xml:space="preserve"',
) -> str:
    return f"""  <page>
    <title>{title}</title>
    {ns}
    <id>{number}</id>
    {extra}
    <revision>
      <id>{number + 1000}</id>
      <contributor><username>A</username><id>999</id></contributor>
      {model}
      <text{attributes}>{text}</text>
    </revision>
  </page>
"""


def articles(count: int) -> list[str]:
    return [page(i, f"Tea {i}", f"'''Tea {i}''' is [[hot]] — é. " + "x " * i) for i in range(count)]


def dump(pages: list[str], head: str = HEAD) -> bytes:
    return (head + "".join(pages) + "</mediawiki>\n").encode()


def multistream(xml: bytes, size: int) -> bytes:
    """Compress like pbzip2, into streams that split the XML anywhere."""
    return b"".join(bz2.compress(xml[i : i + size]) for i in range(0, len(xml), size))


def read(*paths: Path, **options: bool) -> tuple[list[Document], Counter[str], list[Part]]:
    reader, tally = Wikipedia(**options), Counter[str]()
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.parts(paths)]
    return [d for part in parts for d in reader.documents(part, tally)], tally, parts


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def problems(parts: list[Part]) -> list[str]:
    return [problem for part in parts for problem in part.problems]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "XML_PART_BYTES", 1000)
    monkeypatch.setattr(wikipedia, "BZ2_PART_BYTES", 300)


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "dump.xml": bytes,
    "dump.xml.gz": gzip.compress,
    "dump.xml.bz2": bz2.compress,
    "streams.xml.bz2": lambda xml: multistream(xml, 700),
    "dump.xml.xz": lzma.compress,
    "le.xml": lambda xml: b"\xff\xfe" + xml.decode().encode("utf-16-le"),
    "be.xml.gz": lambda xml: gzip.compress(b"\xfe\xff" + xml.decode().encode("utf-16-be")),
    "le.xml.bz2": lambda xml: multistream(b"\xff\xfe" + xml.decode().encode("utf-16-le"), 700),
    "bom.xml": lambda xml: b"\xef\xbb\xbf" + xml,
}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_give_the_same_documents(tmp_path: Path, name: str) -> None:
    xml = dump(articles(40))
    documents, _, parts = read(write(tmp_path, name, CONTAINERS[name](xml)))
    assert [d.id for d in documents] == [str(i) for i in range(40)]
    assert documents[2] == Document("2", "Tea 2 is hot — é. x x", source=name, title="Tea 2")
    assert len(parts) > 5
    assert not problems(parts)
    assert [part.fraction for part in parts] == sorted(part.fraction or -1 for part in parts)
    assert parts[-1].fraction == 1
    in_order = name not in ("dump.xml", "streams.xml.bz2", "bom.xml")
    assert all(bool(part.data) is in_order and bool(part.slices) is not in_order for part in parts)


def test_zstandard(tmp_path: Path) -> None:
    import zstandard

    compressed = zstandard.ZstdCompressor().compress(dump(articles(5)))
    assert len(read(write(tmp_path, "dump.xml.zst", compressed))[0]) == 5


@pytest.mark.parametrize("size", [*range(1, 40), 97, 500])
def test_streams_may_split_the_xml_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(wikipedia, "BZ2_PART_BYTES", 1)  # every stream is a part
    head = HEAD.encode()
    xml = dump(articles(3))
    body = xml[len(head) :]
    compressed = bz2.compress(head) + multistream(body, size)
    documents, _, parts = read(write(tmp_path, "dump.xml.bz2", compressed))
    assert [d.id for d in documents] == ["0", "1", "2"]
    assert len(parts) > len(body) // size
    assert not problems(parts)


@pytest.mark.parametrize("size", [*range(1, 30), 64, 333])
def test_parts_of_plain_xml_may_start_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(wikipedia, "XML_PART_BYTES", size)
    documents, _, _ = read(write(tmp_path, "dump.xml", dump(articles(3))))
    assert [d.id for d in documents] == ["0", "1", "2"]


def decompress_bz2(compressed: bytes) -> bytes:
    """Decompress the complete streams, and the last one as far as possible."""
    xml = b""
    while compressed:
        stream = bz2.BZ2Decompressor()
        xml += stream.decompress(compressed)
        compressed = stream.unused_data
    return xml


DECOMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "dump.xml": bytes,
    "dump.xml.gz": lambda compressed: zlib.decompressobj(31).decompress(compressed),
    "streams.xml.bz2": decompress_bz2,
    "le.xml": lambda compressed: compressed.decode("utf-16", errors="ignore").encode(),
}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("name", DECOMPRESSORS)
def test_a_truncated_dump_keeps_every_complete_page_and_is_reported(
    tmp_path: Path, name: str
) -> None:
    compressed = CONTAINERS[name](dump(articles(8)))
    counts = set()
    for length in range(300, len(compressed) - 30, 37):
        xml = DECOMPRESSORS[name](compressed[:length])
        path = write(tmp_path, name, compressed[:length])
        if b"<mediawiki" not in xml:
            with pytest.raises(UserError):
                read(path)
            continue
        documents, _, parts = read(path)
        assert problems(parts) == [TRUNCATED]
        assert [d.id for d in documents] == [str(i) for i in range(xml.count(b"</page>"))]
        for document in documents:
            assert document.text == f"Tea {document.id} is hot — é." + " x" * int(document.id)
        counts.add(len(documents))
    assert len(counts) > 1


def test_a_dump_without_its_closing_tag_counts_as_truncated(tmp_path: Path) -> None:
    xml = dump(articles(3)).removesuffix(b"</mediawiki>\n")
    for name in ("dump.xml", "dump.xml.gz", "dump.xml.bz2", "streams.xml.bz2"):
        documents, _, parts = read(write(tmp_path, name, CONTAINERS[name](xml)))
        assert len(documents) == 3
        assert problems(parts) == [TRUNCATED]


def with_flipped(data: bytes, position: int) -> bytes:
    return (
        data[:position]
        + bytes(byte ^ 0x55 for byte in data[position : position + 2])
        + data[position + 2 :]
    )


@pytest.mark.parametrize("compressed_part", [1, 1 << 20])  # every stream a part, and all one
@pytest.mark.parametrize("at", ["magic", "block", "middle", "end"])
def test_damage_costs_one_stream_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compressed_part: int, at: str
) -> None:
    monkeypatch.setattr(wikipedia, "BZ2_PART_BYTES", compressed_part)
    xml = dump(articles(60))
    size = 1777  # several pages, never ending between two
    streams = [bz2.compress(xml[i : i + size]) for i in range(0, len(xml), size)]
    spans = [(found.start(), found.end()) for found in re.finditer(b"(?s)<page>.*?</page>", xml)]
    for broken in range(1, len(streams) - 1):
        start = sum(map(len, streams[:broken]))
        length = len(streams[broken])
        position = {"magic": 0, "block": 12, "middle": length // 2, "end": length - 6}[at]
        path = write(tmp_path, "dump.xml.bz2", with_flipped(b"".join(streams), start + position))
        documents, tally, parts = read(path)
        lost = range(broken * size, (broken + 1) * size)
        intact = [
            str(number)
            for number, (first, end) in enumerate(spans)
            if end <= lost.start or first >= lost.stop
        ]
        assert [d.id for d in documents] == intact
        for document in documents:  # no text mixes two pages
            assert document.text == f"Tea {document.id} is hot — é." + " x" * int(document.id)
        unfinished = any(first < lost.start < end for first, end in spans)
        assert tally[DAMAGED] == 1
        # the last page of a part is counted if its end, in the next part, is damaged
        assert tally[CUT] == (unfinished and compressed_part == 1 and at != "magic")
        assert set(tally) <= {DAMAGED, CUT}
        assert not problems(parts)


def test_all_damaged_streams_are_counted(tmp_path: Path) -> None:
    xml = dump(articles(60))
    streams = [bz2.compress(xml[i : i + 1777]) for i in range(0, len(xml), 1777)]
    for broken in (2, 3, 7):
        streams[broken] = with_flipped(streams[broken], len(streams[broken]) // 2)
    documents, tally, _ = read(write(tmp_path, "dump.xml.bz2", b"".join(streams)))
    assert tally[DAMAGED] == 3
    assert 30 < len(documents) < 55


def test_empty_streams_are_not_damage(tmp_path: Path) -> None:
    xml = dump(articles(9))
    compressed = bz2.compress(b"").join(
        bz2.compress(xml[i : i + 700]) for i in range(0, len(xml), 700)
    )
    documents, tally, parts = read(write(tmp_path, "dump.xml.bz2", compressed + bz2.compress(b"")))
    assert len(documents) == 9
    assert not tally
    assert not problems(parts)


def test_a_bomb_of_many_streams_is_refused(tmp_path: Path) -> None:
    zeros = bz2.compress(bytes(60_000_000))
    compressed = bz2.compress(HEAD.encode()) + zeros + bz2.compress(b"</mediawiki>" + b" " * 2000)
    with pytest.raises(UserError, match="far more than text"):
        read(write(tmp_path, "dump.xml.bz2", compressed))


def test_a_page_that_never_ends_is_counted_and_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = articles(3)
    pages[1] = pages[1].partition("</text>")[0]
    for part in (1 << 20, 300, 60):
        monkeypatch.setattr(wikipedia, "XML_PART_BYTES", part)
        for name in ("dump.xml", "dump.xml.gz"):
            documents, tally, _ = read(write(tmp_path, name, CONTAINERS[name](dump(pages))))
            assert [(d.id, d.title) for d in documents] == [("0", "Tea 0"), ("2", "Tea 2")]
            assert tally == {CUT: 1}
            last = dump([*pages, *pages[1:2]])
            assert read(write(tmp_path, name, CONTAINERS[name](last)))[1] == {CUT: 2}


def test_ids_are_unique_across_dumps(tmp_path: Path) -> None:
    one = write(tmp_path, "one.xml", dump(articles(2)))
    two = write(tmp_path, "two.xml.bz2", bz2.compress(dump(articles(2))))
    assert [d.id for d in read(one)[0]] == ["0", "1"]
    documents = read(one, two)[0]
    assert [d.id for d in documents] == ["one.xml:0", "one.xml:1", "two.xml.bz2:0", "two.xml.bz2:1"]
    assert documents == read(tmp_path)[0]


def test_schema_0_3_has_no_namespaces_or_redirect_tags(tmp_path: Path) -> None:
    old = [
        page(1, "Tea", "Hot.", ns="", model=""),
        page(2, "Diskussion:Tea", "Talk.", ns="", model=""),
        page(3, "Template:Tea", "Box.", ns="", model=""),
        page(4, "Tee", "#REDIRECT [[Tea]]", ns="", model=""),
        page(5, "2001: A Space Odyssey", "Film.", ns="", model=""),
    ]
    documents, tally, _ = read(write(tmp_path, "dump.xml", dump(old)))
    assert [d.title for d in documents] == ["Tea", "2001: A Space Odyssey"]
    assert tally == {"other namespace": 2, "redirect": 1}


def test_schema_0_11(tmp_path: Path) -> None:
    attributes = ' bytes="4" sha1="abc" xml:space="preserve"'
    slot = "<content><role>x</role><model>json</model><text>{}</text></content></revision>"
    new = [
        page(1, "Tea", "Hot.", attributes=attributes),
        page(2, "Tee", "x", extra='<redirect title="Tea" />'),
        page(3, "Empty", "", attributes=attributes).replace("></text>", " />"),
        page(4, "Slots", "Main.", attributes=attributes).replace("</revision>", slot),
        page(5, "Code.js", "var a;", model="<model>javascript</model>"),
        page(6, "Datei:a.jpg", "File.", ns="<ns>6</ns>"),
        page(7, "Tea (Begriffsklärung)", "x"),
        page(8, "TLA", "Tea may be {{Begriffsklärung}}"),
        page(9, "Only boxes", "{{Infobox}}"),
    ]
    documents, tally, _ = read(write(tmp_path, "dump.xml", dump(new)))
    assert [(d.title, d.text) for d in documents] == [("Tea", "Hot."), ("Slots", "Main.")]
    assert tally == {
        "redirect": 1,
        "empty": 2,
        "not wikitext": 1,
        "other namespace": 1,
        "disambiguation": 2,
    }


def test_the_last_revision_is_read(tmp_path: Path) -> None:
    older = "<revision><id>9</id><text>Older.</text></revision>\n    <revision>"
    two = page(1, "Tea", "Newer.").replace("<revision>", older)
    assert [d.text for d in read(write(tmp_path, "dump.xml", dump([two])))[0]] == ["Newer."]


def test_escapes_are_undone_once(tmp_path: Path) -> None:
    text = "A &lt;b&gt;B&lt;/b&gt; &quot;C&quot; &amp;nbsp;&amp;amp; D &amp;lt;E&amp;gt;"
    documents, _, _ = read(write(tmp_path, "dump.xml", dump([page(1, "Q &amp; A", text)])))
    assert documents[0].title == "Q & A"
    assert documents[0].text == 'A B "C" & D <E>'


def test_local_namespace_names_are_known(tmp_path: Path) -> None:
    text = "A [[Datei:b.xyz|mini|c]] [[Kategorie:D]] [[en:E]] F"
    documents, _, _ = read(write(tmp_path, "dump.xml", dump([page(1, "T", text)])))
    assert documents[0].text == "A F"


def test_headings_are_an_option(tmp_path: Path) -> None:
    path = write(tmp_path, "dump.xml", dump([page(1, "T", "A\n== B ==\nC")]))
    assert read(path)[0][0].text == "A\nC"
    assert read(path, headings=True)[0][0].text == "A\nB\nC"


def test_a_folder_is_read_without_the_index_of_its_dump(tmp_path: Path) -> None:
    write(tmp_path, "b.xml", dump(articles(2)))
    write(tmp_path, "a.xml.bz2", bz2.compress(dump(articles(1))))
    write(tmp_path, "a-index.txt.bz2", bz2.compress(b"0:1:Tea"))
    documents, _, parts = read(tmp_path)
    assert [d.source for d in documents] == ["a.xml.bz2", "b.xml", "b.xml"]
    assert problems(parts) == [OTHER_SUFFIX]


def test_an_extremely_long_page_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "XML_PART_BYTES", 1000)
    monkeypatch.setattr(wikipedia, "MAX_PAGE_BYTES", 3_000_000)
    pages = [*articles(2), page(2, "Long", "x" * 8_000_000), page(3, "Tea", "Hot.")]
    for name in ("dump.xml", "dump.xml.xz"):
        path = write(tmp_path, name, CONTAINERS[name](dump(pages)) if "x" in name else b"")
        documents, tally, parts = read(path)
        assert [d.id for d in documents] == ["0", "1", "3"]
        assert tally[TOO_LARGE] + problems(parts).count(TOO_LARGE) == 1


REFUSED = {
    "empty.xml": (b"", "is empty"),
    "empty.xml.gz": (gzip.compress(b""), "is empty"),
    "empty.xml.bz2": (b"", "is empty"),
    "doctype.xml": (b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]>' + dump([]), "DOCTYPE"),
    "other.xml": (b"<html><body>tea</body></html>", "not a MediaWiki export"),
    "text.bz2": (bz2.compress(b"tea is hot"), "not a MediaWiki export"),
    "noise.xml": (bytes(range(256)) * 50, "not a MediaWiki export"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_not_a_dump_is_refused(tmp_path: Path, name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        read(write(tmp_path, name, data))
