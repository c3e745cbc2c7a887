"""Packed files that are cut, flipped, or not packed as named."""

import pytest
import zstandard

from tests.bad_input.sources import GOOD, PACK, checked, counted, source_of, texts
from tests.conftest import make_documents


@pytest.mark.parametrize(
    ("kind", "packing"),
    [*(("text", packing) for packing in PACK), ("jsonl", "gz"), ("wikipedia", "bz2")],
)
def test_a_truncated_file_is_counted_and_no_document_is_cut(tmp_path, run, kind, packing):
    name, data = source_of(kind)
    packed = b"".join(
        PACK[packing](data[start : start + 20_000]) for start in range(0, len(data), 20_000)
    )
    (tmp_path / f"{name}.{packing}").write_bytes(packed[: len(packed) * 2 // 3])
    said = run("corpus", kind, f"{name}.{packing}", "--out", "docs").stdout
    found = texts(tmp_path / "docs")
    sound = [document.text.replace("\n", " ") for document in make_documents(300)]
    assert 100 < len(found) < 250
    assert found == sound[: len(found)]
    assert counted(checked(tmp_path / "docs"), "truncated") == 1
    assert "source truncated" in said


def test_what_is_not_packed_as_named_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    for packing in PACK:
        for name, data in {"zeros": bytes(1000), "text": GOOD * 50, "empty": b""}.items():
            (tmp_path / "src" / f"{name}.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == []
    assert counted(checked(tmp_path / "docs"), "") == 3 * len(PACK)


def test_a_bit_flip_in_the_middle_is_counted(tmp_path, run):
    (tmp_path / "src").mkdir()
    checksummed = {**PACK, "zst": zstandard.ZstdCompressor(write_checksum=True).compress}
    for packing, pack in checksummed.items():
        data = bytearray(pack(source_of("text")[1]))
        data[len(data) // 2] ^= 0x55
        (tmp_path / "src" / f"a.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert counted(checked(tmp_path / "docs"), "truncated") == len(PACK)


def test_packed_pieces_one_after_another_are_one_file(tmp_path, run):
    (tmp_path / "src").mkdir()
    for packing, pack in PACK.items():
        data = pack(b"one\n\ntw") + pack(b"o\n\nthree")
        (tmp_path / "src" / f"a.txt.{packing}").write_bytes(data)
    run("corpus", "text", "src", "--out", "docs")
    assert texts(tmp_path / "docs") == ["one", "two", "three"] * len(PACK)


def test_a_cut_xml_is_counted(tmp_path, run):
    data = source_of("wikipedia")[1]
    (tmp_path / "a.xml").write_bytes(data[: len(data) // 2])
    run("corpus", "wikipedia", "a.xml", "--out", "docs")
    stated = checked(tmp_path / "docs")
    assert 100 < stated["documents"] < 200
    assert counted(stated, "truncated") == 1
