"""`pretrain --data s3://…` against a real S3 server on loopback: copied, verified, then trained."""

import os
import shutil
import subprocess
import sys

import fsspec
import pytest
from moto.server import ThreadedMotoServer
from tests.training.conftest import RECIPE

from electrify.errors import DamagedError, UserError
from electrify.storage.url import url_of
from electrify.tokens.prepare import Prepare, prepare
from electrify.training.staging import cache_folder, staged


@pytest.fixture(scope="module")
def port():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def bucket(port, shards, tmp_path, monkeypatch):
    """A bucket with shards; returns their URL and the file system."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    store = fsspec.filesystem("s3", skip_instance_cache=True)
    if not store.exists("texts"):
        store.mkdir("texts")
    store.put(f"{shards}/", "texts/shards", recursive=True)
    return "s3://texts/shards", store


def files_of(folder):
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
    kept = {name: path for name, path in found.items() if path.suffix in (".json", ".safetensors")}
    return {n: p.read_bytes() for n, p in kept.items() if not n.startswith("incoming")}


def staged_from(url):
    from pathlib import Path

    return staged(Path(url))


def test_shards_are_copied_once(bucket, shards, capsys):
    url, store = bucket
    folder = staged_from(url)
    assert folder.parent == cache_folder()
    assert files_of(folder) == files_of(shards)
    assert "verified" in capsys.readouterr().out
    for path in store.find("texts/shards"):
        if not path.endswith("manifest.json"):
            store.rm_file(path)
    assert staged_from(url) == folder  # nothing but the manifest is read again


def test_a_shard_that_changed_is_refused_and_never_committed(bucket):
    url, store = bucket
    (name,) = [
        path for path in store.find("texts/shards") if path.endswith("train-00000.safetensors")
    ]
    content = bytearray(store.cat_file(name))
    content[-1] ^= 1
    store.pipe_file(name, bytes(content))
    with pytest.raises(DamagedError, match=r"train-00000.safetensors did not arrive"):
        staged_from(url)
    assert not list(cache_folder().rglob("train-00000.safetensors"))
    assert not list(cache_folder().glob("*/manifest.json"))


def test_what_is_missing_is_an_error(bucket):
    with pytest.raises(UserError, match="--data cannot be read"):
        staged_from("s3://texts/nothing")


def test_an_output_folder_in_a_bucket_is_refused(docs, vocab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--out must be a folder") as refused:
        prepare(Prepare((docs,), str(vocab), "s3://texts/shards", length=32, workers="1"))
    assert "fsspec.url_to_fs('s3://texts/shards')" in refused.value.fix
    assert not list(tmp_path.iterdir())


def test_local_paths_stay_as_they_are(shards):
    assert url_of(shards) is None
    assert staged(shards) == shards


@pytest.mark.slow
def test_training_from_a_bucket_is_training_from_the_folder(bucket, shards, tmp_path):
    url, _ = bucket
    (tmp_path / "small.toml").write_text(RECIPE)
    for name, data in (("remote", url), ("local", shards)):
        given = ["small.toml", "--data", str(data), "--out", name, "--run.steps", "4"]
        command = [sys.executable, "-m", "electrify", "pretrain", *given, "--device", "cpu"]
        done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert ("verified" in done.stdout) == (name == "remote")
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("remote", "local")]
    assert metrics[0] == metrics[1]
    shutil.rmtree(tmp_path / "cache")
