"""CSV and TSV files become documents, whatever their delimiter, quotation marks and size."""

import csv
import io
import random
import tracemalloc
from collections import Counter

import pytest
from tests.corpora.test_plaintext import COMPRESSORS, read, texts_of

from electrify.cli import main
from electrify.corpora import archive, plaintext, table
from electrify.corpora.document import Document, Slice, read_parquet
from electrify.corpora.table import NOT_CSV, OTHER_WIDTH, Csv
from electrify.corpora.troubles import EMPTY, REPAIRED, TOO_LARGE, TRUNCATED
from electrify.errors import UserError


@pytest.fixture
def small_parts(monkeypatch):
    """Make parts and limits so small that a test file is split like a large one."""
    for module in (plaintext, table):
        monkeypatch.setattr(module, "PART_BYTES", 2000)
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1000)
    monkeypatch.setattr(table, "CHUNK_BYTES", 500)
    monkeypatch.setattr(archive, "BLOCK_BYTES", 100)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_rows_become_documents(tmp_path, suffix):
    data = b'id,title,text\n7,T,one\n\n,,"two, ""2""\nlines"\n8,,three'
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(COMPRESSORS[suffix](data))
    documents, tally = read(Csv(), tmp_path)
    assert documents == [
        Document(f"{path.name}:2:7", "one", path.name, "T"),
        Document(f"{path.name}:4", 'two, "2"\nlines', path.name),
        Document(f"{path.name}:6:8", "three", path.name),
    ]
    assert not tally


@pytest.mark.parametrize(
    "data",
    [
        b"n,text\r\n1,one\r\n2,two; and\r\n",
        b"n,text\r1,one\r2,two; and",
        b"n;text\n1;one\n2;two; and\n".replace(b"two; and", b'"two; and"'),
        b"n\ttext\n1\tone\n2\ttwo; and\n",
        b'"n"\t"text"\n"1"\t"one"\n"2"\t"two; and"\n',
        b"\n\n n , text \n1,one\n2,two; and\n",
        b"\xef\xbb\xbftext,n\none,1\ntwo; and,2\n",
        b"n,te\0xt\n1,one\n2,two; and\n",
        "n,text\n1,one\n2,two; and\n".encode("utf-16"),
        "n,text\r\n1,one\r\n2,two; and\r\n".encode("utf-32"),
    ],
)
def test_delimiters_line_ends_and_encodings_are_detected(tmp_path, data, monkeypatch):
    monkeypatch.setattr(archive, "BLOCK_BYTES", 7)  # line ends are split between blocks
    assert texts_of(tmp_path / "a.csv", data, Csv()) == (["one", "two; and"], {})


def test_a_number_chooses_a_column_of_a_file_without_a_header(tmp_path):
    data = b"2;Hello, my, dear;x\n2;one, two;y\n"
    assert texts_of(tmp_path / "a.csv", data, Csv(text="2")) == (
        ["Hello, my, dear", "one, two"],
        {},
    )
    with pytest.raises(UserError, match="no column '4'"):
        texts_of(tmp_path / "a.csv", data, Csv(text="4"))


def test_quotation_marks_are_ordinary_in_tsv_unless_the_header_has_them(tmp_path):
    data = b'id\ttext\n1\t"Yes" and "no"\n2\t"open\n'
    assert texts_of(tmp_path / "a.tsv", data, Csv())[0] == ['"Yes" and "no"', '"open']
    data = b'id\ttext\n1\t"a ""b""\nc"\n'
    assert texts_of(tmp_path / "a.tsv", data, Csv(quotes=True))[0] == ['a "b"\nc']
    assert texts_of(tmp_path / "b.csv", data, Csv(delimiter="tab", quotes=True))[0] == ['a "b"\nc']


def test_bad_rows_are_counted_by_reason(tmp_path):
    data = b'id,text\n1,fine\n1\n1,2,3\n1,"x"y\n1,"open\n2,b\n3,"c"\n4,a \xff b\n5,\n'
    texts, tally = texts_of(tmp_path / "a.csv", data, Csv())
    assert texts == ["fine", "a \ufffd b", ""]
    assert tally == {OTHER_WIDTH: 2, NOT_CSV: 2, REPAIRED: 1}


@pytest.mark.parametrize("data", [b"", b"\n \n", b"text\n", b"id,text"])
def test_files_without_rows_are_counted(tmp_path, data):
    assert texts_of(tmp_path / "a.csv", data, Csv()) == ([], {EMPTY: 1})


@pytest.mark.parametrize(
    ("data", "what", "fix"),
    [
        (b"id,my_text\n1,x\n", "no column 'text'", "use --text my_text"),
        (b"review,body\n1,x\n", "no column 'text'", "choose one of them with --text"),
        (b"1,Some words.\n", "no column 'text'", "such as --text 1"),
        (b"text,text\n1,x\n", "several columns named 'text'", "rename"),
        (b'"id,text\n1,x\n', "the first row cannot be parsed", "--quotes False"),
    ],
)
def test_a_file_without_the_column_is_refused_before_reading(tmp_path, data, what, fix):
    (tmp_path / "a.csv").write_bytes(b"text\none\n")
    (tmp_path / "b.csv").write_bytes(data)
    with pytest.raises(UserError, match=what) as error:
        next(Csv().parts([tmp_path]))
    assert "b.csv" in error.value.what
    assert fix in error.value.fix


@pytest.mark.parametrize("name", ["Text", "content", "review"])
def test_a_column_with_another_common_name_is_found_and_named(tmp_path, name):
    data = f'\ufeffid;stars;"{name}"\n7;5;"one; ""1""\nmore"\n8;4;two\n'.encode()
    texts, tally = texts_of(tmp_path / "a.csv", data, Csv())
    assert texts == ['one; "1"\nmore', "two"]
    assert tally == {f"note: no column 'text'; read column {name!r}": 2}
    assert texts_of(tmp_path / "a.csv", data, Csv(text="stars")) == (["5", "4"], {})
    with pytest.raises(UserError, match="no column 'star'"):  # a named column is never guessed
        texts_of(tmp_path / "a.csv", data, Csv(text="star"))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_the_command(tmp_path, capsys, suffix):
    data = b'\xef\xbb\xbfid,review\n7,"A ""fine"" film,\nto be seen."\n8,Too long.\n9\n'
    path = tmp_path / f"reviews.csv{suffix}"
    path.write_bytes(COMPRESSORS[suffix](data))
    out = tmp_path / "docs"
    assert main(["corpus", "csv", str(path), "--out", str(out), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 documents" in said
    assert "read column 'review'" in said
    assert OTHER_WIDTH in said
    texts = [document.text for document in read_parquet([Slice(*out.glob("*.parquet"))])]
    assert texts == ['A "fine" film,\nto be seen.', "Too long."]
    named = ["corpus", "csv", str(path), "--text", "stars", "--out", str(tmp_path / "other")]
    assert main(named) == 2
    said = capsys.readouterr().err
    assert "has no column 'stars'" in said
    assert "got: columns id, review" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("lines", [3, 300])
@pytest.mark.parametrize("before", [0, 5, 1000])
def test_an_open_quotation_mark_is_an_error_with_its_line(tmp_path, small_parts, lines, before):
    data = b"text\n" + b'"some words"\n' * before + b'"open\n' + b"swallowed\n" * lines
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(UserError, match=rf"a\.csv, line {before + 2}: a quotation mark"):
        read(Csv(), tmp_path)


def test_long_cells_are_dropped_and_counted(tmp_path, small_parts):
    cells = [b"small", b"large " * 3000, b"x" * 1500, b'"' + b"y" * 1500 + b'"', b"after"]
    for before in (b"", b"text before\n" * 500):
        data = b"text\n" + before + b"\n".join(cells)
        texts, tally = texts_of(tmp_path / "a.csv", data, Csv())
        assert texts[-2:] == ["small", "after"]
        assert tally == {TOO_LARGE: 3}


def _random_table(rng: random.Random, rows: int) -> tuple[bytes, list[str]]:
    words = ["one", 'a "b"', "c,d", "\n", "\n\n", "é", "ß; x", '"', ","]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(rows)]
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("id", "text"), *enumerate(texts)])
    return file.getvalue().encode(), texts


@pytest.mark.parametrize("seed", range(5))
def test_a_large_file_is_split_and_numbered_like_a_small_one(tmp_path, small_parts, seed):
    data, texts = _random_table(random.Random(seed), 300)
    (tmp_path / "a.csv").write_bytes(data)
    split, tally = read(Csv(), tmp_path)
    assert len(list(Csv().parts([tmp_path]))) > 5
    assert [document.text for document in split] == texts
    assert not tally
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plaintext, "PART_BYTES", 10**7)
        assert read(Csv(), tmp_path) == (split, {})
        assert len(list(Csv().parts([tmp_path]))) == 1


@pytest.mark.parametrize("large", [False, True])
def test_a_truncated_file_yields_its_complete_rows(tmp_path, large, monkeypatch):
    if large:
        monkeypatch.setattr(plaintext, "PART_BYTES", 20_000)
    rng = random.Random(0)
    units = [rng.randbytes(60).hex() + "\nnext line" for _ in range(4_000)]
    data = "\n".join(["text", *(f'"{unit}"' for unit in units)]).encode()
    compressed = COMPRESSORS[".xz"](data)
    texts, tally = texts_of(tmp_path / "a.csv.xz", compressed[: len(compressed) // 2], Csv())
    assert tally == {TRUNCATED: 1}
    assert texts == units[: len(texts)]
    assert len(texts) > 1000


def test_short_rows_take_little_memory_and_the_global_limit_stays(tmp_path):
    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_bytes(b"text,n\n" + b"a,b\n" * 20_000 + b"x" * 200_000 + b",1\n")
    (part,) = Csv().parts([tmp_path])
    tracemalloc.start()
    try:
        sizes = {len(document.text) for document in Csv().documents(part, Counter())}
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert sizes == {1, 200_000}
    assert csv.field_size_limit() == limit
