"""Trackers mirror the journal, and cannot stop a run."""

import math
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from tests.training.test_journal import loss_at

from electrify.errors import UserError
from electrify.training import tracking
from electrify.training.tracking import tracker


def log_steps(name, run, step, steps):
    with tracker(name, run, step, warn=pytest.fail) as track:
        for number in steps:
            track(number, "train", {"loss": loss_at(number), "norm": math.nan, "note": "x"})
            track(number, "validation", {"loss": loss_at(number) + 1})


def test_tensorboard_resumes_from_the_step_of_the_run(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log_steps("tensorboard", tmp_path, 0, [1, 2, 3, 4])
    log_steps("tensorboard", tmp_path, 2, [3, 4, 5])
    seen = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    seen.Reload()
    assert sorted(seen.Tags()["scalars"]) == ["train/loss", "validation/loss"]
    scalars = seen.Scalars("train/loss")
    assert [scalar.step for scalar in scalars] == [1, 2, 3, 4, 5]
    assert scalars[0].value == pytest.approx(loss_at(1), rel=1e-6)


TRACKIO = """
import sys
from pathlib import Path
from electrify.training.tracking import tracker, tracker_id
run = Path(sys.argv[1])
for resumed, step in ((0, 1), (1, 2)):
    with tracker("trackio", run, resumed, warn=sys.exit) as track:
        track(step, "train", {"loss": step / 2})
from trackio.sqlite_storage import SQLiteStorage
assert SQLiteStorage.get_runs("electrify") == [tracker_id(run)]
for row in SQLiteStorage.get_logs("electrify", tracker_id(run)):
    print(row["step"], row["train/loss"])
"""


def test_trackio_resumes_the_same_run_on_this_machine(tmp_path):
    pytest.importorskip("trackio")
    done = subprocess.run(
        [sys.executable, "-c", TRACKIO, str(tmp_path / "run")],
        env=os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    # stdout is for the command itself: what trackio prints goes to stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("* Run finished")]
    assert lines == ["1 0.5", "2 1.0"], done.stderr
    assert (tmp_path / "trackio/electrify.db").exists()


@pytest.mark.slow  # W&B starts a separate process
def test_wandb_resumes_under_the_same_id_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    log_steps("wandb", tmp_path, 0, [1, 2])
    log_steps("wandb", tmp_path, 2, [3])
    name = tracking.tracker_id(tmp_path)
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert {path.name for path in files} == {f"run-{name}.wandb"}


def test_a_run_keeps_its_tracker_id_when_it_is_moved(tmp_path):
    for folder in ("a/run", "b/run"):
        (tmp_path / folder).mkdir(parents=True)
    first, other = (tracking.tracker_id(tmp_path / folder) for folder in ("a/run", "b/run"))
    assert first != other
    (tmp_path / "a/run").rename(tmp_path / "moved")
    assert tracking.tracker_id(tmp_path / "moved") == first


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_missing_package_is_named(tmp_path, name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with (
        pytest.raises(UserError, match=rf"{name} is not installed[\s\S]*electrify\[track\]"),
        tracker(name, tmp_path, 0, warn=pytest.fail),
    ):
        pass


def test_an_unknown_tracker_is_refused(tmp_path):
    with pytest.raises(UserError, match="tensorboard, trackio, wandb"):
        tracker("clearml", tmp_path, 0, warn=pytest.fail)


def test_a_tracker_that_fails_is_no_longer_used_and_the_run_continues(tmp_path, monkeypatch):
    tracked, warnings = [], []

    @contextmanager
    def failing(run, step):
        def track(step, split, values):
            tracked.append(step)
            if step == 2:
                raise OSError("disk full")

        yield track

    monkeypatch.setitem(tracking.TRACKERS, "failing", failing)
    with tracker("failing", tmp_path, 0, warnings.append) as track:
        for step in (1, 2, 3):
            track(step, "train", {"loss": 1.0})
    assert tracked == [1, 2]
    assert len(warnings) == 1
    assert "disk full" in warnings[0]
