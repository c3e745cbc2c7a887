"""Trackers that show a run while it goes on; the journal has everything they would show.

RUN/tracker-id       under which name a tracker knows the run, there if one was used
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
"""Takes a step, the split ("train", "validation", …) and its values."""


def tracker(
    name: str, run: Path, step: int, warn: Callable[[str], None]
) -> AbstractContextManager[Track]:
    """The tracker of a name, open for a run that starts after `step`."""
    if name not in TRACKERS:
        raise UserError("no such tracker", got=f"--track {name}", fix=f"one of {_names()}")
    return _harmless(name, TRACKERS[name], run, step, warn)


class Tracker(Observer):
    """Passes metrics on to a tracker."""

    def __init__(self, track: Track) -> None:
        self._track = track

    def on_log(
        self, split: str, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]
    ) -> None:
        """Pass metrics and timings on."""
        self._track(step, split, {**metrics, **timings})


@contextmanager
def _harmless(
    name: str,
    tracker: Callable[[Path, int], AbstractContextManager[Track]],
    run: Path,
    step: int,
    warn: Callable[[str], None],
) -> Iterator[Track]:
    """A tracker that cannot stop a run once it is open: the journal has all it would show."""
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
            f"{name} does not open", got=f"{error!r}", fix="mend that, or leave --track out"
        ) from error
    failed = False

    def safely(work: Callable[[], object]) -> None:
        nonlocal failed
        try:
            work()
        except Exception as error:
            failed = True
            warn(f"{name} is not told any more: {error!r}; {METRICS_FILE} has everything")

    def tell(step: int, split: str, values: JournalRecord) -> None:
        numbers = {
            name: value
            for name, value in values.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        if numbers and not failed:
            safely(lambda: track(step, split, numbers))

    try:
        yield tell
    finally:
        safely(lambda: opened.__exit__(None, None, None))


def tracker_id(run: Path) -> str:
    """The name a tracker knows a run by: the same at every start, and wherever the run moves."""
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

    # purge_step: what was written after the step that the run goes on from is not shown.
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
    """On this machine, unless TRACKIO_SPACE_ID or TRACKIO_SERVER_URL says otherwise."""
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
    """In RUN/wandb, for `wandb sync`, unless WANDB_MODE says otherwise."""
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    opened: Any = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=tracker_id(run),
        name=run.resolve().name,
        resume="allow",
        dir=run,
        mode=mode,
        settings=wandb.Settings(console="off"),  # it would catch the live line
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


def _names() -> str:
    return ", ".join(TRACKERS)
