import bz2
import gzip
import io
import lzma
import random
import tracemalloc

import pytest
import zstandard

from electrify.corpora import archive
from electrify.corpora.archive import Truncated, cut_after, decompress, expand, group
from electrify.errors import UserError

COMPRESSORS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}
TEXT = b"".join(b"line %d of a text that goes on for a while\n" % n for n in range(20_000))


def read(data, suffix):
    """Return the bytes of a stream and whether it was truncated."""
    received = bytearray()
    try:
        for block in decompress(io.BytesIO(data), suffix, "x" + suffix):
            received += block
    except Truncated:
        return bytes(received), True
    return bytes(received), False


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_streams_and_their_concatenations_are_decompressed(suffix):
    compressed = COMPRESSORS[suffix](TEXT)
    assert read(compressed, suffix) == (TEXT, False)
    assert read(compressed + compressed, suffix) == (TEXT + TEXT, False)


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("fraction", [0.02, 0.5, 0.9, 0.999])
def test_a_truncated_stream_yields_its_valid_bytes_and_raises(suffix, fraction):
    noise = random.Random(0).randbytes(2_000_000).hex().encode()
    compressed = COMPRESSORS[suffix](noise)
    received, truncated = read(compressed[: int(len(compressed) * fraction)], suffix)
    assert truncated
    assert noise.startswith(received)
    assert len(received) > (fraction - 0.6) * len(noise)  # bzip2 only gives full blocks of 900 kB


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_damage_and_plain_text_under_a_compressed_name_raise_truncated(suffix):
    compressed = bytearray(COMPRESSORS[suffix](TEXT))
    compressed[len(compressed) // 2 : len(compressed) // 2 + 8] = b"\xff" * 8
    assert read(bytes(compressed), suffix)[1]
    assert read(b"not compressed, just text " * 9, suffix) == (b"", True)


def _bomb(suffix, size=400_000_000):
    zeros, out = bytes(1_000_000), io.BytesIO()
    if suffix == ".zst":
        with zstandard.ZstdCompressor().stream_writer(out, closefd=False) as writer:
            for _ in range(size // len(zeros)):
                writer.write(zeros)
        return out.getvalue()
    openers = {".gz": gzip.GzipFile, ".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile}
    keyword = {"fileobj": out} if suffix == ".gz" else {"filename": out}
    with openers[suffix](mode="wb", **keyword) as writer:
        for _ in range(size // len(zeros) if suffix == ".zst" else 60):
            writer.write(zeros)
    return out.getvalue()


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_bomb_is_refused_with_its_ratio_and_in_little_memory(suffix):
    data = _bomb(suffix)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="more than 200 : 1"):
            for _ in decompress(io.BytesIO(data), suffix, "bomb" + suffix):
                pass
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_skippable_zstd_frames_and_frames_without_checksum():
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    plain = zstandard.ZstdCompressor(write_checksum=False, write_content_size=False).compress(TEXT)
    assert read(skippable + plain + skippable, ".zst") == (TEXT, False)


def _blocks(data, size):
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("boundary", [b"\n", b"\n\n", b"</page>"])
def test_split_points_depend_on_content_and_not_on_blocks(boundary):
    rng = random.Random(1)
    for _ in range(40):
        lengths = [rng.choice([0, 1, 3, 10, 80, 300]) for _ in range(40)]
        data = boundary.join(b"x" * length for length in lengths)
        splits = [
            list(cut_after(_blocks(data, size), boundary, 50, 100)) for size in (1, 7, 64, 10**6)
        ]
        assert splits[0] == splits[1] == splits[2] == splits[3]
        assert all(len(chunk) <= 150 + len(boundary) for chunk, _ in splits[0])


def test_splitting_loses_only_what_it_counts():
    units = [b"a" * 30, b"b" * 500, b"c" * 20, b"d" * 40, b"e" * 5]
    chunks = list(cut_after(_blocks(b"\n".join(units), 16), b"\n", 25, 100))
    assert b"".join(chunk for chunk, _ in chunks) == b"\n".join([units[0], *units[2:]])
    assert sum(left_out for _, left_out in chunks) == 1


@pytest.mark.parametrize("length", [10, 60, 400, 1000])
def test_a_truncated_stream_yields_complete_units_once(length):
    data = b"\n".join([b"a" * 30, b"b" * 20, b"c" * 500, b"d" * 300])[:length]

    def stream():
        yield from _blocks(data, 13)
        raise Truncated("test")

    chunks: list[bytes] = []
    with pytest.raises(Truncated):
        chunks.extend(chunk for chunk, _ in cut_after(stream(), b"\n", 40, 100))
    complete = data[: data.rfind(b"\n") + 1]
    kept = b"".join(line + b"\n" for line in complete.split(b"\n")[:-1] if len(line) < 140)
    assert b"".join(chunks) == kept


def test_a_stream_is_read_completely_up_to_a_limit():
    assert archive.read_all([b"one ", b"two"], 7) == b"one two"
    assert archive.read_all(iter([b"one ", b"two", b"!"]), 7) is None


def test_group_batches_consecutive_items():
    sizes = [5_000_000, 5_000_000, 9_000_000, 30_000_000, 1]
    assert list(group(sizes, int)) == [sizes[:2], sizes[2:3], sizes[3:4], sizes[4:]]
    assert max(map(len, group(range(20_000), lambda _: 0))) < 4000


def test_expand_sorts_names_and_makes_them_unique(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / "sub").mkdir(parents=True)
        for name in ("2.txt", "sub/1.txt", ".hidden.txt", "other.md"):
            (tmp_path / folder / name).write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    found = expand([tmp_path / "a", tmp_path / "b", tmp_path / "b"], [".txt"])
    names = [name for _, name in found]
    assert names == ["2.txt", "sub/1.txt", "b/2.txt", "b/sub/1.txt", "2.txt~2", "sub/1.txt~2"]


def test_a_name_that_is_not_unicode_can_be_stored(tmp_path):
    path = tmp_path / b"caf\xe9.txt".decode("utf-8", "surrogateescape")
    try:
        path.write_text("x")
    except OSError:
        pytest.skip("this file system allows Unicode names only")
    assert expand([tmp_path], [".txt"])[0][1] == "caf\ufffd.txt"
    assert archive.source_fingerprint(tmp_path)["files"] == 1


def test_missing_empty_and_unreadable_sources_raise_a_user_error(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        expand([tmp_path / "none.txt"], [".txt"])
    with pytest.raises(UserError, match="without any"):
        expand([tmp_path], [".txt"])
    with pytest.raises(UserError, match="cannot be opened"):
        list(archive.read_blocks(tmp_path / "none.txt"))
