"""Huge documents, decompression bombs and huge columns are handled in little memory."""

import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.bad_input.sources import (
    ALSO_GOOD,
    GOOD,
    MB,
    PACK,
    checked,
    repeated,
    run_within,
    tar,
    texts,
    wiki,
)


def around(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """Return the bytes before and after a huge text in a file of three JSON lines."""
    good, last = (json.dumps({"text": text.decode()}).encode() for text in (GOOD, ALSO_GOOD))
    return good + b"\n" + before, after + b"\n" + last


WORDS = b"word " * 200_000  # 1 MB


def long_line_text(folder: Path) -> str:
    repeated(folder / "a.txt", WORDS, 100, GOOD + b"\n\n", b"\n\n" + ALSO_GOOD)
    return "a.txt"


def long_line_jsonl(folder: Path) -> str:
    repeated(folder / "a.jsonl", WORDS, 50, *around(b'{"text": "', b'"}'))
    return "a.jsonl"


def long_cell_csv(folder: Path) -> str:
    before, after = b"text\n" + GOOD + b'\n"', b'"\n' + ALSO_GOOD
    repeated(folder / "a.csv", WORDS, 50, before, after)
    return "a.csv"


def long_page_wikipedia(folder: Path) -> str:
    before, after = wiki(GOOD.decode(), "@", ALSO_GOOD.decode()).split(b"@")
    repeated(folder / "a.xml", WORDS, 50, before, after)
    return "a.xml"


def long_file_openwebtext(folder: Path) -> str:
    texts = (("a.txt", GOOD, b"0"), ("b.txt", WORDS * 50, b"0"), ("c.txt", ALSO_GOOD, b"0"))
    (folder / "owt").mkdir()
    (folder / "owt" / "a.tar").write_bytes(tar(("a.tar", tar(*texts), b"0")))
    return "owt/a.tar"


def long_book_gutenberg(folder: Path) -> str:
    (folder / "books").mkdir()
    (folder / "books" / "a.txt").write_bytes(GOOD)
    repeated(folder / "books" / "b.txt", WORDS, 50)
    (folder / "books" / "c.txt").write_bytes(ALSO_GOOD)
    return "books"


def long_cell_parquet(folder: Path) -> str:
    column = [GOOD.decode(), (WORDS * 50).decode(), ALSO_GOOD.decode()]
    table = pyarrow.table({"text": column})
    pyarrow.parquet.write_table(table, folder / "a.parquet", compression="none")
    return "a.parquet"


def bomb(compression: str, before: bytes, after: bytes) -> bytes:
    """Return a few kilobytes that decompress to hundreds of megabytes, as concatenated streams."""
    pack = PACK[compression]
    return pack(before) + pack(b"a" * 10 * MB) * 50 + pack(after)


def bomb_text(folder: Path) -> str:
    (folder / "a.txt.zst").write_bytes(bomb("zst", GOOD + b"\n\n", b"\n\n" + ALSO_GOOD))
    return "a.txt.zst"


def bomb_jsonl(folder: Path) -> str:
    (folder / "a.jsonl.bz2").write_bytes(bomb("bz2", *around(b'{"text": "', b'"}')))
    return "a.jsonl.bz2"


def bomb_wikipedia(folder: Path) -> str:
    before, after = wiki(GOOD.decode(), "@", ALSO_GOOD.decode()).split(b"@")
    (folder / "a.xml.bz2").write_bytes(bomb("bz2", before, after))
    return "a.xml.bz2"


def bomb_openwebtext(folder: Path) -> str:
    info = tarfile.TarInfo("bomb.txt")
    info.size = 500 * MB
    after = bytes(-info.size % 512) + tar(("last.txt", ALSO_GOOD, b"0"))
    (folder / "owt.tar").write_bytes(tar(("one.xz", bomb("xz", info.tobuf(), after), b"0")))
    return "owt.tar"


def bomb_gutenberg(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a.txt", GOOD)
        archive.writestr("b.txt", b"a" * 100 * MB)
    return "a.zip"


def bomb_parquet(folder: Path) -> str:
    """1.5 GB of text: one value of 5 MB, 300 times, stored once."""
    index, values = pyarrow.array([0] * 300, pyarrow.int32()), pyarrow.array(["word " * MB])
    column = pyarrow.DictionaryArray.from_arrays(index, values)
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), folder / "a.parquet")
    return "a.parquet"


def repeated_titles(folder: Path) -> str:
    """Short texts under 10 GB of titles: one value of 5 MB, 2,000 times, stored once."""
    index = pyarrow.array([0] * 2_000, pyarrow.int32())
    titles = pyarrow.DictionaryArray.from_arrays(index, pyarrow.array(["word " * MB]))
    texts = [f"A short text, number {number}." for number in range(2_000)]
    table = pyarrow.table({"text": texts, "title": titles})
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    return "a.parquet"


def nested_ids(folder: Path) -> str:
    """Short texts beside a column of ids that are lists of a million equal numbers each."""
    values = pyarrow.array(np.zeros(60 * MB, np.int8))
    lists = pyarrow.ListArray.from_arrays(np.arange(0, 60 * MB + 1, MB, np.int32), values)
    texts = [f"A short text, number {number}." for number in range(60)]
    table = pyarrow.table({"text": texts, "id": lists})
    pyarrow.parquet.write_table(table, folder / "a.parquet", compression="zstd")
    return "a.parquet"


@pytest.mark.slow
@pytest.mark.parametrize(("make", "count"), [(repeated_titles, 2_000), (nested_ids, 60)])
def test_columns_beside_the_text_take_little_memory(tmp_path, make, count):
    source = make(tmp_path)
    assert (tmp_path / source).stat().st_size < 2 * MB
    options = ("--out", "docs", "--workers", 1)
    run_within(500 * MB, tmp_path, "corpus", "parquet", source, *options, code=0)
    assert checked(tmp_path / "docs")["documents"] == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "make", "workers"),
    [
        ("text", long_line_text, 1),
        ("text", long_line_text, 2),
        ("jsonl", long_line_jsonl, 2),
        ("csv", long_cell_csv, 2),
        ("wikipedia", long_page_wikipedia, 2),
        ("openwebtext", long_file_openwebtext, 2),
        ("gutenberg", long_book_gutenberg, 2),
        ("parquet", long_cell_parquet, 2),
    ],
)
def test_huge_documents_are_counted_in_little_memory(tmp_path, kind, make, workers):
    source = make(tmp_path)
    options = ("--out", "docs", "--workers", workers)
    run_within(1_000 * MB, tmp_path, "corpus", kind, source, *options, code=0)
    assert texts(tmp_path / "docs") == [GOOD.decode(), ALSO_GOOD.decode()]
    assert sum(checked(tmp_path / "docs")["dropped"].values()) == 1


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("text", bomb_text),
        ("jsonl", bomb_jsonl),
        ("wikipedia", bomb_wikipedia),
        ("openwebtext", bomb_openwebtext),
        ("gutenberg", bomb_gutenberg),
        ("parquet", bomb_parquet),
    ],
)
def test_bombs_are_refused_in_little_memory(tmp_path, kind, make):
    source = make(tmp_path)
    options = ("--out", "docs", "--workers", 1)
    run_within(1_000 * MB, tmp_path, "corpus", kind, source, *options, code=2)
    assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.slow
def test_twenty_thousand_tiny_files(tmp_path, run):
    (tmp_path / "src").mkdir()
    for number in range(20_000):
        (tmp_path / "src" / f"{number}.txt").write_text(f"File {number}.")
    run("corpus", "text", "src", "--out", "docs")
    assert checked(tmp_path / "docs")["documents"] == 20_000
    assert "nothing to do" in run("corpus", "text", "src", "--out", "docs").stdout
