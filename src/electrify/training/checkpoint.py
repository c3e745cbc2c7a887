"""Write, verify, prune and read checkpoints; a checkpoint is either complete or absent.

    RUN/checkpoints/step-00001000/
        model.safetensors  optimizer.safetensors  state.json
        manifest.json          names, sizes and SHA-256 of the other files; written last
        keep                   present if the checkpoint is never pruned

A checkpoint is written under a temporary name, synced, and renamed; a run resumes from the newest
one that passes verification. Nothing in it can run code.
"""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from electrify.errors import DamagedError, UserError
from electrify.storage.build import committed_file
from electrify.storage.commit import (
    checked_manifest,
    fsync_folder,
    json_bytes,
    read_json,
    verify,
    write_json,
)

_NAME = re.compile(r"step-(\d{8,})")
_STAGED = ".writing-"
_MODEL, _OPTIMIZER, _STATE = _FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


class Snapshot(NamedTuple):
    """The state of a run, copied so that training can continue while it is written."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


class Stored(NamedTuple):
    """A checkpoint on disk."""

    step: int
    folder: Path


class Policy(NamedTuple):
    """Which checkpoints pruning keeps."""

    keep_last: int = 2
    steps_kept: frozenset[int] = frozenset()


def snapshot(
    step: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: dict[str, Any]
) -> Snapshot:
    """Return a snapshot whose tensors are copies in CPU memory."""

    def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }

    return Snapshot(step, copies(model), copies(optimizer), state)


RunOf = Callable[[int], str]
"""Maps a step to the run that its checkpoint must be of; empty for any run."""


def any_run(step: int) -> str:
    """Return the name that stands for any run."""
    return ""


def stored(folder: Path, run: RunOf = any_run) -> list[Stored]:
    """Return the checkpoints in a folder, newest first, without verifying them.

    If `run` is given, those that belong to another run are left out.
    """
    if not folder.is_dir():
        return []
    found = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir() if path.is_dir()]
    checkpoints = (Stored(int(match[1]), path) for path, match in found if match)
    return sorted((c for c in checkpoints if _may_be_of(c.folder, run(c.step))), reverse=True)


def _may_be_of(folder: Path, run: str) -> bool:
    """Return whether a checkpoint is not known to be of another run."""
    return not run or _run_of(folder) in (run, None)


def _run_of(folder: Path) -> str | None:
    """Return the run that wrote a checkpoint; None if its manifest cannot be read."""
    try:
        return str(checked_manifest(folder / "manifest.json")["identity"].get("run", ""))
    except (DamagedError, OSError):
        return None


def faults(folder: Path, run: str = "") -> list[str]:
    """Return what is wrong with a checkpoint; empty if it is intact and, if given, of `run`."""
    path = folder / "manifest.json"
    if not path.is_file():
        return ["manifest.json: missing"]
    try:
        manifest = checked_manifest(path)
    except DamagedError as error:
        return [f"manifest.json: {error.got}"]
    identity = manifest["identity"]
    step = identity.get("step")
    if type(step) is not int or folder.name != _name(step):
        return [f"manifest.json: this is the checkpoint of step {step!r:.100}"]
    if run and identity.get("run") != run:
        return ["manifest.json: this is the checkpoint of another run"]
    return verify(folder, manifest)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def newest(folder: Path, warn: Callable[[str], None], run: RunOf = any_run) -> Stored | None:
    """Return the newest intact checkpoint; None if there is no checkpoint.

    Raises an error if every checkpoint is damaged: a run never silently starts from scratch.
    """
    damaged: list[str] = []
    for checkpoint in stored(folder):
        found = faults(checkpoint.folder, run(checkpoint.step))
        if not found:
            return checkpoint
        damaged.append(f"{checkpoint.folder.name}: {'; '.join(found)}")
        warn(f"checkpoint {checkpoint.folder} is damaged and will be skipped ({found[0]})")
    if damaged:
        raise DamagedError(
            f"every checkpoint in {folder} is damaged",
            got="\n       ".join(damaged),
            fix="restore one from a backup, or use another --out to start from scratch",
        )
    return None


def read_checkpoint(checkpoint: Stored) -> Snapshot:
    """Read a checkpoint that has been verified."""
    return Snapshot(
        checkpoint.step,
        load_file(checkpoint.folder / _MODEL),
        load_file(checkpoint.folder / _OPTIMIZER),
        read_json(checkpoint.folder / _STATE),
    )


def write(folder: Path, taken: Snapshot, keep: bool = False, run: str = "") -> Path:
    """Write a snapshot as a checkpoint of `run`; returns its folder."""
    final = folder / _name(taken.step)
    if final.exists() and not faults(final, run):
        if keep:
            (final / "keep").touch()
        return final
    staged = folder / f"{_STAGED}{final.name}"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        _write_files(staged, taken, keep, run)
        _make_room(final, run)
        staged.rename(final)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)  # on a full disk, half a checkpoint is in the way
        raise
    fsync_folder(folder)
    return final


def _write_files(folder: Path, taken: Snapshot, keep: bool, run: str) -> None:
    files = [
        committed_file(folder, _MODEL, partial(save_file, taken.model)),
        committed_file(folder, _OPTIMIZER, partial(save_file, taken.optimizer)),
        committed_file(folder, _STATE, lambda path: path.write_bytes(json_bytes(taken.state))),
    ]
    if keep:
        (folder / "keep").touch()
    write_json(
        folder / "manifest.json",
        {"kind": "checkpoint", "identity": {"step": taken.step, "run": run}, "files": files},
    )


def _make_room(final: Path, run: str) -> None:
    """Remove a damaged checkpoint of `run`; one of another run, or a link, is renamed."""
    if final.is_symlink() or not _may_be_of(final, run):
        names = (final.with_name(f"{final.name}.other-{number}") for number in count(1))
        final.rename(next(name for name in names if not name.exists()))
    elif final.exists():
        shutil.rmtree(final)


def prune(folder: Path, policy: Policy, run: RunOf = any_run) -> list[Path]:
    """Remove the checkpoints of `run` that the policy does not keep.

    The newest intact one always stays, as do links and the checkpoints of other runs.
    """
    checkpoints = stored(folder, run)
    intact = next((c for c in checkpoints if not faults(c.folder, run(c.step))), None)
    if intact is None:
        return []
    newest_ones = {intact, *checkpoints[: policy.keep_last]}
    removed = []
    for checkpoint in checkpoints:
        pinned = checkpoint.step in policy.steps_kept or (checkpoint.folder / "keep").exists()
        ours = _run_of(checkpoint.folder) is not None and not checkpoint.folder.is_symlink()
        if checkpoint in newest_ones or pinned or not ours:
            continue
        # The manifest is removed first, so that a partly removed folder is not a checkpoint.
        (checkpoint.folder / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
        removed.append(checkpoint.folder)
    return removed


def clear_leftovers(folder: Path) -> None:
    """Remove what a killed process was in the middle of writing or removing."""
    for path in folder.glob(f"{_STAGED}*"):
        shutil.rmtree(path, ignore_errors=True)
    incomplete = [c.folder for c in stored(folder) if not (c.folder / "manifest.json").exists()]
    if len(incomplete) == len(stored(folder)):
        return  # pruning leaves at least one intact: this is damage that somebody may repair
    for path in incomplete:
        # A checkpoint that lacks only its manifest is damaged, not partly removed.
        names = {file.name for file in path.iterdir()}
        if not names >= set(_FILES) and names <= {*_FILES, "keep"}:
            shutil.rmtree(path, ignore_errors=True)


class Writer:
    """Writes snapshots in the background, one at a time; an error surfaces at the next call.

    `check_folder` is called before each write, and raises an error if the folder may not be used.
    """

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        committed: Callable[[Path], None] = lambda path: None,
        run: RunOf = any_run,
        check_folder: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.policy, self.committed, self.run = folder, policy, committed, run
        self.check_folder = check_folder
        self.blocked = 0.0
        """Seconds that training waited for saves."""
        self.seconds = 0.0
        """Seconds that the last write took."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._last: Future[None] | None = None

    def save(self, take: Callable[[], Snapshot], prune: bool = True) -> None:
        """Take a snapshot and write it in the background; then prune older ones if asked to."""
        begin = time.monotonic()
        self.wait()
        taken = take()
        self._last = self._pool.submit(self._write, taken, prune)
        self.blocked += time.monotonic() - begin

    def _write(self, taken: Snapshot, and_prune: bool) -> None:
        begin = time.monotonic()
        self.check_folder()
        keep, run = taken.step in self.policy.steps_kept, self.run(taken.step)
        folder = write(self.folder, taken, keep, run)
        self.seconds = time.monotonic() - begin
        self.committed(folder)
        if and_prune:
            prune(self.folder, self.policy, self.run)

    def check(self) -> None:
        """Raise the error of the last write, if it has failed."""
        if self._last is not None and self._last.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the last write; raises its error if it failed."""
        if self._last is None:
            return
        last, self._last = self._last, None
        try:
            last.result()
        except (OSError, SafetensorError) as error:  # safetensors wraps the error of a full disk
            raise SaveError(error) from error

    def close(self) -> None:
        """Finish the last write and stop."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


class SaveError(UserError):
    """A checkpoint could not be written; earlier ones are intact."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            "a checkpoint could not be written",
            got=f"{error}",
            fix="free disk space or fix the folder; the same command resumes from the one before",
        )
