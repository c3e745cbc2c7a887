"""Committed checkpoints go to another place in the background, while training goes on.

    RUN/uploads/
        step-00001000/     hard links to a checkpoint that is not uploaded yet: pruning leaves them
        state.json         what was uploaded to where, and what was given up

A place is a URL that fsspec knows (s3, gs, hf, file, …) or a function that takes a folder. Files go
before the manifest, so a folder with a manifest is whole there, too. What is left when a run ends
or is killed is taken up at its next start.
"""

import os
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec

from electrify.errors import UserError
from electrify.storage.commit import checked_manifest, read_json, sha256_of, write_json
from electrify.training.checkpoint import faults, stored

MANIFEST_FILE = "manifest.json"
STATE_FILE = "state.json"
SECONDS_BEFORE_SECOND_TRY = 5.0
LOOKS = 0.5  # seconds between two looks at whether there is a hurry
PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
# There, asking for a folder makes the bucket if it is missing, and a mistyped one always is.
FOLDERLESS = frozenset(["s3", "s3a", "gs", "gcs"])
_STAGED = ".staging-"

_USER = re.compile(r"(\w://)(?:[^\s/:@]*:\S*|[^\s/]*)@")  # a password may hold slashes
_QUERY = re.compile(r"(\w://[^\s?]*\?)[^\s'\"]+")

Send = Callable[[Path, set[str]], None]
"""Takes a folder and the names that are there already, to which it adds."""


def mask(text: str) -> str:
    """A text without what URLs in it keep secret.

    >>> mask("cannot reach sftp://ann:p/w@host/runs?token=abc")
    'cannot reach sftp://***@host/runs?***'
    """
    return _QUERY.sub(r"\1***", _USER.sub(r"\1***@", text))


def to_stderr(text: str) -> None:
    """Say something without mixing it into a command's output."""
    print(text, file=sys.stderr, flush=True)


def open_remote(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    protocol, colon, _ = url.partition("://")
    if not colon:
        raise UserError(
            "--upload takes a URL", got=mask(url), fix="write file:///folder, s3://bucket/folder, …"
        )
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = PACKAGES.get(protocol)
        raise UserError(
            f"a package for {protocol}:// is missing",
            got=mask(f"{url} ({error})"),
            fix=f"pip install {package}" if package else "install the package named above",
        ) from error
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            "nothing known can be uploaded there",
            got=mask(f"{url} ({error})"),
            fix="give a URL that fsspec knows: file, s3, gs, hf, …",
        ) from error
    return system, str(path).rstrip("/")


def sender(url: str) -> Send:
    """What uploads a checkpoint's folder to a URL."""
    system, root = open_remote(url)
    makes_folders = url.partition("://")[0] not in FOLDERLESS

    def send(folder: Path, sent: set[str]) -> None:
        there = f"{root}/{folder.name}"
        names = [entry["name"] for entry in checked_manifest(folder / MANIFEST_FILE)["files"]]
        if makes_folders:
            system.makedirs(there, exist_ok=True)
        # An older checkpoint of the same step is not whole any more once its files change.
        if not sent and system.exists(f"{there}/{MANIFEST_FILE}"):
            system.rm_file(f"{there}/{MANIFEST_FILE}")
        for name in [*names, MANIFEST_FILE]:
            if name in sent:
                continue
            system.put_file(str(folder / name), f"{there}/{name}")
            system.invalidate_cache()
            size, found = (folder / name).stat().st_size, system.info(f"{there}/{name}")["size"]
            if found != size:
                raise OSError(f"{name}: {found:,} bytes arrived of {size:,}")
            sent.add(name)

    return send


def seconds_before(next_try: int, chance: float) -> float:
    """How long to wait before a try: twice as long each time, up to half more or less by chance.

    >>> [seconds_before(n, chance=0.5) for n in (2, 3, 4, 5)]
    [5.0, 10.0, 20.0, 40.0]
    """
    return SECONDS_BEFORE_SECOND_TRY * float(2 ** (next_try - 2)) * (0.5 + chance)


def stage(folder: Path, home: Path) -> Path:
    """A copy of a checkpoint in `home`, whole or not there; its files are links where they can."""
    staged, final = home / f"{_STAGED}{folder.name}", home / folder.name
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    names = [entry["name"] for entry in checked_manifest(folder / MANIFEST_FILE)["files"]]
    for name in [*names, MANIFEST_FILE]:
        try:
            os.link(folder / name, staged / name)
        except OSError:  # a file system without links; if it is anything else, copying tells
            shutil.copyfile(folder / name, staged / name)
    remove(final)
    return staged.rename(final)


def remove(folder: Path) -> None:
    """Remove a staged checkpoint: the manifest first, so that half a removal is none."""
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Staged:
    """A checkpoint that waits in RUN/uploads."""

    folder: Path
    digest: str
    """SHA-256 of its manifest, which holds those of its files."""
    doing: str = "waiting"
    """Or "uploading", or "failed"."""
    reason: str = "not begun"
    again: Path | None = None
    """The checkpoint, if it was committed anew while this one was on its way."""


class Uploads:
    """Uploads committed checkpoints one after the other; never makes training wait or stop."""

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
        self._say = report
        self._queue, self._tries = queue, tries
        self._stopping = threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._changed = threading.Condition()
        self._home: Path | None = None
        self._staged: dict[str, Staged] = {}
        self._uploaded: dict[str, str] = {}
        self._lost: dict[str, str] = {}
        # A daemon, so that a place that never answers cannot keep the process alive.
        self._thread = threading.Thread(target=self._work, name="upload", daemon=True)
        self._thread.start()

    def resume(self, run: Path) -> None:
        """Take up what earlier processes left; called once, before the first checkpoint."""
        self._open(run)
        home, checkpoints = run / "uploads", stored(run / "checkpoints")
        for leftover in home.glob(f"{_STAGED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for waiting in reversed(stored(home)):
            manifest = waiting.folder / MANIFEST_FILE
            digest = sha256_of(manifest) if manifest.is_file() else None
            if digest is None or digest == self._uploaded.get(waiting.folder.name):
                remove(waiting.folder)  # a kill came before its removal was done
            else:
                self._enqueue(Staged(waiting.folder, digest))
        # The newest may have been committed just before a kill; the lost may still be here.
        for checkpoint in reversed(checkpoints):
            if checkpoint == checkpoints[0] or checkpoint.folder.name in self._lost:
                self.committed(checkpoint.folder)

    def committed(self, folder: Path) -> None:
        """Queue a checkpoint that was just committed; raises nothing and waits for no upload."""
        try:
            home = self._open(folder.parent.parent)
            digest = sha256_of(folder / MANIFEST_FILE)
            with self._changed:
                known = self._staged.get(folder.name)
                if digest == (known.digest if known else self._uploaded.get(folder.name)):
                    return
                if known and known.doing == "uploading":
                    known.again = folder
                    return
                self._staged.pop(folder.name, None)
            self._enqueue(Staged(stage(folder, home), digest))
        except (OSError, UserError) as error:
            with self._changed:
                self._lose(folder.name, _in_a_line(error))

    def pending(self) -> list[str]:
        """The checkpoints that wait or are on their way."""
        with self._changed:
            return [name for name, staged in self._staged.items() if staged.doing != "failed"]

    def close(self, timeout: float, hurry: Callable[[], bool] = lambda: False) -> list[str]:
        """Stop when all is uploaded, time is up or `hurry` says so; gives what is not, and why."""
        end = time.monotonic() + timeout
        with self._changed:
            while self.pending() and time.monotonic() < end and not hurry():
                self._changed.wait(min(LOOKS, max(0.0, end - time.monotonic())))
            self._stopping.set()
            self._changed.notify_all()
            left = {
                name: f"{staged.doing}, {staged.reason}; tried again at the next start"
                for name, staged in self._staged.items()
            }
            not_uploaded = sorted((self._lost | left).items())
        self._thread.join(max(0.0, end - time.monotonic()))
        return [f"{name}: {reason}" for name, reason in not_uploaded]

    def _open(self, run: Path) -> Path:
        """The folder for uploads of a run; what earlier processes noted there is read once."""
        home = run / "uploads"
        with self._changed:
            if self._home is None:
                self._home = home
                home.mkdir(parents=True, exist_ok=True)
                state = read_json(home / STATE_FILE) if (home / STATE_FILE).exists() else {}
                if state.get("target") == self._target:
                    self._uploaded = state["uploaded"]
                    self._lost = state["not_uploaded"]
        return home

    def _note(self) -> None:
        """Commit the state. Without it a later start uploads again, so an error is only said."""
        assert self._home is not None
        state = {
            "target": self._target,
            "uploaded": self._uploaded,
            "not_uploaded": self._lost,
        }
        try:
            write_json(self._home / STATE_FILE, state)
        except OSError as error:
            self._report(f"the state of uploads could not be written: {error}")

    def _enqueue(self, staged: Staged) -> None:
        with self._changed:
            self._staged[staged.folder.name] = staged
            idle = [one for one in self._staged.values() if one.doing != "uploading"]
            for oldest in idle[: max(0, len(idle) - self._queue)]:
                why = oldest.reason if oldest.doing == "failed" else "newer ones filled the queue"
                self._lose(oldest.folder.name, why)
            self._changed.notify_all()

    def _lose(self, name: str, reason: str) -> None:
        """Give a checkpoint up; only its own folder, if it is still there, can bring it back."""
        staged = self._staged.pop(name, None)
        if staged:
            remove(staged.folder)
        self._lost[name] = reason
        self._note()
        self._report(f"{name} is not uploaded: {reason}")

    def _report(self, text: str) -> None:
        self._say(mask(text))

    def _work(self) -> None:
        while (staged := self._next()) is not None:
            damage = _damage(staged.folder)
            failure = None if damage else self._try(staged.folder)
            with self._changed:
                name = staged.folder.name
                if damage:
                    self._lose(name, f"damaged here: {'; '.join(damage)}")
                elif failure:
                    staged.doing, staged.reason = "failed", failure
                    self._report(f"{name} is not uploaded: {failure}")
                else:
                    self._uploaded[name] = staged.digest
                    self._lost.pop(name, None)
                    self._note()
                    del self._staged[name]
                    remove(staged.folder)
                if staged.again:
                    self.committed(staged.again)
                self._changed.notify_all()

    def _next(self) -> Staged | None:
        """The oldest that waits, as soon as there is one; None at the end."""
        with self._changed:
            while not self._stopping.is_set():
                for staged in self._staged.values():
                    if staged.doing == "waiting":
                        staged.doing, staged.reason = "uploading", "not finished"
                        return staged
                self._changed.wait()
        return None

    def _try(self, folder: Path) -> str | None:
        """Upload; gives why not, if all tries fail."""
        sent: set[str] = set()
        for number in range(1, self._tries + 1):
            try:
                self._send(folder, sent)
                return None
            except Exception as error:  # every kind of place has its own kinds of errors
                failure = _in_a_line(error)
            if number == self._tries or self._stopping.is_set():
                break
            seconds = seconds_before(number + 1, random.SystemRandom().random())
            self._report(
                f"{folder.name}: upload failed, try {number} of {self._tries}, "
                f"again in {seconds:.0f} s ({failure})"
            )
            self._sleep(seconds)
            if self._stopping.is_set():
                break
        return failure


def _damage(folder: Path) -> list[str]:
    try:
        return faults(folder)
    except OSError as error:
        return [f"{error}"]


def _in_a_line(error: Exception) -> str:
    words = f"{error.what}, {error.got}" if isinstance(error, UserError) else f"{error}"
    return mask(" ".join(f"{type(error).__name__}: {words}".split()))
