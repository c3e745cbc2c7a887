"""Compressed files that are truncated, damaged, or not in the format of their name."""

import pytest
import zstandard

from tests.bad_input.sources import GOOD, PACK, checked, counted, source_of, texts
from tests.conftest import make_documents


@pytest.mark.parametrize(
    ("kind", "compression"),
    [
        *(("text", compression) for compression in PACK),
        ("jsonl", "gz"),
        ("csv", "xz"),
        ("wikipedia", "bz2"),
    ],
)
def test_a_truncated_file_is_counted_and_no_document_is_truncated(tmp_path, run, kind, compression):
    name, data = source_of(kind)
    compressed = b"".join(
        PACK[compression](data[start : start + 20_000]) for start in range(0, len(data), 20_000)
    )
    (tmp_path / f"{name}.{compression}").write_bytes(compressed[: len(compressed) * 2 // 3])
    output = run("corpus", kind, f"{name}.{compression}", "--out", "docs").stdout
    found = texts(tmp_path / "docs")
    intact = [document.text.replace("\n", " ") for document in make_documents(300)]
    assert 100 < len(found) < 250
    assert found == intact[: len(found)]
    assert counted(checked(tmp_path / "docs"), "truncated") == 1
    assert "source truncated" in output


def test_a_file_in_another_format_than_its_name_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    for compression in PACK:
        for name, data in {"zeros": bytes(1000), "text": GOOD * 50, "empty": b""}.items():
            (tmp_path / "src" / f"{name}.txt.{compression}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == []
    assert counted(checked(tmp_path / "docs"), "") == 3 * len(PACK)


def test_a_bit_flip_in_the_middle_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    checksummed = {**PACK, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    for compression, pack in checksummed.items():
        data = bytearray(pack(source_of("text")[1]))
        data[len(data) // 2] ^= 0x55
        (tmp_path / "src" / f"a.txt.{compression}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert counted(checked(tmp_path / "docs"), "truncated") == len(PACK)


def test_concatenated_compressed_streams_are_one_file(tmp_path, run):
    (tmp_path / "src").mkdir()
    for compression, pack in PACK.items():
        data = pack(b"one\n\ntw") + pack(b"o\n\nthree")
        (tmp_path / "src" / f"a.txt.{compression}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == ["one", "two", "three"] * len(PACK)


def test_truncated_xml_is_counted(tmp_path, run):
    data = source_of("wikipedia")[1]
    (tmp_path / "a.xml").write_bytes(data[: len(data) // 2])
    run("corpus", "wikipedia", "a.xml", "--out", "docs")
    stated = checked(tmp_path / "docs")
    assert 100 < stated["documents"] < 200
    assert counted(stated, "truncated") == 1
