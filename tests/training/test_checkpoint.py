"""Checkpoints are complete or absent, the newest intact one is used, and pruning keeps enough."""

import errno
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from electrify.errors import DamagedError
from electrify.storage.commit import read_json, write_json
from electrify.training import checkpoint
from electrify.training.checkpoint import Policy, SaveError, Snapshot, Writer

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def taken(step: int) -> Snapshot:
    values = torch.arange(100.0) + step
    return Snapshot(step, {"w": values}, {"w|exp_avg": values / 2}, {"step": step, "sums": {}})


def silent(message: str) -> None:
    """Ignore a warning."""


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    folder = checkpoint.write(tmp_path, taken(7))
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    found = checkpoint.newest(tmp_path, silent)
    assert found is not None
    loaded = checkpoint.read_checkpoint(found)
    assert loaded.step == 7
    assert torch.equal(loaded.model["w"], taken(7).model["w"])
    assert torch.equal(loaded.optimizer["w|exp_avg"], taken(7).optimizer["w|exp_avg"])
    assert loaded.state == taken(7).state


def test_the_same_state_gives_the_same_bytes(tmp_path):
    one, two = (checkpoint.write(tmp_path / name, taken(3)) for name in "ab")
    for name in FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_found_and_the_one_before_is_used(name, harm, tmp_path):
    checkpoint.write(tmp_path, taken(1))
    newest = checkpoint.write(tmp_path, taken(2))
    harm(newest / name)
    warnings: list[str] = []
    found = checkpoint.newest(tmp_path, warnings.append)
    assert found is not None
    assert found.step == 1
    assert "step-00000002" in warnings[0]
    assert name in warnings[0] or name == "manifest.json"  # a flip there can change any name
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(DamagedError) as error:
        checkpoint.newest(tmp_path, silent)
    assert "step-00000002" in error.value.got
    assert error.value.exit_code == 3


def test_every_single_byte_of_a_checkpoint_is_guarded(tmp_path):
    folder = checkpoint.write(tmp_path, taken(1))
    for name in FILES:
        intact = (folder / name).read_bytes()
        for position in range(0, len(intact), 7):
            data = bytearray(intact)
            data[position] ^= 0x10
            (folder / name).write_bytes(bytes(data))
            if name == "manifest.json" and _same_files(intact, bytes(data)):
                continue
            assert checkpoint.faults(folder), f"{name} byte {position}"
        (folder / name).write_bytes(intact)
    assert checkpoint.faults(folder) == []


def _same_files(before: bytes, after: bytes) -> bool:
    """Return whether a change of the manifest leaves its entries of files as they were."""
    import json

    try:
        one, two = json.loads(before), json.loads(after)
    except ValueError:
        return False
    return one["files"] == two.get("files")


@pytest.mark.parametrize("step", ["7", None, 7.0, [7], True, {}])
def test_a_step_that_is_no_integer_is_damage(step, tmp_path):
    folder = checkpoint.write(tmp_path, taken(7))
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", {**manifest, "identity": {"step": step, "run": ""}})
    assert checkpoint.faults(folder) == [f"manifest.json: this is the checkpoint of step {step!r}"]


def test_no_checkpoint_at_all_is_a_fresh_start(tmp_path):
    assert checkpoint.newest(tmp_path / "none", silent) is None


def test_pruning_keeps_the_last_the_pinned_and_the_last_whole(tmp_path):
    for step in range(1, 7):
        checkpoint.write(tmp_path, taken(step), keep=step == 2)
    flip(tmp_path / "step-00000006" / "model.safetensors")
    flip(tmp_path / "step-00000005" / "model.safetensors")
    checkpoint.prune(tmp_path, Policy(keep_last=2, steps_kept=frozenset([1])))
    assert [c.step for c in checkpoint.stored(tmp_path)] == [6, 5, 4, 2, 1]


def test_pruning_removes_nothing_if_nothing_is_whole(tmp_path):
    for step in (1, 2, 3):
        flip(checkpoint.write(tmp_path, taken(step)) / "model.safetensors")
    assert checkpoint.prune(tmp_path, Policy(keep_last=1)) == []


def test_what_a_killed_process_left_is_cleared_and_nothing_else(tmp_path):
    checkpoint.write(tmp_path, taken(1))
    half_written = tmp_path / ".writing-step-00000002"
    half_written.mkdir()
    half_removed = tmp_path / "step-00000000"
    half_removed.mkdir()
    (half_removed / "state.json").write_text("{}")
    (tmp_path / "mine.txt").write_text("a note")
    (tmp_path / "step-00000009").mkdir()
    (tmp_path / "step-00000009/mine.txt").write_text("a note")
    checkpoint.clear_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.txt",
        "step-00000001",
        "step-00000009",
    ]


def test_the_writer_writes_prunes_and_notifies(tmp_path):
    committed: list[str] = []
    writer = Writer(tmp_path, Policy(keep_last=1), lambda path: committed.append(path.name))
    for step in (1, 2, 3):
        writer.save(lambda step=step: taken(step))
    writer.close()
    assert committed == ["step-00000001", "step-00000002", "step-00000003"]
    assert [c.step for c in checkpoint.stored(tmp_path)] == [3]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", [0, 1, 2])
def test_a_failing_disk_is_reported_at_the_next_call_and_the_old_checkpoint_is_intact(
    code, call, tmp_path, monkeypatch
):
    writer = Writer(tmp_path, Policy())
    writer.save(lambda: taken(1))
    writer.wait()
    committed_file, calls = checkpoint.committed_file, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) > call:
            raise OSError(code, "injected")
        return committed_file(*arguments)

    monkeypatch.setattr(checkpoint, "committed_file", failing)
    writer.save(lambda: taken(2))
    with pytest.raises(SaveError, match="injected"):
        writer.wait()
    found = checkpoint.newest(tmp_path, silent)
    assert found is not None
    assert found.step == 1
    monkeypatch.undo()
    writer.save(lambda: taken(2))
    writer.close()
    assert checkpoint.newest(tmp_path, silent).step == 2
    assert not list(tmp_path.glob(".writing*"))


def test_a_full_disk_reported_by_safetensors_is_a_save_error(tmp_path, monkeypatch):
    def full(tensors, path):
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    writer = Writer(tmp_path, Policy())
    monkeypatch.setattr(checkpoint, "save_file", full)
    writer.save(lambda: taken(1))
    with pytest.raises(SaveError, match="No space left"):
        writer.wait()


def test_pruning_leaves_the_checkpoints_of_other_runs_and_keeps_enough_of_its_own(tmp_path):
    for step in (1, 2, 3):
        checkpoint.write(tmp_path, taken(step), run="mine")
    for step in (70, 80, 90):
        checkpoint.write(tmp_path, taken(step), run="theirs")
    damaged = checkpoint.write(tmp_path, taken(4), run="mine")
    (damaged / "manifest.json").write_text("{")
    (tmp_path / "step-00000000").mkdir()  # nobody can say whose
    (tmp_path / "step-00000000/notes.txt").write_text("a note")
    removed = checkpoint.prune(tmp_path, Policy(keep_last=1), run=lambda step: "mine")
    assert [path.name for path in removed] == ["step-00000001", "step-00000002"][::-1]
    assert [c.step for c in checkpoint.stored(tmp_path)] == [90, 80, 70, 4, 3, 0]
    assert [c.step for c in checkpoint.stored(tmp_path, lambda step: "mine")] == [4, 3, 0]


def test_pruning_removes_nothing_behind_a_link(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for step in (1, 2, 3):
        checkpoint.write(run, taken(step))
    (run / "step-00000001").rename(elsewhere)
    (run / "step-00000001").symlink_to(elsewhere)
    checkpoint.prune(run, Policy(keep_last=1))
    assert [c.step for c in checkpoint.stored(run)] == [3, 1]
    assert checkpoint.faults(run / "step-00000001") == []


def test_a_save_renames_the_checkpoint_of_another_run(tmp_path):
    for number in (1, 2):
        checkpoint.write(tmp_path, taken(5), run=f"run {number}")
    assert checkpoint.faults(tmp_path / "step-00000005", "run 2") == []
    (tmp_path / "step-00000005.other-1").rename(tmp_path / "back")
    (tmp_path / "back").rename(tmp_path / "step-00000006")
    manifest = (tmp_path / "step-00000006/manifest.json").read_text()
    assert '"run": "run 1"' in manifest


@pytest.mark.parametrize("name", ["committed_file", "write_json"])
def test_a_failed_save_leaves_nothing_on_a_full_disk(name, tmp_path, monkeypatch):
    calls = []

    def full(*arguments):
        calls.append(arguments)
        if name == "write_json" or len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return committed_file(*arguments)

    committed_file = checkpoint.committed_file
    checkpoint.write(tmp_path, taken(1))
    monkeypatch.setattr(checkpoint, name, full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.write(tmp_path, taken(2))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
