"""Damaged shards are never trained on, and the error names the file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from electrify.storage.commit import sha256_of
from electrify.tokens import tokenizer
from electrify.tokens.store import map_arrays, write_shard


@pytest.fixture
def train(nursery, recipe, shards, tmp_path) -> Callable[..., str]:
    """Return a function that trains on a copy of the shards, `tmp_path/data`, and returns the log."""
    shutil.copytree(shards, tmp_path / "data")
    command = ("pretrain", recipe, "--data", tmp_path / "data", "--out", tmp_path / "run")

    def train(*flags: object, code: int = 3, before: str = "") -> str:
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        found = nursery.run(*command, "--run.steps", 2, *flags, log=log, before=before)
        assert found == code, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
        return log.read_text()

    return train


def flip(path: Path) -> None:
    """Change 2,000 bytes of the tokens, and nothing else."""
    data, tokens = bytearray(path.read_bytes()), map_arrays(path)["tokens"]
    begin = data.index(tokens.tobytes())
    for position in Random(0).choices(range(begin, begin + tokens.nbytes), k=2_000):
        data[position] ^= 1 + position % 7
    path.write_bytes(data)


def forge_manifest(folder: Path, name: str) -> None:
    """Update the manifest to a changed file, as an attacker would."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    (entry,) = (entry for entry in manifest["files"] if entry["name"] == name)
    entry["sha256"], entry["bytes"] = sha256_of(folder / name), (folder / name).stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_flipped_bytes_end_the_run_before_they_are_used(split, train, tmp_path):
    shard = min((tmp_path / "data").glob(f"{split}-*"))
    flip(shard)
    assert shard.name in train()
    assert not list((tmp_path / "run").glob("checkpoints/step-*[1-9]"))


def test_ids_outside_the_vocabulary_are_refused(train, tmp_path):
    shard = min((tmp_path / "data").glob("train-*"))
    arrays = {name: np.array(array) for name, array in map_arrays(shard).items()}
    arrays["tokens"][1] = 60_000
    write_shard(shard, arrays)
    forge_manifest(tmp_path / "data", shard.name)
    log = train()
    assert shard.name in log
    assert "token 60,000" in log


def test_a_tokenizer_that_is_not_that_of_the_shards_is_refused(train, tmp_path):
    words = [*tokenizer.OUR_NAMES.values(), "ka", "##ta"]
    tokenizer.save_tokenizer(tokenizer.from_vocabulary(words), tmp_path / "data" / "tokenizer")
    assert "tokenizer.json" in train()
    forge_manifest(tmp_path / "data", "tokenizer/tokenizer.json")
    forge_manifest(tmp_path / "data", "tokenizer/tokenizer_config.json")
    assert "7 tokens, the manifest says" in train()


EDITS = {
    "examples -5": ("files", "examples", -5),
    "examples 10**30": ("files", "examples", 10**30),
    "examples x": ("files", "examples", "x"),
    "tokens null": ("files", "tokens", None),
    "no settings": ("identity", "settings", None),
    "settings 7": ("identity", "settings", 7),
    "tokenizer 7": ("identity", "tokenizer", 7),
    "splits 7": ("splits", "train", 7),
    "no validation": ("splits", "validation", None),
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_manifests_are_damage(name, train, tmp_path):
    part, key, value = EDITS[name]
    file = tmp_path / "data" / "manifest.json"
    manifest = json.loads(file.read_bytes())
    for entry in manifest["files"] if part == "files" else [manifest[part]]:
        if part != "files" or "split" in entry:
            entry[key] = value
    file.write_text(json.dumps(manifest))
    assert "manifest.json is damaged" in train()


NO_HASHING = """
from electrify.tokens import store
real = store.describe_damage
def describe_damage(folder, entry):
    assert "split" not in entry, "hashed again"
    return real(folder, entry)
store.describe_damage = describe_damage
"""


def test_verified_shards_are_not_hashed_again_unless_they_changed(train, tmp_path):
    train(code=0)
    assert (tmp_path / "run" / "verified.json").is_file()
    train(code=0, before=NO_HASHING)
    shard = min((tmp_path / "data").glob("train-*"))
    flip(shard)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000002", ignore_errors=True)
    assert shard.name in train("--run.eval-every", 1)
