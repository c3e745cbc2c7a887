"""Shards round-trip, and damage is detected."""

import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from electrify.errors import DamagedError
from electrify.storage.verified import Verified, stamp_of
from electrify.tokens import store
from electrify.tokens.examples import Example
from electrify.tokens.store import Shard, Shards, map_arrays, shard_entry, to_arrays, write_shard

EXAMPLES = [Example([101, 5, 102], []), Example([101, 7, 8, 102, 9, 102], [4]), Example([1], [])]


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Path, dict]:
    path = tmp_path / "s.safetensors"
    return path, written(path, EXAMPLES, 1000)


def written(path: Path, examples: list[Example], vocab_size: int) -> dict[str, int]:
    arrays = to_arrays(examples, vocab_size)
    write_shard(path, arrays)
    return shard_entry(arrays)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 100_000), min_size=1, max_size=9), st.booleans()),
        max_size=20,
    ),
    st.sampled_from([60_000, 100_001]),
)
def test_round_trip(tmp_path_factory, content, vocab_size):
    examples = [
        Example([i % vocab_size for i in ids], [len(ids) // 2] if two else [])
        for ids, two in content
    ]
    path = tmp_path_factory.mktemp("shard") / "s.safetensors"
    opened = Shard(path, written(path, examples, vocab_size))
    assert len(opened) == len(examples)
    for example, stored in zip(examples, map(opened.__getitem__, range(len(opened))), strict=True):
        assert stored.ids.tolist() == example.ids
        assert stored.starts.tolist() == example.starts


def test_token_types_follow_the_segments(shard):
    opened = Shard(*shard)
    assert opened[1].token_types().tolist() == [0, 0, 0, 0, 1, 1]
    assert opened[0].token_types().tolist() == [0, 0, 0]


def test_mapped_arrays_equal_those_of_safetensors_and_small_vocabularies_take_two_bytes(shard):
    path, _ = shard
    mapped, loaded = map_arrays(path), load_file(path)
    assert mapped.keys() == loaded.keys()
    for name in mapped:
        assert mapped[name].dtype == loaded[name].dtype
        np.testing.assert_array_equal(mapped[name], loaded[name])
    assert mapped["tokens"].dtype == np.uint16


def test_a_shard_is_memory_mapped(shard):
    assert isinstance(Shard(*shard)[1].ids.base, np.memmap)


def test_every_flipped_bit_of_header_and_index_is_seen_when_opened(shard):
    path, entry = shard
    intact = path.read_bytes()
    header = json.loads(intact[8 : 8 + int.from_bytes(intact[:8], "little")])
    data = 8 + int.from_bytes(intact[:8], "little")
    spans = {name: header[name]["data_offsets"] for name in header if name != "__metadata__"}
    tokens = range(data + spans["tokens"][0], data + spans["tokens"][1])
    metadata = intact.index(b"__metadata__"), intact.index(b"}", intact.index(b"__metadata__"))
    opened = []
    for index in range(len(intact)):
        if index in tokens or metadata[0] <= index <= metadata[1] or intact[index] == ord(" "):
            continue
        for bit in (0, 3, 7):
            broken = bytearray(intact)
            broken[index] ^= 1 << bit
            path.write_bytes(broken)
            try:
                Shard(path, entry)
            except DamagedError:
                continue
            opened.append((index, bit, broken[:data]))
    assert opened == []


@pytest.mark.parametrize("size", [0, 5, 40, 100, -1])
def test_a_truncated_shard_is_refused(shard, size):
    path, entry = shard
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedError):
        Shard(path, entry)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [10**12]},
        {"data_offsets": [0, 10**12]},
        {"data_offsets": [-8, 0]},
        {"dtype": "F64"},
        {"shape": [1, 2, 3]},
    ],
)
def test_a_lying_header_is_refused_before_anything_is_allocated(tmp_path, change):
    data = save({"tokens": np.zeros(4, np.uint16)})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["tokens"] |= change
    text = json.dumps(header).encode()
    path = tmp_path / "lying.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(DamagedError):
        map_arrays(path)


def test_a_shard_is_hashed_once_by_several_threads(shards, monkeypatch):
    hashed = []
    original = store.describe_damage
    monkeypatch.setattr(
        store, "describe_damage", lambda *a: hashed.append(a[1]["name"]) or original(*a)
    )
    examples = Shards(shards, "train")
    examples.verify_ahead()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(examples.__getitem__, range(len(examples))))
    assert sorted(hashed) == sorted(path.name for path in shards.glob("train-*"))


def test_damage_is_found_when_the_first_example_of_a_shard_is_read(shards, tmp_path):
    folder = tmp_path / "shards"
    shutil.copytree(shards, folder)
    last = sorted(folder.glob("train-*"))[-1]
    data = bytearray(last.read_bytes())
    data[-1] ^= 1
    last.write_bytes(data)
    examples = Shards(folder, "train")
    for _ in range(2):
        with pytest.raises(DamagedError, match=last.name):
            examples[len(examples) - 1]


def test_shards_are_full_if_no_example_is_shorter_than_the_maximum(shards):
    examples = Shards(shards, "train")
    assert not examples.full
    for entry in examples._entries:
        entry["tokens"] = entry["examples"] * examples.length
    assert examples.full


def test_a_pickled_copy_opens_the_files_itself(shards):
    examples = Shards(shards, "train")
    assert examples[3].ids.tolist() == pickle.loads(pickle.dumps(examples))[3].ids.tolist()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_lock_that_was_held_at_the_fork(shards):
    examples = Shards(shards, "train")
    with examples._locks[0]:  # as verify_ahead does while it hashes
        child = get_context("fork").Process(target=examples.__getitem__, args=(0,))
        child.start()
    child.join(timeout=20)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0


@pytest.mark.parametrize("content", ["", "{}", "[[1, 2]]", '[["a", "b", 1, 2, "x"]]', "7"])
def test_an_invalid_list_of_verified_files_is_ignored(tmp_path, content):
    (tmp_path / "v.json").write_text(content)
    assert not Verified(tmp_path / "v.json")._stamps


def test_verified_files_are_remembered_until_they_change(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"a")
    verified = Verified()
    verified.add(stamp_of(file, "x"))
    verified.keep(tmp_path / "v.json")
    assert stamp_of(file, "x") in Verified(tmp_path / "v.json")
    assert stamp_of(file, "y") not in Verified(tmp_path / "v.json")
    os.utime(file, ns=(1, 1))
    assert stamp_of(file, "x") not in Verified(tmp_path / "v.json")


def test_a_file_whose_time_was_restored_is_verified_again(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"a")
    verified, times = Verified(), file.stat()
    verified.add(stamp_of(file, "x"))
    file.write_bytes(b"b")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    assert stamp_of(file, "x") not in verified
