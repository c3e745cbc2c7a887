"""Reading and writing tables in every supported format."""

import bz2
import gzip
import json
import time

import pytest

from electrify.errors import UserError
from electrify.finetuning.own.data import Columns, find_columns
from electrify.finetuning.own.files import format_table, read_table, read_text
from electrify.finetuning.own.headers import TrainingInfo


def table(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, read_text(path))


def refused(tmp_path, name, content) -> str:
    with pytest.raises(UserError) as error:
        table(tmp_path, name, content)
    assert str(tmp_path / name) in error.value.what
    return str(error.value)


def test_csv_by_rfc_4180(tmp_path):
    content = 'text,label\r\n"a, ""b""\r\nc",x\r\nplain "quote",y\r\n'
    found = table(tmp_path, "a.csv", content)
    assert found.header == ["text", "label"]
    assert found.rows == [['a, "b"\r\nc', "x"], ['plain "quote"', "y"]]
    assert found.lines == [2, 4]
    assert found.column("label") == ["x", "y"]


def test_tsv_does_not_use_quotes(tmp_path):
    """As in GLUE, where a sentence may start with a quotation mark that is never closed."""
    found = table(tmp_path, "a.tsv", 'text\tlabel\n"open\t0\n""both""\t1\n')
    assert found.rows == [['"open', "0"], ['""both""', "1"]]
    assert found.lines == [2, 3]


def test_tsv_with_a_quoted_header_uses_quotes(tmp_path):
    found = table(tmp_path, "a.tsv", '"text"\t"label"\n"a\tb\n""c"""\t"0"\n')
    assert found.header == ["text", "label"]
    assert found.rows == [['a\tb\n"c"', "0"]]


def test_json_lines(tmp_path):
    found = table(tmp_path, "a.jsonl", '{"text": "a", "label": 1}\n\n{"label": 2, "more": [1]}\n')
    assert found.header == ["text", "label", "more"]
    assert found.rows == [["a", 1, None], [None, 2, [1]]]
    assert found.lines == [1, 3]


def test_compression_byte_order_marks_and_trailing_blank_lines(tmp_path):
    content = "\ufefftext,label\r\n한국어\u2028,0\r\n\r\n\n".encode()
    for name, data in (("a.csv", content), ("a.csv.gz", gzip.compress(content)), ("a.CSV.bz2", bz2.compress(content))):  # fmt: skip
        found = table(tmp_path, name, data)
        assert found.header == ["text", "label"]
        assert found.rows == [["한국어\u2028", "0"]]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt"])
def test_a_table_without_header(name, tmp_path):
    found = table(tmp_path, name, "no film\tbad\na film\tgood\nthat film\tbad\n")
    assert (found.header, found.numbered) == (["column 1", "column 2"], True)
    assert found.lines == [1, 2, 3]
    assert find_columns(found, Columns()) == ("column 1", "", "column 2")
    assert find_columns(found, Columns("2", "", "1")) == ("column 2", "", "column 1")
    swapped = table(tmp_path, name, "3.5\tno film\n4.25\ta film\n")
    assert find_columns(swapped, Columns()) == ("column 2", "", "column 1")
    cola = table(tmp_path, name, "gj04\t1\t\tWe go.\ngj04\t0\t*\tWe goes.\ngj04\t1\t\tGo.\n")
    with pytest.raises(UserError, match="no header and more than two columns"):
        find_columns(cola, Columns())
    assert find_columns(cola, Columns("4", "", "2")) == ("column 4", "", "column 2")


@pytest.mark.parametrize(
    "content",
    [
        "text\tlabel\na film\tgood\nno film\tgood\n",
        "phrase\tkind\na film\tgood\nno film\tgood\n",
        "0\t1\na film\t1\nno film\t1\n",
        "id\tsentence\n1\ta film\n2\tno film\n",
    ],
)
def test_headers_are_distinguished_from_rows(content, tmp_path):
    assert not table(tmp_path, "a.tsv", content).numbered


def test_plain_text_is_one_text_per_line(tmp_path):
    found = table(tmp_path, "a.txt", "a film\n\nno film\n")
    assert (found.header, found.rows, found.lines) == (["column 1"], [["a film"], ["no film"]], [1, 3])  # fmt: skip


@pytest.mark.parametrize("first", ["a film", "Title", "text"])
def test_plain_text_has_no_header_unless_it_is_requested(first, tmp_path):
    """This holds whatever columns the training file of a model had."""
    path, content = tmp_path / "a.txt", f"{first}\nno film\n"
    found = read_table(path, content, training=TrainingInfo(("text", "", "label")))
    assert found.rows == [[first], ["no film"]]
    assert read_table(path, f"{first}\n", training=TrainingInfo(("text", "", "label"))).rows == [
        [first]
    ]
    named = read_table(path, content, requested=(first.upper(), "", ""))
    assert (named.header, named.rows) == ([first], [["no film"]])


@pytest.mark.parametrize(
    ("content", "numbered"),
    [
        ("question_text\tcoarse\nWhere is it ?\tLOC\nWho ?\tHUM\n", False),
        ("question_text\tkind\nWhere is it ?\t3.5\nWho ?\t4\n", False),
        ("Where is it ?\tLOC\nWho ?\tHUM\nWho is he ?\tHUM\n", True),
        ("Where is it ?\nWho ?\n", True),  # undecided: as in training
    ],
)
def test_content_takes_precedence_over_the_training_file_in_finding_a_header(
    content, numbered, tmp_path
):
    trained = TrainingInfo(("column 1", "", "column 2"), ("HUM", "LOC"))
    assert read_table(tmp_path / "a.tsv", content, training=trained).numbered is numbered


BAD = {
    "empty": ("a.csv", "", "is empty"),
    "blank": ("a.tsv", " \n\n", "is empty"),
    "header alone": ("a.csv", "text,label\n", "has no rows"),
    "ragged": ("a.csv", "text,label\na,1\nb\n", "line 3: the row must have as many cells"),
    "too many": ("a.tsv", "text\tlabel\na\t1\t2\n", "line 2: the row must have as many cells"),
    "blank within": (
        "a.csv",
        "text,label\na,1\n\nb,1\n",
        "line 3: the row must have as many cells",
    ),
    "same names": ("a.csv", "text,text\na,b\n", "line 1: two columns have the same name"),
    "not UTF-8": ("a.csv", b"text,label\na,1\n\xe9,2\n", "line 3: not valid UTF-8"),
    "UTF-16": ("a.csv", "text,label\na,1\n".encode("utf-16"), "line 1: not valid UTF-8"),
    "1 MB": ("a.tsv", f"text\tlabel\na\t1\n{'x' * 1_000_000}\t1\n", "line 3: a cell has more than"),
    "1 MB in CSV": (
        "a.csv",
        f'text,label\n"{"x" * 1_000_000}",1\n',
        "line 2: a cell has more than",
    ),
    "1 MB in JSON": ("a.jsonl", json.dumps({"text": "x" * 1_000_000}), "line 1: a cell has more"),
    "open quote": ("a.csv", 'text,label\na,1\n"b,2\nc,3\n', "line 3: not valid CSV"),
    "not JSON": ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2: not valid JSON"),
    "a list": ("a.jsonl", '{"text": "a"}\n["b"]\n', "line 2: not a JSON object"),
    "deep": ("a.jsonl", "[" * 100_000, "line 1: not valid JSON"),
    "truncated": ("a.csv.gz", gzip.compress(b"text,label\n" * 9)[:-9], "cannot be read to the end"),
    "format": ("a.xlsx", "PK", "has an unknown format"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_with_their_line(name, tmp_path):
    file, content, what = BAD[name]
    assert what in refused(tmp_path, file, content)


def test_a_cell_of_the_maximum_length_is_read(tmp_path):
    assert len(table(tmp_path, "a.csv", f"text,label\n{'x' * 100_000},1\n").rows[0][0]) == 100_000


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_written_tables_are_read_back(suffix, tmp_path):
    rows = [['a "b", c', "0.5"], ["한국어\nd\te", "1"]]
    found = table(tmp_path, f"a{suffix}", format_table(["text", "label"], rows, suffix))
    if suffix == ".tsv":
        rows[1][0] = "한국어 d e"
    assert found.rows == rows


def test_many_columns_are_read_quickly(tmp_path):
    names = [f"column{number}" for number in range(20_000)]
    began = time.monotonic()
    found = table(tmp_path, "a.csv", ",".join(["text", *names]) + "\n" + "x," * 20_000 + "y\n")
    assert len(found.header) == 20_001
    with pytest.raises(UserError) as error:
        find_columns(found._replace(header=["a", *names]), Columns(text="nope"))
    assert len(str(error.value)) < 1_000
    lines = "".join(json.dumps({"text": "a", f"key{n}": n}) + "\n" for n in range(100_000))
    assert "100,001 different keys" in refused(tmp_path, "a.jsonl", lines)
    assert time.monotonic() - began < 10
    sparse = "".join(json.dumps({"text": "a", f"key{n}": n}) + "\n" for n in range(500))
    assert len(table(tmp_path, "a.jsonl", sparse).header) == 501


def test_lone_surrogates_are_replaced(tmp_path):
    content = '{"text": "a \\ud800 b \\ud83d\\ude00", "\\uDFFF": ["\\udc00"]}\n'
    found = table(tmp_path, "a.jsonl", content)
    assert (found.header, found.rows) == (["text", "\ufffd"], [["a \ufffd b 😀", ["\ufffd"]]])
