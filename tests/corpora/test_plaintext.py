import bz2
import gzip
import json
import lzma
import random
import re
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from electrify.corpora import archive, plaintext
from electrify.corpora.clean import Filters
from electrify.corpora.corpus import Corpus, corpus
from electrify.corpora.document import Document
from electrify.corpora.plaintext import OTHER_JSON, JsonLines, Text, fold_lines
from electrify.corpora.troubles import CUT, REPAIRED, TRUNCATED
from electrify.errors import UserError

COMPRESSORS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


def read(reader, *sources):
    """Return all documents and the tally."""
    tally: Counter[str] = Counter()
    documents = []
    for part in reader.parts(sources):
        tally.update(part.problems)
        documents += reader.documents(part, tally)
    assert len({document.id for document in documents}) == len(documents)
    return documents, dict(tally)


def texts_of(path, data, reader=Text()):  # noqa: B008
    path.write_bytes(data)
    documents, tally = read(reader, path)
    return [document.text for document in documents], tally


@pytest.fixture
def small_parts(monkeypatch):
    """Make parts and limits so small that a test file is split like a large one."""
    monkeypatch.setattr(plaintext, "PART_BYTES", 2000)
    monkeypatch.setattr(plaintext, "MAX_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(archive, "BLOCK_BYTES", 100)


@pytest.mark.parametrize(
    "data",
    [
        b"one\ntwo\n\nthree",
        b"one\ntwo\n\nthree\n",
        b"\n \n\none\ntwo\n \t\n\n\nthree\n\n\n",
        b"one\r\ntwo\r\n\r\nthree\r\n",
        b"one\r\ntwo\r\n  \r\nthree",
        b"one\rtwo\r\rthree\r",
        b"\xef\xbb\xbfone\ntwo\n\nthree",
        b"o\0ne\ntwo\n\0\nthree\0",
        b"one\ntwo\n\xc2\xa0\n\xe3\x80\x80\nthree",
        "one\ntwo\n\nthree".encode("utf-16"),
        "one\r\ntwo\r\n\r\nthree".encode("utf-32"),
        b"\xfe\xff" + "one\ntwo\n\nthree".encode("utf-16-be"),
    ],
)
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_blank_lines_separate_documents_for_any_line_end(tmp_path, data, suffix):
    path = tmp_path / f"a.txt{suffix}"
    assert texts_of(path, COMPRESSORS[suffix](data)) == (["one\ntwo", "three"], {})


def test_ids_name_the_file_and_count_its_documents(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\ntwo")
    (tmp_path / "b.txt").write_text("three")
    documents, _ = read(Text(), tmp_path)
    assert documents[1] == Document("a.txt:2", "two", "a.txt")
    assert [document.id for document in documents] == ["a.txt:1", "a.txt:2", "b.txt:1"]


def test_invalid_utf8_is_repaired_and_counted(tmp_path):
    texts, tally = texts_of(tmp_path / "a.txt", b"caf\xe9\n\nfine")
    assert texts == ["caf\ufffd", "fine"]
    assert tally == {REPAIRED: 1}


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n\t", b"\xef\xbb\xbf", b"\0"])
@pytest.mark.parametrize("split", ["blank", "file"])
def test_empty_files_are_counted(tmp_path, data, split):
    assert texts_of(tmp_path / "a.txt", data, Text(split)) == ([], {"empty file": 1})


def test_folding_does_not_depend_on_the_blocks_of_the_stream():
    data = b"a\r\n \r\n\r\nb\r\rc\n\xe3\x80\x80\nd \xc2\xa0 e\n\n" * 5
    expected = b"".join(fold_lines([data]))
    for size in range(1, 20):
        blocks = [data[start : start + size] for start in range(0, len(data), size)]
        assert b"".join(fold_lines(blocks)) == expected
    assert b"".join(fold_lines([b"a\n", *[b" \n" * 1_000_000] * 3, b"b"])) == b"\na\n\nb"


def test_blank_lines_are_found_as_by_a_simple_pattern():
    simple = re.compile(rb"\n(?:(?:[ \t\v\f]|\xc2\xa0|\xe3\x80\x80)*\n)+")
    draw = random.Random(0)
    tokens = [b"\n", b"\n", b" ", b"\t", b"\v\f", b"\xc2\xa0", b"\xe3\x80\x80", b"\xc2", b"a"]
    for _ in range(2_000):
        data = b"".join(draw.choices(tokens, k=draw.randrange(20))) + b"."
        assert b"".join(fold_lines([data])) == simple.sub(b"\n\n", b"\n" + data)


def test_no_pattern_has_a_possessive_group():
    """Python before 3.11.5 matches them wrongly: text would be lost silently."""
    possessive = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")
    files = list(Path(archive.__file__).parents[1].rglob("*.py"))
    assert len(files) > 100
    assert not [path for path in files if possessive.search(path.read_text())]


def test_a_large_file_is_split_and_numbered_like_a_small_one(tmp_path, monkeypatch):
    data = b"\r\n\r\n".join(b"document %d\r\nwith a line" % n for n in range(500))
    (tmp_path / "a.txt").write_bytes(data)
    expected, _ = read(Text(), tmp_path / "a.txt")
    monkeypatch.setattr(plaintext, "PART_BYTES", 2000)
    split, tally = read(Text(), tmp_path / "a.txt")
    fractions = [part.fraction for part in Text().parts([tmp_path / "a.txt"])]
    assert len(fractions) > 5
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert split == expected
    assert len(expected) == 500
    assert not tally


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_documents_over_the_limit_are_dropped_and_counted(tmp_path, small_parts, suffix):
    data = b"\n\n".join([b"small", b"large " * 3000, b"x" * 1500, b"after"])
    texts, tally = texts_of(tmp_path / f"a.txt{suffix}", COMPRESSORS[suffix](data))
    assert texts == ["small", "after"]
    assert tally == {"document too large": 2}


@pytest.mark.parametrize("reader", [Text(), Text("file"), JsonLines()])
def test_a_line_of_100_mb_is_dropped_in_little_memory(tmp_path, reader):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b"long line " * 100_000)
        file.write(b'\n\n{"text": "after"}')
    tracemalloc.start()
    try:
        documents, tally = read(reader, path)
        assert tracemalloc.get_traced_memory()[1] < 120_000_000
    finally:
        tracemalloc.stop()
    assert tally == {"document too large": 1}
    assert len(documents) == (0 if reader == Text("file") else 1)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", list(COMPRESSORS)[1:])
@pytest.mark.parametrize("fraction", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("large", [False, True])
def test_a_truncated_file_yields_its_complete_documents(
    tmp_path, suffix, fraction, large, monkeypatch
):
    if large:
        monkeypatch.setattr(plaintext, "PART_BYTES", 20_000)
    rng = random.Random(0)
    units = [rng.randbytes(60).hex() for _ in range(40_000)]
    compressed = COMPRESSORS[suffix]("\n\n".join(units).encode())
    truncated = compressed[: int(len(compressed) * fraction)]
    texts, tally = texts_of(tmp_path / f"a.txt{suffix}", truncated)
    assert tally == {TRUNCATED: 1}
    assert texts == units[: len(texts)]
    assert len(texts) > (fraction - 0.4) * len(units)
    by_file = texts_of(tmp_path / f"a.txt{suffix}", truncated, Text("file"))
    assert by_file == ([], {TRUNCATED: 1, CUT: 1})


def test_one_document_per_file(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.txt").write_bytes(b"one\r\n\r\ntwo")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"three"))
    documents, _ = read(Text("file"), tmp_path)
    assert [(d.id, d.text) for d in documents] == [("a.txt.gz", "three"), ("b/1.txt", "one\n\ntwo")]


def _jsonl(*records):
    return "\n".join(r if isinstance(r, str) else json.dumps(r) for r in records).encode()


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_json_lines(tmp_path, suffix):
    data = _jsonl({"text": "one", "id": 7, "title": "T"}, "", {"text": "two\nlines"})
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(COMPRESSORS[suffix](data))
    documents, tally = read(JsonLines(), tmp_path)
    assert documents == [
        Document(f"{path.name}:1:7", "one", path.name, "T"),
        Document(f"{path.name}:3", "two\nlines", path.name),
    ]
    assert not tally


def test_bad_json_lines_are_counted_by_reason(tmp_path):
    data = _jsonl(
        {"text": "fine"},
        "{not json",
        "[1, 2]",
        {"text": 5},
        {"text": None},
        {"other": "x"},
        '{"text": ' + "[" * 100_000,
        '{"text": "t", "n": ' + "1" * 5000 + "}",
        '{"text": "a\\ud800b"}',
        '{"text": "tab\there"}',
    )
    texts, tally = texts_of(tmp_path / "a.jsonl", data + b"\r\n\xff\xfe\n", JsonLines())
    assert texts == ["fine", "a\ufffdb", "tab\there"]
    assert tally == {
        "line is not JSON": 4,
        "line is not a JSON object": 1,
        "text is not a string": 2,
        "no text field": 1,
        REPAIRED: 2,
    }


def test_ids_are_unique_and_do_not_depend_on_the_parts(tmp_path, monkeypatch):
    rows = [{"text": f"text {n}", "id": n % 7 or [n]} for n in range(500)]
    (tmp_path / "a.jsonl").write_bytes(_jsonl(*rows, {"text": "long", "id": "x" * 999}))
    expected, _ = read(JsonLines(), tmp_path)  # asserts that ids are unique
    assert [d.id for d in expected[6:9]] == ["a.jsonl:7:6", "a.jsonl:8", "a.jsonl:9:1"]
    assert len(expected[-1].id) < 300
    monkeypatch.setattr(plaintext, "PART_BYTES", 2000)
    assert read(JsonLines(), tmp_path)[0] == expected


def test_a_stray_json_file_is_counted_and_is_not_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(_jsonl({"text": "one"}))
    (tmp_path / "b.json").write_bytes(_jsonl({"text": "two"}, {"text": "three"}))
    (tmp_path / "c.jsonl").write_bytes(_jsonl({"other": "x"}))
    (tmp_path / "dataset_info.json").write_text(json.dumps({"name": "x"}, indent=1))
    (tmp_path / "state.json").write_text(json.dumps({"name": "x"}))
    documents, tally = read(JsonLines(), tmp_path)
    assert [document.text for document in documents] == ["one", "two", "three"]
    assert tally == {OTHER_JSON: 2, "no text field": 1}
    with pytest.raises(UserError, match="--text"):
        read(JsonLines(text="body"), tmp_path)
    with pytest.raises(UserError, match="not JSON lines"):
        read(JsonLines(), tmp_path / "dataset_info.json")
    documents, tally = read(JsonLines(), tmp_path / "a.jsonl", tmp_path / "state.json")
    assert len(documents) == 1
    assert tally == {"no text field": 1}


@pytest.mark.parametrize("reader", [Text(), JsonLines()])
def test_a_highly_compressed_file_is_read_in_little_memory(tmp_path, reader):
    path = tmp_path / ("a.txt.gz" if reader == Text() else "a.jsonl.gz")
    unit = b"%s\n\n" if reader == Text() else b'{"text": "%s"}\n'
    rng = random.Random(0)
    with gzip.open(path, "wb") as file:
        for _ in range(10_000):
            file.write(unit % (rng.randbytes(20).hex().encode() + b" and so on" * 1000))
    assert path.stat().st_size < archive.PART_BYTES / archive.TYPICAL_RATIO
    (part,) = reader.parts([path])
    assert part.slices
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader.documents(part, Counter())) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


def test_a_missing_field_is_reported_with_the_available_ones_and_a_suggestion(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(_jsonl({"content": "x", "texts": "y"}))
    with pytest.raises(UserError, match="content, texts") as error:
        read(JsonLines(), path)
    assert error.value.fix == "did you mean 'texts'? If so, use --text texts"
    path.write_bytes(b"just\ntext\n")
    with pytest.raises(UserError, match="not JSON lines"):
        read(JsonLines(), path)


def test_large_json_lines_are_split_and_numbered_alike(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(_jsonl(*({"text": f"text {n}"} for n in range(500))))
    expected = read(JsonLines(), tmp_path)
    monkeypatch.setattr(plaintext, "PART_BYTES", 2000)
    assert read(JsonLines(), tmp_path) == expected
    assert expected[0][-1].id == "a.jsonl:500"


SENTENCE = "He said nothing for a while. "
BOOK = "\n\n".join(SENTENCE * (1 + number % 12) for number in range(300))
ARTICLES = "\n\n".join("\n".join([SENTENCE * 9] * 4) for _ in range(300))


@pytest.mark.parametrize(
    ("text", "reader", "filters", "advice"),
    [
        (BOOK, Text(), Filters(), ["fewer than 400 characters", "--split file"]),
        (BOOK, Text(), Filters(min_chars=200), ["of the text was left out", "--split file"]),
        (BOOK, Text(split="file"), Filters(), []),
        (ARTICLES, Text(), Filters(min_chars=200), []),
        (SENTENCE, Text(), Filters(), []),
    ],
)
def test_paragraphs_taken_for_documents_are_reported(
    tmp_path, capsys, text, reader, filters, advice
):
    (tmp_path / "a.txt").write_text(text)
    source = str(tmp_path / "a.txt")
    corpus(Corpus((source,), tmp_path / "docs", reader, filters, workers="1"))
    out = capsys.readouterr().out
    assert all(words in out for words in advice)
    assert ("--split" in out) == bool(advice)
