import gzip
import io
import lzma
import random
import tarfile
import time
import tracemalloc
from collections import Counter

import pytest

from electrify.corpora import openwebtext
from electrify.corpora.openwebtext import OpenWebText
from electrify.corpora.tar import LINK, SPARSE
from electrify.corpora.troubles import REPAIRED, TRUNCATED
from electrify.errors import UserError

FORMATS = [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]
TEXTS = [(f"{n:07d}-abc.txt", f"text {n}") for n in range(20)]


def tar(members, tar_format=tarfile.GNU_FORMAT):
    """Return a tar of members (name, text, bytes or type)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                archive.addfile(info)
            else:
                data = content.encode() if isinstance(content, str) else content
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(*sources):
    tally: Counter[str] = Counter()
    documents = []
    for part in OpenWebText().parts(sources):
        tally.update(part.problems)
        documents += OpenWebText().documents(part, tally)
    assert len({document.id for document in documents}) == len(documents)
    return documents, dict(tally)


def outer(tar_format=tarfile.GNU_FORMAT):
    inner = [(f"openwebtext/s{n}_data.xz", lzma.compress(tar(TEXTS, tar_format))) for n in range(3)]
    return tar([("openwebtext", (tarfile.DIRTYPE, "")), *inner], tar_format)


@pytest.mark.parametrize("tar_format", FORMATS)
@pytest.mark.parametrize("suffix", [".tar", ".tar.xz", ".tar.gz"])
@pytest.mark.parametrize("large", [False, True])
def test_nested_archives_in_every_form(tmp_path, tar_format, suffix, large, monkeypatch):
    if large:  # the parent then reads the outer archive in order
        monkeypatch.setattr(openwebtext, "PART_BYTES", 0)
    pack = {".tar": bytes, ".tar.xz": lzma.compress, ".tar.gz": gzip.compress}[suffix]
    (tmp_path / f"o{suffix}").write_bytes(pack(outer(tar_format)))
    documents, tally = read(tmp_path / f"o{suffix}")
    assert [document.text for document in documents] == [text for _, text in TEXTS] * 3
    assert documents[21].id == f"o{suffix}:3:openwebtext/s1_data.xz:2:0000001-abc.txt"
    assert not tally


@pytest.mark.parametrize("suffix", [".tar.xz", ".tar.gz"])
def test_inner_archives_too_large_to_pass_on_are_decompressed_by_the_parent(
    tmp_path, suffix, monkeypatch
):
    pack = {".tar.xz": lzma.compress, ".tar.gz": gzip.compress}[suffix]
    (tmp_path / f"o{suffix}").write_bytes(pack(outer()))
    expected = read(tmp_path / f"o{suffix}")
    monkeypatch.setattr(openwebtext, "PART_BYTES", 0)
    assert read(tmp_path / f"o{suffix}") == expected
    monkeypatch.setattr(openwebtext, "MAX_INLINE_BYTES", 100)
    assert read(tmp_path / f"o{suffix}") == expected
    assert (
        openwebtext.MAX_INLINE_BYTES * 12 < 200_000_000
    )  # eight parts ahead, and some on their way to a worker


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
@pytest.mark.parametrize("count", [1, 3])
def test_fractions_rise_to_the_end(tmp_path, suffix, count):
    noise = random.Random(0).randbytes(3_000_000).hex()
    inner = gzip.compress(tar([("a.txt", noise)]), compresslevel=0)
    data = tar([(f"s{n}.gz", inner) for n in range(3)])
    data = data if suffix == ".tar" else gzip.compress(data, compresslevel=0)
    for n in range(count):
        (tmp_path / f"{n}{suffix}").write_bytes(data)
    fractions = [part.fraction for part in OpenWebText().parts([tmp_path])]
    assert len(fractions) == 3 * count
    assert fractions == sorted(fractions)
    assert 0 < fractions[0] < fractions[-1] <= 1
    assert fractions[-1] > 0.9


def test_a_folder_of_inner_archives(tmp_path):
    for n in range(3):
        (tmp_path / f"s{n}_data.xz").write_bytes(lzma.compress(tar(TEXTS)))
    documents, tally = read(tmp_path)
    assert len(documents) == 60
    assert documents[0].id == "s0_data.xz:1:0000000-abc.txt"
    assert not tally


HOSTILE = [
    ("../../up.txt", "up"),
    ("/abs.txt", "absolute"),
    ("a/" * 3000 + "deep.txt", "deep"),
    ("n" * 100_000 + ".txt", "long name"),
    ("bad\x1b[31m.txt", "control"),
    ("same.txt", "first"),
    ("same.txt", "second"),
    ("soft.txt", (tarfile.SYMTYPE, "/etc/passwd")),
    ("hard.txt", (tarfile.LNKTYPE, "../../etc/passwd")),
    ("device.txt", (tarfile.CHRTYPE, "")),
    ("pipe.txt", (tarfile.FIFOTYPE, "")),
    ("picture.png", "no text"),
    ("third.xz", lzma.compress(tar(TEXTS))),
]


@pytest.mark.parametrize("tar_format", FORMATS[:2])
def test_hostile_members_are_names_or_counted_and_nothing_is_written(tmp_path, tar_format):
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "o.tar").write_bytes(tar([("s.xz", lzma.compress(tar(HOSTILE, tar_format)))]))
    documents, tally = read(inside / "o.tar")
    assert [d.text for d in documents] == [t for _, t in HOSTILE[:7]]
    assert tally == {LINK: 4, "not a .txt file": 1, "archives nested too deep": 1}
    assert not any(".." in d.id or "\x1b" in d.id or len(d.id) > 400 for d in documents)
    assert documents[1].id == "o.tar:1:s.xz:2:abs.txt"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["in", "o.tar"]


def test_sparse_members_are_skipped(tmp_path):
    info = tarfile.TarInfo("sparse.txt")
    info.type = tarfile.GNUTYPE_SPARSE
    info.size = 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # another block of the list of holes follows
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:512]))
    body = bytes(header) + b"\1" * 504 + bytes(8) + b"d" * 512
    pax = tarfile.TarInfo("pax.txt")
    pax.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.realsize": str(10**10)}
    packed = lzma.compress(body + pax.tobuf(tarfile.PAX_FORMAT) + tar(TEXTS))
    (tmp_path / "a.tar.xz").write_bytes(packed)
    documents, tally = read(tmp_path / "a.tar.xz")
    assert len(documents) == 20
    assert tally == {SPARSE: 2}


def test_headers_that_lie_or_are_damaged(tmp_path):
    good = tar(TEXTS[:2])[:2048]
    headers = {}
    huge = tarfile.TarInfo("huge.txt")
    huge.size = 1 << 60
    headers["huge"] = huge.tobuf(tarfile.GNU_FORMAT)
    negative = bytearray(tarfile.TarInfo("negative.txt").tobuf())
    negative[124:136] = b"\xff" * 12
    negative[148:156] = b"%06o\0 " % (256 + sum(negative[:148]) + sum(negative[156:512]))
    headers["negative"] = bytes(negative)
    long_name = tarfile.TarInfo("x")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    headers["long name"] = long_name.tobuf(tarfile.GNU_FORMAT)
    headers["noise"] = random.Random(0).randbytes(5000)
    for name, header in headers.items():
        for suffix, pack in ((".tar.xz", lzma.compress), (".tar", bytes)):
            (tmp_path / f"a{suffix}").write_bytes(pack(good + header))
            documents, tally = read(tmp_path / f"a{suffix}")
            assert len(documents) == 2, name
            assert tally.pop(TRUNCATED, 0), name
            assert tally in ({}, {"document too large": 1}), name


def test_a_header_of_digits_is_not_searched_in_quadratic_time(tmp_path):
    digits = b"1" * 900_000
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(digits)
    header = info.tobuf(tarfile.GNU_FORMAT) + digits + bytes(-len(digits) % 512)
    (tmp_path / "a.tar").write_bytes(header + tar(TEXTS))
    start = time.perf_counter()
    assert len(read(tmp_path / "a.tar")[0]) == 20
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("fraction", [0.2, 0.6, 0.97])
@pytest.mark.parametrize("suffix", [".tar", ".tar.xz"])
@pytest.mark.parametrize("large", [False, True])
def test_a_truncated_outer_archive_yields_its_complete_files(
    tmp_path, fraction, suffix, large, monkeypatch
):
    if large:
        monkeypatch.setattr(openwebtext, "PART_BYTES", 0)
    rng = random.Random(0)
    texts = [(f"{n}.txt", rng.randbytes(3000).hex()) for n in range(60)]
    inner = [(f"s{n}.xz", lzma.compress(tar(texts[n * 20 :][:20]))) for n in range(3)]
    data = tar(inner) if suffix == ".tar" else lzma.compress(tar(inner))
    (tmp_path / f"o{suffix}").write_bytes(data[: int(len(data) * fraction)])
    documents, tally = read(tmp_path / f"o{suffix}")
    assert [d.text for d in documents] == [text for _, text in texts][: len(documents)]
    assert len(documents) >= 60 * (fraction - 0.2)
    assert set(tally) == {TRUNCATED}


def test_a_truncated_inner_archive_does_not_stop_the_others(tmp_path):
    packed = lzma.compress(tar(TEXTS))
    (tmp_path / "o.tar").write_bytes(
        tar([("a.xz", packed[: len(packed) // 2]), ("b.xz", packed), ("c.xz", b"no")])
    )
    documents, tally = read(tmp_path / "o.tar")
    assert len(documents) >= 20
    assert documents[-1].text == "text 19"
    assert tally == {TRUNCATED: 2}


def test_a_bomb_inside_is_refused(tmp_path):
    bomb = lzma.compress(tar([("a.txt", b"x"), ("zeros.bin", bytes(60_000_000))]))
    (tmp_path / "o.tar").write_bytes(tar([("a.xz", bomb)]))
    with pytest.raises(UserError, match="more than 200 : 1"):
        read(tmp_path / "o.tar")


def test_a_file_that_is_not_a_tar_is_reported(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"this is just text\n" * 100)
    (tmp_path / "b.xz").write_bytes(lzma.compress(b"this is just text\n" * 100))
    for name in ("a.tar", "b.xz"):
        with pytest.raises(UserError, match="not a tar archive"):
            read(tmp_path / name)
    (tmp_path / "o.tar").write_bytes(tar([("x.xz", lzma.compress(b"text" * 1000))]))
    assert read(tmp_path / "o.tar") == ([], {"member is not a tar archive": 1})


@pytest.mark.slow
def test_many_members_take_little_memory(tmp_path):
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for n in range(30_000):
            noise = random.Random(n).randbytes(40).hex().encode()
            info = tarfile.TarInfo(f"{n}.txt")
            info.size = len(noise)
            file.write(info.tobuf() + noise + bytes(-len(noise) % 512))
        file.write(bytes(1024))
    tally: Counter[str] = Counter()
    tracemalloc.start()
    try:
        count = sum(
            1 for part in OpenWebText().parts([path]) for _ in OpenWebText().documents(part, tally)
        )
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert count == 30_000


def test_empty_large_and_wrongly_encoded_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(openwebtext, "MAX_DOCUMENT_BYTES", 100)
    members = [("a.txt", ""), ("b.txt", "x" * 101), ("c.txt", b"caf\xe9")]
    (tmp_path / "a.tar").write_bytes(tar(members))
    documents, tally = read(tmp_path / "a.tar")
    assert [document.text for document in documents] == ["caf\ufffd"]
    assert tally == {"empty file": 1, "document too large": 1, REPAIRED: 1}
