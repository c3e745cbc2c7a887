"""JSON lines, CSV and Parquet files with unexpected content."""

import io
import json

import pyarrow
import pyarrow.parquet
import pytest

from tests.bad_input.sources import ALSO_GOOD, GOOD, accounted, manifest, texts
from tests.conftest import make_documents

LINES = {
    "not JSON": b"{",
    "nested 100,000 times": b"[" * 100_000,
    "nested in a field": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b', "text": "x"}',
    "balanced": b"[" * 100_000 + b"]" * 100_000,
    "a list": b'["text"]',
    "a number": b"7",
    "null": b"null",
    "no text": b'{"title": "x"}',
    "null text": b'{"text": null}',
    "number as text": b'{"text": 7}',
    "list as text": b'{"text": ["x"]}',
    "empty text": b'{"text": ""}',
    "invalid UTF-8": b'{"text": "a \xff b"}',
    "lone surrogate": b'{"text": "a \\ud800 b"}',
    "NUL": b'{"text": "a \\u0000 b"}',
    "a raw NUL": b'{"text": "a \0 b"}',
    "a huge number": b'{"id": ' + b"9" * 10_000 + b', "text": "x"}',
    "a huge float": b'{"id": 1e999, "text": "x"}',
    "not a number": b'{"id": NaN, "text": "x"}',
    "odd id": b'{"id": {"a": [1]}, "text": "x"}',
    "lone surrogate as id": b'{"id": "\\udfff", "title": "\\ud800", "text": "x"}',
    "odd title": b'{"title": [1, 2], "text": "x"}',
    "the same field twice": b'{"text": 1, "text": "x"}',
    "two objects": b'{"text": "x"} {"text": "y"}',
}


def test_bad_json_lines_are_counted(tmp_path, run):
    good, last = (json.dumps({"text": t.decode()}).encode() for t in (GOOD, ALSO_GOOD))
    data = b"\r\n".join([b"\xef\xbb\xbf" + good, *LINES.values(), b"", last])
    (tmp_path / "a.jsonl").write_bytes(data)
    run("corpus", "jsonl", "a.jsonl", "--out", "docs")
    found = texts(tmp_path / "docs")
    assert (found[0], found[-1]) == (GOOD.decode(), ALSO_GOOD.decode())
    assert accounted(tmp_path / "docs") == len(LINES) + 2
    assert manifest(tmp_path / "docs")["documents"] <= 2 + sum(b'"x"' in v for v in LINES.values())
    run("show", "docs", "--count", "100")


ROWS = {
    "too few cells": b"1",
    "too many cells": b"1,x,y",
    "text after a quotation mark": b'1,"x"y',
    "a quotation mark that the next one closes": b'1,"x\n2,y\n3,"z"',
    "empty text": b"1,",
    "only delimiters": b",",
    "invalid UTF-8": b"1,a \xff b",
    "NUL": b"1,a \0 b",
    "a quotation mark inside": b'1,a 5" nail',
    "a cell of several lines": b'1,"x, ""y""\r\n\r\nz"',
    "a long cell": b"1," + b"x" * 200_000,
}


def test_bad_csv_rows_are_counted(tmp_path, run):
    rows = [b"\xef\xbb\xbfid,text", b"1," + GOOD, *ROWS.values(), b"", b'2,"' + ALSO_GOOD + b'"']
    (tmp_path / "a.csv").write_bytes(b"\r\n".join(rows))
    run("corpus", "csv", "a.csv", "--out", "docs")
    found = texts(tmp_path / "docs")
    assert (found[0], found[-1]) == (GOOD.decode(), ALSO_GOOD.decode())
    assert found[1:-2] == ["a \ufffd b", "a  b", 'a 5" nail', 'x, "y"\n\nz']
    assert accounted(tmp_path / "docs") == len(ROWS) + 2


def test_an_open_quotation_mark_is_refused_with_its_line(tmp_path, refused):
    data = b"id,text\n" + b"1,%s\n" % GOOD * 10 + b'2,"open\n' + b"3,lost\n" * 1000
    (tmp_path / "a.csv").write_bytes(data)
    assert "a.csv, line 12: a quotation mark" in refused("corpus", "csv", "a.csv", "--out", "docs")
    assert not (tmp_path / "docs" / "manifest.json").exists()


def invalid_utf8_column() -> pyarrow.Array:
    raw = pyarrow.array([GOOD, b"a \xff b", ALSO_GOOD], pyarrow.binary())
    return pyarrow.Array.from_buffers(pyarrow.string(), 3, raw.buffers())


COLUMNS = {
    "numbers": (pyarrow.array([1, 2]), "refused"),
    "lists": (pyarrow.array([["a"], ["b"]]), "refused"),
    "only nulls": (pyarrow.nulls(3), "refused"),
    "some null": (pyarrow.array([GOOD.decode(), None, ALSO_GOOD.decode()]), "counted"),
    "invalid UTF-8": (invalid_utf8_column(), "counted"),
    "large strings": (
        pyarrow.array([GOOD.decode(), "", ALSO_GOOD.decode()], pyarrow.large_string()),
        "counted",
    ),
    "dictionary": (
        pyarrow.array([GOOD.decode(), "\0", ALSO_GOOD.decode()]).dictionary_encode(),
        "counted",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_other_types(tmp_path, run, refused, name):
    column, outcome = COLUMNS[name]
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    if outcome == "refused":
        assert "text" in refused("corpus", "parquet", "a.parquet", "--out", "docs")
        assert not (tmp_path / "docs" / "manifest.json").exists()
    else:
        run("corpus", "parquet", "a.parquet", "--out", "docs")
        assert {GOOD.decode(), ALSO_GOOD.decode()} <= set(texts(tmp_path / "docs"))
        assert accounted(tmp_path / "docs") == 3


def test_two_columns_of_one_name_are_refused(tmp_path, refused):
    column = pyarrow.array([GOOD.decode()])
    table = pyarrow.Table.from_arrays([column, column], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert "several columns named 'text'" in refused(
        "corpus", "parquet", "a.parquet", "--out", "docs"
    )


def test_invalid_parquet_is_refused(tmp_path, refused):
    file = io.BytesIO()
    column = [document.text for document in make_documents(100)]
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), file)
    data = file.getvalue()
    flipped = bytearray(data)
    flipped[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    cases = {
        "empty": b"",
        "text": GOOD,
        "cut": data[: len(data) // 2],
        "head": data[:8],
        "tail": data[-100:],
        "flipped": bytes(flipped),
    }
    for name, content in cases.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train-0.parquet").write_bytes(content)
        kind = "hub" if name == "cut" else "parquet"
        error = refused("corpus", kind, f"./{name}", "--out", f"{name}-docs")
        assert "train-0.parquet" in error
        assert not (tmp_path / f"{name}-docs" / "manifest.json").exists()
