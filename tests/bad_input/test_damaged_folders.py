"""Folders of documents and shards that are damaged or have a mangled manifest."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from electrify.corpora.document import Document, write_parquet
from electrify.storage.commit import sha256_of
from tests.bad_input.sources import MB, run_within
from tests.conftest import write_documents


def damage(file: Path, how: str) -> None:
    data = bytearray(file.read_bytes())
    match how:
        case "deleted":
            file.unlink()
        case "truncated":
            file.write_bytes(data[: len(data) // 2])
        case "longer":
            file.write_bytes(data + bytes(2))
        case "a folder":
            file.unlink()
            file.mkdir()
        case "bit flip":
            data[len(data) // 2] ^= 0x55
            file.write_bytes(data)


DAMAGE = ["deleted", "truncated", "longer", "a folder", "bit flip"]


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_documents(tmp_path, refused, docs, vocab, how):
    shutil.copytree(docs, tmp_path / "docs")
    damage(tmp_path / "docs" / "documents-00003.parquet", how)
    commands = [
        ("show", "docs", "--verify"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok"),
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
    ]
    for command in commands:
        assert "documents-00003.parquet" in refused(*command, code=3)
    for made in ("tok", "shards"):
        assert not (tmp_path / made / "manifest.json").exists()


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_shards(tmp_path, refused, shards, how):
    shutil.copytree(shards, tmp_path / "shards")
    shard = sorted((tmp_path / "shards").glob("train-*"))[0]
    damage(shard, how)
    assert shard.name in refused("show", "shards", "--verify", code=3)
    assert shard.name in refused("show", "shards", code=3)


def without(stated: dict, *keys: str) -> bytes:
    """Return the manifest without one (nested) key."""
    inner: dict = stated
    for key in keys[:-1]:
        inner = inner[key] if key != "files" else inner["files"][0]
    del inner[keys[-1]]
    return json.dumps(stated).encode()


def manifests(intact: bytes) -> dict[str, tuple[bytes, int]]:
    """Return mangled manifests and their exit codes: 2 if the folder may be the wrong one."""
    stated = json.loads(intact)
    outside = {**stated["files"][0], "name": "../../outside"}
    return {
        "cut": (intact[: len(intact) // 2], 3),
        "not UTF-8": (b"\xff\xfe\0", 3),
        "nested": (b"[" * 100_000, 3),
        "a list": (b"[]", 3),
        "nothing in it": (b"{}", 3),
        "no documents": (without(json.loads(intact), "documents"), 3),
        "no files": (without(json.loads(intact), "files"), 3),
        "no names": (without(json.loads(intact), "files", "name"), 3),
        "no sizes": (without(json.loads(intact), "files", "bytes"), 3),
        "no checksums": (without(json.loads(intact), "files", "sha256"), 3),
        "files as numbers": (json.dumps({**stated, "files": [1]}).encode(), 3),
        "sizes as text": (
            json.dumps({**stated, "files": [{**stated["files"][0], "bytes": "x"}]}).encode(),
            3,
        ),
        "outside": (json.dumps({**stated, "files": [outside]}).encode(), 3),
        "other kind": (json.dumps({**stated, "kind": "something else"}).encode(), 2),
    }


CASES = list(  # the names of the mangled manifests
    manifests(b'{"documents": 1, "files": [{"name": "", "bytes": 0, "sha256": ""}]}')
)


@pytest.mark.parametrize("case", CASES)
def test_mangled_manifest_of_documents(tmp_path, refused, docs, vocab, case):
    shutil.copytree(docs, tmp_path / "docs")
    file = tmp_path / "docs" / "manifest.json"
    content, code = manifests(file.read_bytes())[case]
    file.write_bytes(content)
    refused("show", "docs", code=code)
    if case in ("cut", "no documents", "other kind"):
        refused("prepare", "docs", "--tokenizer", vocab, "--out", "s", code=code)
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "keys", [("splits",), ("files", "name"), ("files", "sha256"), ("files",), ("kind",)]
)
def test_mangled_manifest_of_shards(tmp_path, refused, shards, keys):
    shutil.copytree(shards, tmp_path / "shards")
    file = tmp_path / "shards" / "manifest.json"
    file.write_bytes(without(json.loads(file.read_bytes()), *keys))
    refused("show", "shards", code=3)


@pytest.mark.parametrize("key", ["examples", "tokens", "index_crc32"])
def test_mangled_entry_of_a_shard(tmp_path, refused, shards, key):
    shutil.copytree(shards, tmp_path / "shards")
    file = tmp_path / "shards" / "manifest.json"
    stated = json.loads(file.read_bytes())
    for entry in stated["files"]:
        entry.pop(key, None)
    file.write_text(json.dumps(stated))
    refused("show", "shards", code=3)


def test_documents_and_tokenizers_changed_after_their_manifest(tmp_path, run, refused, docs, vocab):
    """The files are intact, but not the ones that the manifest lists."""
    shutil.copytree(docs, tmp_path / "docs")
    one, other = (tmp_path / "docs" / f"documents-0000{number}.parquet" for number in (0, 1))
    shutil.copy(one, other)
    run("tokenizer", "--load", vocab, "--out", "tok")
    for command in [
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok2"),
        ("show", "docs", "--count", 60),
    ]:
        assert other.name in refused(*command, code=3)
    file = tmp_path / "tok" / "tokenizer.json"
    file.write_text(file.read_text().replace('"kata"', '"atak"'))
    error = refused("prepare", docs, "--tokenizer", "tok", "--out", "shards2", code=3)
    assert "tokenizer.json" in error
    assert not (tmp_path / "shards2").exists()


def unusual_documents(folder: Path, texts: pyarrow.Array, **columns: pyarrow.Array) -> Path:
    """Make a folder with a correct manifest, but unlike those of `electrify corpus`."""
    name, count = "documents-00000.parquet", len(texts)
    plain = {field: pyarrow.array(["x"] * count) for field in Document._fields}
    folder.mkdir()
    table = pyarrow.table({**plain, "text": texts, **columns})
    pyarrow.parquet.write_table(table, folder / name, store_schema=False)
    size = (folder / name).stat().st_size
    file = {"name": name, "bytes": size, "sha256": sha256_of(folder / name)}
    counts = {"documents": count, "characters": 10 * count}
    made = {"kind": "documents", "identity": {}, "files": [file], **counts}
    (folder / "manifest.json").write_text(json.dumps(made))
    return folder


@pytest.mark.parametrize("texts", [pyarrow.array([1, 2]), pyarrow.array(["some text", None])])
def test_documents_without_valid_text(tmp_path, refused, vocab, texts):
    unusual_documents(tmp_path / "docs", texts)
    for command in [
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok"),
        ("show", "docs"),
    ]:
        assert "documents-00000.parquet" in refused(*command, code=3)


def test_documents_that_unpack_to_gigabytes_are_refused_in_little_memory(tmp_path, vocab):
    """2 GB of text: one value of 5 MB, 400 times, stored once."""
    index, values = pyarrow.array([0] * 400, pyarrow.int32()), pyarrow.array(["word " * MB])
    unusual_documents(tmp_path / "docs", pyarrow.DictionaryArray.from_arrays(index, values))
    for command in (("show", "docs"), ("prepare", "docs", "--tokenizer", vocab, "--out", "s")):
        run_within(700 * MB, tmp_path, *command, code=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["id", "source", "title", "label"])
def test_names_that_unpack_to_gigabytes_are_refused_in_little_memory(tmp_path, name, vocab):
    """10 GB of names beside short texts: one value of 5 MB, 2,000 times, stored once."""
    index, values = pyarrow.array([0] * 2_000, pyarrow.int32()), pyarrow.array(["word " * MB])
    names = pyarrow.DictionaryArray.from_arrays(index, values)
    folder = unusual_documents(
        tmp_path / "docs", pyarrow.array(["a text"] * 2_000), **{name: names}
    )
    assert (folder / "documents-00000.parquet").stat().st_size < MB
    run_within(900 * MB, tmp_path, "show", "docs", "--count", 2_000, code=3)


def test_folders_without_documents(tmp_path, run, refused, vocab, shards):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    run("tokenizer", "--load", vocab, "--out", "tok")
    write_documents(tmp_path / "none", [])
    for source in ("empty", "file", "nowhere", shards, "tok", "none"):
        refused("prepare", source, "--tokenizer", vocab, "--out", "out")
    for source in ("empty", shards, "none"):
        refused("tokenizer", source, "--vocab-size", 150, "--out", "out")
    for source in ("empty", "file", "nowhere", "tok"):
        refused("show", source)
    assert not (tmp_path / "out").exists()
    run("show", "none")


def test_show_of_an_empty_split(run, refused, shards):
    assert "validation" in refused("show", shards, "--split", "validation")
    assert "test" in refused("show", shards, "--split", "test", "--seed", 1)
    run("show", shards, "--verify")


@pytest.mark.parametrize("options", [("--count", 10**9), ("--count", 10**9, "--seed", -1)])
def test_show_of_more_than_available(run, docs, options):
    run("show", docs, *options)


def test_a_closed_pipe_is_not_a_traceback(docs):
    """`electrify show docs | head -1`"""
    process = subprocess.Popen(
        [sys.executable, "-m", "electrify", "show", str(docs), "--count", "400"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    process.stdout.read(10)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()
    process.wait()
    assert "Error" not in error


@pytest.mark.parametrize("content", [b"\xff", b"x = ", b"[reader]\nsplit = 7", b"sources = 1"])
def test_invalid_settings_files(tmp_path, run, content):
    (tmp_path / "settings.toml").write_bytes(content)
    run("corpus", "text", "--config", "settings.toml", "--out", "docs", code=2)
    assert not (tmp_path / "docs").exists()


def test_missing_settings_files(run):
    for name in ("nowhere.toml", ".", "/dev/zero/a"):
        run("corpus", "text", "--config", name, "--out", "docs", code=2)


def test_documents_replaced_by_a_table_without_rows(tmp_path, refused, docs, vocab):
    """A file without row groups would otherwise be skipped without being verified."""
    shutil.copytree(docs, tmp_path / "docs")
    file = tmp_path / "docs" / "documents-00001.parquet"
    write_parquet(file, [])
    for command in [
        ("prepare", "docs", "--tokenizer", vocab, "--out", "shards"),
        ("tokenizer", "docs", "--vocab-size", 150, "--out", "tok"),
        ("show", "docs", "--count", 60),
    ]:
        assert file.name in refused(*command, code=3)
