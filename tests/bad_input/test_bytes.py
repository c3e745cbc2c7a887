"""Bytes that are not text, and empty files."""

import gzip

import pytest

from tests.bad_input.sources import (
    ALSO_GOOD,
    GOOD,
    accounted,
    checked,
    tar,
    texts,
)

BYTES = {
    "invalid UTF-8": b"bad \xff\xfe\xfa bytes",
    "cut UTF-8": b"ends in the middle of \xe2\x82",
    "encoded surrogate": b"half a pair \xed\xa0\x80 here",
    "overlong": b"overlong \xc0\xaf slash",
    "NUL": b"a nul \0 byte",
    "other controls": bytes(range(1, 9)) + b"\x0b\x0c\x0e\x1b\x7f\xc2\x85",
    "noncharacters": "\ufffe \uffff \U0010ffff".encode(),
    "line separators": "one\u2028two\u2029three".encode(),
    "BOM inside": b"\xef\xbb\xbfinside",
}


def test_bad_bytes_affect_one_document_and_not_its_neighbours(tmp_path, run):
    """All kinds of bad bytes, each in a file of three documents, in one run."""
    (tmp_path / "src").mkdir()
    for name, data in BYTES.items():
        (tmp_path / "src" / f"{name}.txt").write_bytes(GOOD + b"\n\n" + data + b"\n\n" + ALSO_GOOD)
    run("corpus", "text", "src", "--out", "docs")
    found = texts(tmp_path / "docs")
    assert accounted(tmp_path / "docs") == 3 * len(BYTES)
    assert found.count(GOOD.decode()) == found.count(ALSO_GOOD.decode()) == len(BYTES)
    assert not any(c in text for text in found for c in "\0\r\ufeff")
    run("show", "docs", "--count", "100", env={"PYTHONIOENCODING": "ascii"}, fresh=True)


LINE_ENDS = {
    "BOM": b"\xef\xbb\xbfone\ntwo\n\nthree\n",
    "CRLF": b"one\r\ntwo\r\n\r\nthree\r\n",
    "BOM and CRLF without a last line end": b"\xef\xbb\xbfone\r\ntwo\r\n\r\nthree",
    "blank lines": b"\n\n\none\ntwo\n \t \n\n\nthree\n\n\n",
}


def test_bom_and_line_ends_change_nothing(tmp_path, run):
    (tmp_path / "src").mkdir()
    for name, data in LINE_ENDS.items():
        (tmp_path / "src" / f"{name}.txt").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == ["one\ntwo", "three"] * len(LINE_ENDS)


def test_another_encoding_is_not_a_traceback(tmp_path, run):
    encodings = ["utf-16", "utf-16-le", "utf-32", "latin-1"]
    (tmp_path / "src").mkdir()
    for encoding in encodings:
        data = "Käse und Brot.\n\nÄpfel.\n".encode(encoding)
        (tmp_path / "src" / f"{encoding}.txt").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert accounted(tmp_path / "docs") >= len(encodings)


EMPTY_SOURCES = {
    ("text", "a.txt"): b"",
    ("text", "blank.txt"): b"\r\n\r\n \n",
    ("text", "a.txt.gz"): gzip.compress(b""),
    ("jsonl", "a.jsonl"): b"",
    ("csv", "a.csv"): b"",
    ("openwebtext", "none.tar"): tar(),
}


@pytest.mark.parametrize(("kind", "name"), EMPTY_SOURCES, ids=lambda value: value)
def test_empty_sources_give_no_documents(tmp_path, run, kind, name):
    """test_folders_without_documents shows that later steps refuse such a folder."""
    (tmp_path / name).write_bytes(EMPTY_SOURCES[kind, name])
    assert "no document" in run("corpus", kind, name, "--out", "docs").stdout
    assert checked(tmp_path / "docs")["documents"] == 0


def test_an_empty_file_among_others_is_not_an_error(tmp_path, run):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.txt").write_bytes(b"")
    (tmp_path / "src" / "b.txt").write_bytes(GOOD)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == [GOOD.decode()]
