"""Uploads arrive complete, never stop training, and what was not uploaded is always reported."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry, register_implementation

from electrify.errors import UserError
from electrify.storage.build import committed_file
from electrify.storage.commit import write_json
from electrify.training import remote as remotes
from electrify.training.checkpoint import faults
from electrify.training.remote import check_target, mask
from electrify.training.upload import Uploads

SOON = 30.0  # seconds; a test that passes never waits so long


def commit(run: Path, step: int, content: str = "weights") -> Path:
    """Write a small checkpoint as training does."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    files = [
        committed_file(folder, name, lambda path: path.write_text(f"{content} {step}"))
        for name in ("model.safetensors", "state.json")
    ]
    manifest = {"kind": "checkpoint", "identity": {"step": step}, "files": files}
    write_json(folder / "manifest.json", manifest)
    return folder


class Faulty(MemoryFileSystem):
    """A file system in memory whose `put_file` fails as a test asks it to."""

    protocol = "faulty"
    store: dict[str, Any] = {}  # noqa: RUF012 - as in the class above: one store for all
    pseudo_dirs = [""]  # noqa: RUF012
    calls: list[str] = []  # noqa: RUF012
    trouble: Any = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("faulty://").strip("/")

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        Faulty.calls.append(rpath)
        if Faulty.trouble is None or not Faulty.trouble(self, lpath, rpath):
            self.pipe_file(rpath, Path(lpath).read_bytes())


@pytest.fixture
def remote():
    register_implementation("faulty", Faulty, clobber=True)
    Faulty.store.clear()
    Faulty.calls.clear()
    Faulty.pseudo_dirs[:] = [""]
    Faulty.trouble = None
    return Faulty()


@pytest.fixture
def messages():
    return []


@pytest.fixture
def gate():
    """Return an event that is always set at the end of a test, so that no thread keeps waiting."""
    event = threading.Event()
    yield event
    event.set()


def names_at(remote: MemoryFileSystem, folder: str) -> list[str]:
    return sorted(Path(name).name for name in remote.ls(folder, detail=False))


def test_a_checkpoint_arrives_complete_and_no_copy_stays_behind(tmp_path):
    run, target = tmp_path / "run", tmp_path / "target"
    uploads = Uploads(f"file://{target}")
    uploads.resume(run)
    uploads.committed(commit(run, 1000))
    assert uploads.close(SOON) == []
    assert faults(target / "step-00001000") == []
    assert [path.name for path in (run / "uploads").iterdir()] == ["state.json"]


def test_memory(tmp_path):
    uploads = Uploads("memory://test-upload")
    uploads.committed(commit(tmp_path, 5))
    assert uploads.close(SOON) == []
    memory = fsspec.filesystem("memory")
    assert memory.cat("/test-upload/step-00000005/model.safetensors") == b"weights 5"
    memory.rm("/test-upload", recursive=True)


def test_the_manifest_is_last(tmp_path, remote):
    uploads = Uploads("faulty://runs")
    uploads.committed(commit(tmp_path, 1))
    assert uploads.close(SOON) == []
    assert [Path(name).name for name in Faulty.calls] == [
        "model.safetensors",
        "state.json",
        "manifest.json",
    ]


def test_a_checkpoint_pruned_while_it_waits_is_uploaded(tmp_path, gate):
    seen = []

    def take(folder: Path) -> None:
        gate.wait(SOON)
        seen.append((folder.name, (folder / "model.safetensors").read_text()))

    uploads = Uploads(take)
    for step in (1, 2):
        folder = commit(tmp_path, step)
        uploads.committed(folder)
        shutil.rmtree(folder)
    gate.set()
    assert uploads.close(SOON) == []
    assert seen == [("step-00000001", "weights 1"), ("step-00000002", "weights 2")]


def test_copies_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    uploads = Uploads(f"file://{tmp_path}/target")
    uploads.committed(commit(tmp_path, 1))
    assert uploads.close(SOON) == []
    assert faults(tmp_path / "target/step-00000001") == []


def test_the_queue_is_bounded_and_names_what_it_drops(tmp_path, gate, messages):
    started = threading.Event()

    def stuck(folder: Path) -> None:
        started.set()
        gate.wait(SOON)

    uploads = Uploads(stuck, messages.append, queue=2)
    uploads.committed(commit(tmp_path, 1))
    assert started.wait(SOON)
    for step in range(2, 8):
        uploads.committed(commit(tmp_path, step))  # would hang here if it waited for an upload
    assert uploads.pending() == ["step-00000001", "step-00000006", "step-00000007"]
    assert len(list((tmp_path / "uploads").glob("step-*"))) == 3
    gate.set()
    missing = uploads.close(SOON)
    assert [line.split(":")[0] for line in missing] == [f"step-{n:08d}" for n in (2, 3, 4, 5)]
    assert len(messages) == 4
    assert "step-00000002" in messages[0]


def test_a_server_that_is_down_is_tried_five_times_with_growing_waits(tmp_path, remote, messages):
    def down(*_: Any) -> None:
        raise ConnectionError("cannot reach https://ann:geheim@host/x?token=geheim")

    Faulty.trouble, waits = down, []
    url = "faulty://ann:geheim@host/runs?key=geheim"
    uploads = Uploads(url, messages.append, sleep=waits.append)
    uploads.committed(commit(tmp_path, 1))
    missing = uploads.close(SOON)
    assert len(Faulty.calls) == 5
    assert len(waits) == 4
    for number, seconds in enumerate(waits):
        assert 2.5 * 2**number <= seconds <= 7.5 * 2**number
    assert len(missing) == 1
    assert "step-00000001" in missing[0]
    assert "cannot reach" in missing[0]
    assert "geheim" not in " ".join([*missing, *messages])
    assert (tmp_path / "uploads/step-00000001").is_dir()  # for the next start


def test_a_few_errors_of_the_server_do_no_harm(tmp_path, remote, messages):
    failures = iter(["500", "503"])

    def sometimes(*_: Any) -> None:
        for code in failures:
            raise OSError(f"{code} Internal Server Error")

    Faulty.trouble = sometimes
    uploads = Uploads("faulty://runs", messages.append, sleep=lambda seconds: None)
    uploads.committed(commit(tmp_path, 1))
    assert uploads.close(SOON) == []
    assert len(messages) == 2
    assert names_at(remote, "/runs/step-00000001")[0] == "manifest.json"


def test_a_partial_write_is_noticed_and_sent_again(tmp_path, remote, messages):
    half = iter([True])

    def partial(self: Faulty, lpath: str, rpath: str) -> bool:
        if not next(half, False):
            return False
        content = Path(lpath).read_bytes()
        self.pipe_file(rpath, content[: len(content) // 2])
        return True

    Faulty.trouble = partial
    uploads = Uploads("faulty://runs", messages.append, sleep=lambda seconds: None)
    uploads.committed(commit(tmp_path, 1))
    assert uploads.close(SOON) == []
    assert "model.safetensors: 4 of 9 bytes arrived" in messages[0]
    assert remote.cat("/runs/step-00000001/model.safetensors") == b"weights 1"


def test_what_stays_partial_never_gets_a_manifest(tmp_path, remote, messages):
    def partial(self: Faulty, lpath: str, rpath: str) -> bool:
        self.pipe_file(rpath, b"")
        return True

    Faulty.trouble = partial
    uploads = Uploads("faulty://runs", messages.append, sleep=lambda seconds: None)
    uploads.committed(commit(tmp_path, 1))
    assert "0 of 9 bytes arrived" in uploads.close(SOON)[0]
    assert names_at(remote, "/runs/step-00000001") == ["model.safetensors"]


def test_a_slow_server_does_not_delay_the_end(tmp_path, remote, gate):
    started = threading.Event()

    def slow(*_: Any) -> None:
        started.set()
        gate.wait(SOON)

    Faulty.trouble = slow
    uploads = Uploads("faulty://runs")
    uploads.committed(commit(tmp_path, 1))
    assert started.wait(SOON)
    uploads.committed(commit(tmp_path, 2))
    first, second = uploads.close(0.0)
    assert first.startswith("step-00000001: uploading")
    assert second.startswith("step-00000002: waiting")


def test_a_function_is_retried_and_gets_the_folder(tmp_path, messages):
    calls = []

    def take(folder: Path) -> None:
        calls.append(folder.name)
        assert faults(folder) == []
        if len(calls) < 3:
            raise RuntimeError("not yet")

    uploads = Uploads(take, messages.append, sleep=lambda seconds: None)
    uploads.committed(commit(tmp_path, 7))
    assert uploads.close(SOON) == []
    assert calls == ["step-00000007"] * 3


def test_the_same_checkpoint_is_uploaded_once_and_a_changed_one_replaces_it(tmp_path, remote):
    folder = commit(tmp_path, 1)
    uploads = Uploads("faulty://runs")
    uploads.committed(folder)
    uploads.committed(folder)
    assert uploads.close(SOON) == []
    assert len(Faulty.calls) == 3

    again = Uploads("faulty://runs")
    again.resume(tmp_path)
    assert again.close(SOON) == []
    assert len(Faulty.calls) == 3

    shutil.rmtree(folder)
    manifest_exists = []
    Faulty.trouble = lambda self, lpath, rpath: manifest_exists.append(
        self.exists("/runs/step-00000001/manifest.json")
    )
    changed = Uploads("faulty://runs")
    changed.committed(commit(tmp_path, 1, "other weights"))
    assert changed.close(SOON) == []
    assert remote.cat("/runs/step-00000001/model.safetensors") == b"other weights 1"
    assert manifest_exists == [False, False, False]  # new files are never under the old manifest


def test_a_checkpoint_changed_during_its_upload_is_uploaded_again(tmp_path, gate):
    started, seen = threading.Event(), []

    def take(folder: Path) -> None:
        seen.append((folder / "model.safetensors").read_text())
        started.set()
        gate.wait(SOON)

    folder = commit(tmp_path, 1)
    uploads = Uploads(take)
    uploads.committed(folder)
    assert started.wait(SOON)
    shutil.rmtree(folder)
    uploads.committed(commit(tmp_path, 1, "other weights"))
    gate.set()
    assert uploads.close(SOON) == []
    assert seen == ["weights 1", "other weights 1"]


def test_a_damaged_checkpoint_is_reported_and_raises_no_error(tmp_path, messages):
    seen = []
    uploads = Uploads(seen.append, messages.append)
    uploads.committed(tmp_path / "checkpoints/step-00000001")  # does not exist
    damaged = commit(tmp_path, 2)
    (damaged / "model.safetensors").write_text("weights 3")
    uploads.committed(damaged)
    first, second = uploads.close(SOON)
    assert "step-00000001: FileNotFoundError" in first
    assert "step-00000002: the local copy is damaged: model.safetensors: SHA-256" in second
    assert seen == []


def test_the_next_start_retries_what_failed_and_what_was_given_up(tmp_path, remote, messages):
    def down(*_: Any) -> None:
        raise OSError("down")

    Faulty.trouble = down
    uploads = Uploads("faulty://runs", messages.append, queue=1, sleep=lambda seconds: None)
    for step in (1, 2, 3):
        uploads.committed(commit(tmp_path, step))
        while uploads.pending():
            time.sleep(0.01)
    shutil.rmtree(tmp_path / "checkpoints/step-00000001")
    missing = uploads.close(SOON)
    assert [line.split(":")[0] for line in missing] == [f"step-{n:08d}" for n in (1, 2, 3)]

    Faulty.trouble = None
    again = Uploads("faulty://runs", messages.append)
    again.resume(tmp_path)
    # the first one exists in no folder any more, but is still reported
    assert [line.split(":")[0] for line in again.close(SOON)] == ["step-00000001"]
    assert remote.glob("/runs/*/manifest.json") == [
        "/runs/step-00000002/manifest.json",
        "/runs/step-00000003/manifest.json",
    ]
    assert list((tmp_path / "uploads").glob("step-*")) == []


def test_another_target_gets_the_newest_again(tmp_path):
    for target in ("one", "two"):
        uploads = Uploads(f"file://{tmp_path}/{target}")
        if target == "one":
            uploads.committed(commit(tmp_path, 1))
        else:
            uploads.resume(tmp_path)
        assert uploads.close(SOON) == []
        assert faults(tmp_path / target / "step-00000001") == []


def test_a_kill_between_commit_and_staging_loses_nothing(tmp_path):
    commit(tmp_path, 1)
    half_staged = tmp_path / "uploads/.staging-step-00000001"
    half_staged.mkdir(parents=True)
    half_removed = tmp_path / "uploads/step-00000009"
    half_removed.mkdir()
    (half_removed / "state.json").touch()
    uploads = Uploads(f"file://{tmp_path}/target")
    uploads.resume(tmp_path)
    assert uploads.close(SOON) == []
    assert faults(tmp_path / "target/step-00000001") == []
    assert [path.name for path in (tmp_path / "uploads").iterdir()] == ["state.json"]


KILLED = """
import sys, threading
from pathlib import Path
from electrify.training.upload import Uploads

started = threading.Event()

def stuck(folder):
    started.set()
    threading.Event().wait()

uploads = Uploads(stuck)
for folder in sorted(Path(sys.argv[1]).glob("checkpoints/*")):
    uploads.committed(folder)
started.wait()
print("ready", flush=True)
threading.Event().wait()
"""


def test_a_killed_process_leaves_its_uploads_to_the_next(tmp_path):
    folders = [commit(tmp_path, step) for step in (1, 2)]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert ready == "ready\n"
    for folder in folders:  # pruned before the next start
        shutil.rmtree(folder)
    uploads = Uploads(f"file://{tmp_path}/target")
    uploads.resume(tmp_path)
    assert uploads.close(SOON) == []
    for folder in folders:
        assert faults(tmp_path / "target" / folder.name) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://bucket/runs", r'pip install "electrify\[s3\]"'),
        ("gs://bucket/runs", "pip install gcsfs"),
        ("nowhere://ann:geheim@host/runs", "Protocol not known"),
        ("s3:/bucket", "must be the URL of a folder"),
        ("file://", "must be the URL of a folder"),
        ("file:///", "must be the URL of a folder"),
        ("simplecache::file:///runs", "must be the URL of a folder"),
    ],
)
def test_the_url_is_checked_at_the_start(url, message, monkeypatch):
    for protocol, package in (("s3", "s3fs"), ("gs", "gcsfs")):  # as if neither were installed
        monkeypatch.setitem(sys.modules, package, None)
        monkeypatch.delitem(_registry, protocol, raising=False)
    with pytest.raises(UserError, match=message) as caught:
        Uploads(url)
    assert "geheim" not in str(caught.value)


def test_the_hub_is_a_target():
    system, path = remotes.open_remote("hf://ann/encoder/runs/one/")
    assert type(system).__name__ == "HfFileSystem"
    assert path == "ann/encoder/runs/one"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("s3://key:a/b+c@bucket/x", "s3://***@bucket/x"),
        ("ftp://ann:a@b@host/x", "ftp://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("'https://host/x?sig=1&k=2' failed", "'https://host/x?***' failed"),
        ("hf://ann/encoder@main/x", "hf://ann/encoder@main/x"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_mask(text, masked):
    assert mask(text) == masked


def test_the_state_on_disk_says_what_was_uploaded_where(tmp_path):
    uploads = Uploads(f"file://{tmp_path}/target")
    uploads.committed(commit(tmp_path, 1))
    uploads.close(SOON)
    state = json.loads((tmp_path / "uploads/state.json").read_text())
    assert state["target"] == f"file://{tmp_path}/target"
    assert list(state["uploaded"]) == ["step-00000001"]
    assert state["not_uploaded"] == {}


@pytest.mark.parametrize("state", ["[]", "{", '{"target": "file://TARGET"}', "{}"])
def test_a_damaged_state_is_replaced(tmp_path, messages, state):
    (tmp_path / "uploads").mkdir()
    target = f"{tmp_path}/target"
    (tmp_path / "uploads/state.json").write_text(state.replace("TARGET", target))
    commit(tmp_path, 1)
    uploads = Uploads(f"file://{target}", report=messages.append)
    uploads.resume(tmp_path)
    assert uploads.close(SOON) == []
    assert "state.json is damaged and will be replaced" in messages[0]
    state = json.loads((tmp_path / "uploads/state.json").read_text())
    assert list(state["uploaded"]) == ["step-00000001"]


def commit_of(run: Path, step: int, fingerprint: str) -> Path:
    """Write a small checkpoint of the run with a fingerprint."""
    folder = commit(run, step)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["identity"]["run"] = fingerprint
    write_json(folder / "manifest.json", manifest)
    return folder


def test_two_runs_do_not_share_a_target(tmp_path, messages):
    url = f"file://{tmp_path}/my [target]"
    check_target(url, tmp_path / "a", lambda step: "first")  # does not exist yet
    first = Uploads(url)
    first.committed(commit_of(tmp_path / "a", 10, "first"))
    assert first.close(SOON) == []
    check_target(url, tmp_path / "a", lambda step: "first")
    with pytest.raises(UserError, match="--upload has checkpoints of another run"):
        check_target(url, tmp_path / "b", lambda step: "second")
    second = Uploads(url, messages.append)  # started before the first one had uploaded anything
    second.committed(commit_of(tmp_path / "b", 10, "second"))
    (missing,) = second.close(SOON)
    assert "another run" in missing
    assert len(messages) == 1  # without any retry
    manifest = json.loads((tmp_path / "my [target]/step-00000010/manifest.json").read_text())
    assert manifest["identity"]["run"] == "first"


def test_checkpoints_of_another_run_are_not_uploaded(tmp_path):
    commit_of(tmp_path, 1, "mine")
    commit_of(tmp_path, 9, "theirs")
    uploads = Uploads(f"file://{tmp_path}/target")
    uploads.resume(tmp_path, lambda step: "mine")
    assert uploads.close(SOON) == []
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("name", ["run", "run/checkpoints", "run/uploads", "link"])
def test_the_run_itself_is_not_a_target(name, tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "link").symlink_to("run/checkpoints")
    with pytest.raises(UserError, match="--upload must not be a folder of the run"):
        check_target(f"file://{tmp_path / name}", tmp_path / "run", lambda step: "mine")


def test_a_server_that_does_not_answer_does_not_delay_the_start(
    remote, gate, monkeypatch, tmp_path
):
    monkeypatch.setattr(remotes, "SECONDS_TO_CHECK", 0.1)
    monkeypatch.setattr(Faulty, "glob", lambda *_: gate.wait(SOON))
    begin = time.monotonic()
    check_target("faulty://runs", tmp_path, lambda step: "mine")
    assert time.monotonic() - begin < SOON / 2
