"""Log a run to experiment trackers, in addition to the journal, which has all metrics.

RUN/tracker-id       the name under which trackers know the run; present if one was used
"""

import math
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from electrify.errors import UserError
from electrify.storage.commit import committed
from electrify.training.journal import METRICS_FILE, JournalRecord
from electrify.training.observer import Observer

TRACKER_ID = "tracker-id"
PROJECT = "electrify"

Track = Callable[[int, str, JournalRecord], None]
"""Logs values, given the step, the split ("train", "validation", …) and the values."""


def tracker(
    name: str, run: Path, step: int, warn: Callable[[str], None]
) -> AbstractContextManager[Track]:
    """Return the tracker with a name, opened for a run that starts at `step`."""
    if name not in TRACKERS:
        raise UserError(
            "unknown tracker", got=f"--track {name}", fix=f"use one of {', '.join(TRACKERS)}"
        )
    return _never_failing(name, TRACKERS[name], run, step, warn)


class Tracker(Observer):
    """Passes metrics on to a tracker."""

    def __init__(self, track: Track) -> None:
        self._track = track

    def on_log(
        self, split: str, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]
    ) -> None:
        """Pass the metrics and timings on."""
        self._track(step, split, {**metrics, **timings})


@contextmanager
def _never_failing(
    name: str,
    tracker: Callable[[Path, int], AbstractContextManager[Track]],
    run: Path,
    step: int,
    warn: Callable[[str], None],
) -> Iterator[Track]:
    """Open a tracker whose later errors do not stop the run: the journal has all metrics."""
    run.mkdir(parents=True, exist_ok=True)
    opened = tracker(run, step)
    try:
        track = opened.__enter__()
    except ImportError as error:
        raise UserError(
            f"{name} is not installed", got=f"{error}", fix='pip install "electrify[track]"'
        ) from error
    except Exception as error:  # every tracker has its own kinds of errors
        raise UserError(
            f"{name} cannot be opened", got=f"{error!r}", fix="fix the cause, or remove --track"
        ) from error
    failed = False

    def safely(work: Callable[[], object]) -> None:
        nonlocal failed
        try:
            work()
        except Exception as error:
            failed = True
            warn(f"stopped logging to {name}: {error!r}; {METRICS_FILE} has all metrics")

    def track_safely(step: int, split: str, values: JournalRecord) -> None:
        numbers = {
            name: value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        if numbers and not failed:
            safely(lambda: track(step, split, numbers))

    try:
        yield track_safely
    finally:
        safely(lambda: opened.__exit__(None, None, None))


def tracker_id(run: Path) -> str:
    """Return the name of a run for trackers, which stays the same when its folder is moved."""
    path = run / TRACKER_ID
    if not path.exists():
        with committed(path) as temporary:
            temporary.write_text(f"{run.resolve().name}-{secrets.token_hex(4)}", encoding="utf-8")
    return path.read_text(encoding="utf-8")


def _named(split: str, values: JournalRecord) -> dict[str, Any]:
    return {f"{split}/{name}": value for name, value in values.items()}


@contextmanager
def _tensorboard(run: Path, step: int) -> Iterator[Track]:
    from torch.utils.tensorboard import SummaryWriter

    # purge_step hides what was written after the step that the run resumes from.
    writer = SummaryWriter(run / "tensorboard", purge_step=step + 1)

    def track(step: int, split: str, values: JournalRecord) -> None:
        for name, value in _named(split, values).items():
            writer.add_scalar(name, value, step)
        writer.flush()

    try:
        yield track
    finally:
        writer.close()


@contextmanager
def _trackio(run: Path, step: int) -> Iterator[Track]:
    """Log to this machine, unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL is set."""
    import trackio

    with redirect_stdout(sys.stderr):
        opened: Any = trackio.init(
            PROJECT,
            name=tracker_id(run),
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )
    try:
        yield lambda step, split, values: opened.log(_named(split, values), step=step)
    finally:
        with redirect_stdout(sys.stderr):
            opened.finish()


@contextmanager
def _wandb(run: Path, step: int) -> Iterator[Track]:
    """Log to RUN/wandb, for `wandb sync`, unless WANDB_MODE is set."""
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    opened: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=tracker_id(run),
        name=run.resolve().name,
        resume="allow",
        dir=run,
        mode=mode,
        settings=wandb.Settings(console="off"),  # it would capture the live progress line
    )
    try:
        yield lambda step, split, values: opened.log(_named(split, values), step=step)
    finally:
        opened.finish()


TRACKERS: dict[str, Callable[[Path, int], AbstractContextManager[Track]]] = {
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "wandb": _wandb,
}
