"""Upload checkpoints in the background while training continues.

    RUN/uploads/
        step-00001000/     hard links to a checkpoint to be uploaded, which pruning does not remove
        state.json         what was uploaded to which target, and what was given up

The target is a URL (see remote.py) or a function that takes a folder. Uploads that are pending when
a run ends or is killed are resumed at its next start. The state is in a file because a function has
no remote manifest, and a checkpoint that was given up and pruned is nowhere else.
"""

import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electrify.errors import DamagedError, UserError
from electrify.storage.commit import TABLE, TEXT, checked_json, sha256_of, write_json
from electrify.training.checkpoint import RunOf, any_run, faults, stored
from electrify.training.remote import MANIFEST_FILE, checkpoint_files, mask, sender

STATE_FILE = "state.json"
SECONDS_BEFORE_SECOND_TRY = 5.0
POLL_SECONDS = 0.5
_STAGED = ".staging-"
_STATE = {"target": TEXT, "uploaded": TABLE, "not_uploaded": TABLE}


def to_stderr(text: str) -> None:
    """Print a message to stderr."""
    print(text, file=sys.stderr, flush=True)


def seconds_before(next_try: int, uniform: float) -> float:
    """Return the wait before a try: it doubles each time, with up to 50 % random jitter.

    >>> [seconds_before(n, uniform=0.5) for n in (2, 3, 4, 5)]
    [5.0, 10.0, 20.0, 40.0]
    """
    return SECONDS_BEFORE_SECOND_TRY * float(2 ** (next_try - 2)) * (0.5 + uniform)


def stage(folder: Path, home: Path) -> Path:
    """Copy a checkpoint to `home`, completely or not at all, with hard links where possible."""
    staged, final = home / f"{_STAGED}{folder.name}", home / folder.name
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        for name in checkpoint_files(folder):
            try:
                os.link(folder / name, staged / name)
            except OSError:  # no hard links on this file system; any other error recurs in the copy
                shutil.copyfile(folder / name, staged / name)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    remove(final)
    return staged.rename(final)


def remove(folder: Path) -> None:
    """Remove a staged checkpoint, its manifest first, so that a partial one is not mistaken."""
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Staged:
    """A checkpoint in RUN/uploads that is still to be uploaded."""

    folder: Path
    digest: str
    """SHA-256 of its manifest, which contains those of its files."""
    status: str = "waiting"
    """One of "waiting", "uploading" and "failed"."""
    reason: str = "not started"
    newer: Path | None = None
    """The checkpoint, if it was written again during the upload."""


class Uploads:
    """Uploads checkpoints one after the other, and never makes training wait or stop."""

    def __init__(
        self,
        target: str | Callable[[Path], None],
        report: Callable[[str], None] = to_stderr,
        queue: int = 4,
        tries: int = 5,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        if isinstance(target, str):
            self._send, self._target = sender(target), mask(target)
        else:
            self._send = lambda folder, sent: target(folder)
            self._target = getattr(target, "__qualname__", type(target).__qualname__)
        self._print = report
        self._queue, self._tries = queue, tries
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._changed = threading.Condition()
        self._home: Path | None = None
        self._staged: dict[str, Staged] = {}
        self._uploaded: dict[str, str] = {}
        self._given_up: dict[str, str] = {}
        # A daemon thread, so that a server that never answers cannot keep the process alive.
        self._thread = threading.Thread(target=self._work, name="upload", daemon=True)
        self._thread.start()

    def resume(self, run: Path, fingerprints: RunOf = any_run) -> None:
        """Queue what earlier processes left; called once, before the first checkpoint."""
        self._open(run)
        home, checkpoints = run / "uploads", stored(run / "checkpoints", fingerprints)
        for leftover in home.glob(f"{_STAGED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for waiting in reversed(stored(home, fingerprints)):
            manifest = waiting.folder / MANIFEST_FILE
            digest = sha256_of(manifest) if manifest.is_file() else None
            if digest is None or digest == self._uploaded.get(waiting.folder.name):
                remove(waiting.folder)  # a kill interrupted its removal
            else:
                self._enqueue(Staged(waiting.folder, digest))
        # The newest may have been written just before a kill; those given up may still exist.
        for checkpoint in reversed(checkpoints):
            if checkpoint == checkpoints[0] or checkpoint.folder.name in self._given_up:
                self.committed(checkpoint.folder)

    def committed(self, folder: Path) -> None:
        """Queue a checkpoint that was just written; never raises an error or waits."""
        try:
            home = self._open(folder.parent.parent)
            digest = sha256_of(folder / MANIFEST_FILE)
            with self._changed:
                known = self._staged.get(folder.name)
                if digest == (known.digest if known else self._uploaded.get(folder.name)):
                    return
                if known and known.status == "uploading":
                    known.newer = folder
                    return
                self._staged.pop(folder.name, None)
            self._enqueue(Staged(stage(folder, home), digest))
        except (OSError, UserError) as error:
            with self._changed:
                self._give_up(folder.name, _one_line(error))

    def pending(self) -> list[str]:
        """Return the checkpoints that are waiting or being uploaded."""
        with self._changed:
            return [name for name, staged in self._staged.items() if staged.status != "failed"]

    def close(self, timeout: float, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """Wait for the uploads until `timeout` or `hurry()`; return which are missing, and why."""
        end = time.monotonic() + timeout
        with self._changed:
            while self.pending() and time.monotonic() < end and not hurry():
                self._changed.wait(min(POLL_SECONDS, max(0.0, end - time.monotonic())))
            self._stopping.set()
            self._changed.notify_all()
            remaining = {
                name: f"{staged.status}, {staged.reason}; will be retried at the next start"
                for name, staged in self._staged.items()
            }
            not_uploaded = sorted((self._given_up | remaining).items())
        self._thread.join(max(0.0, end - time.monotonic()))
        return [f"{name}: {reason}" for name, reason in not_uploaded]

    def _open(self, run: Path) -> Path:
        """Return the uploads folder of a run; the state of earlier processes is read once."""
        home = run / "uploads"
        with self._changed:
            if self._home is None:
                self._home = home
                home.mkdir(parents=True, exist_ok=True)
                state = self._read_state(home / STATE_FILE)
                if state.get("target") == self._target:
                    self._uploaded = state["uploaded"]
                    self._given_up = state["not_uploaded"]
        return home

    def _read_state(self, path: Path) -> dict[str, Any]:
        """Return the state of earlier processes; damage is only reported, as in `_save_state`."""
        try:
            return checked_json(path, _STATE) if path.exists() else {}
        except DamagedError as error:
            self._report(f"{error.what} and will be replaced: {error.got}")
            return {}

    def _save_state(self) -> None:
        """Write the state; an error is only reported, because it just causes another upload."""
        assert self._home is not None
        state = {
            "target": self._target,
            "uploaded": self._uploaded,
            "not_uploaded": self._given_up,
        }
        try:
            write_json(self._home / STATE_FILE, state)
        except OSError as error:
            self._report(f"the state of the uploads could not be written: {error}")

    def _enqueue(self, staged: Staged) -> None:
        with self._changed:
            self._staged[staged.folder.name] = staged
            idle = [queued for queued in self._staged.values() if queued.status != "uploading"]
            for oldest in idle[: max(0, len(idle) - self._queue)]:
                failed = oldest.status == "failed"
                why = oldest.reason if failed else "newer checkpoints filled the queue"
                self._give_up(oldest.folder.name, why)
            self._changed.notify_all()

    def _give_up(self, name: str, reason: str) -> None:
        """Give up a checkpoint; the next start queues it again if the run still has it."""
        staged = self._staged.pop(name, None)
        if staged:
            remove(staged.folder)
        self._given_up[name] = reason
        self._save_state()
        self._report(f"{name} was not uploaded: {reason}")

    def _report(self, text: str) -> None:
        self._print(mask(text))

    def _work(self) -> None:
        while (staged := self._next()) is not None:
            try:
                damage = faults(staged.folder)
            except OSError as error:
                damage = [f"{error}"]
            failure = None if damage else self._try(staged.folder)
            with self._changed:
                name = staged.folder.name
                if damage:
                    self._give_up(name, f"the local copy is damaged: {'; '.join(damage)}")
                elif failure:
                    staged.status, staged.reason = "failed", failure
                    self._report(f"{name} was not uploaded: {failure}")
                else:
                    self._uploaded[name] = staged.digest
                    self._given_up.pop(name, None)
                    self._save_state()
                    del self._staged[name]
                    remove(staged.folder)
                if staged.newer:
                    self.committed(staged.newer)
                self._changed.notify_all()

    def _next(self) -> Staged | None:
        """Wait for the oldest checkpoint in the queue; None when closing."""
        with self._changed:
            while not self._stopping.is_set():
                for staged in self._staged.values():
                    if staged.status == "waiting":
                        staged.status, staged.reason = "uploading", "not finished"
                        return staged
                self._changed.wait()
        return None

    def _try(self, folder: Path) -> str | None:
        """Upload a folder; returns the last error if all tries fail."""
        sent: set[str] = set()
        for number in range(1, self._tries + 1):
            try:
                self._send(folder, sent)
                return None
            except Exception as error:  # every kind of target has its own kinds of errors
                failure = _one_line(error)
                refused = isinstance(error, UserError)
            if refused or number == self._tries or self._stopping.is_set():
                break
            seconds = seconds_before(number + 1, random.SystemRandom().random())
            self._report(
                f"{folder.name}: upload attempt {number} of {self._tries} failed, "
                f"retrying in {seconds:.0f} s ({failure})"
            )
            self._sleep(seconds)
            if self._stopping.is_set():
                break
        return failure


def _one_line(error: Exception) -> str:
    text = f"{error.what}, {error.got}" if isinstance(error, UserError) else f"{error}"
    return mask(" ".join(f"{type(error).__name__}: {text}".split()))
