"""Checkpoints that are whole or not there.

    RUN/checkpoints/step-00001000/
        model.safetensors  optimizer.safetensors  state.json
        manifest.json          names, sizes and SHA-256 of the others: written last
        keep                   there if the checkpoint is never pruned

A checkpoint is written under a temporary name, synced, and renamed into place; the newest one that
verifies is the one that counts. Nothing in it can run code.
"""

import re
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
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


class Snapshot(NamedTuple):
    """A state of a run, copied so that training can go on while it is written."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


class Stored(NamedTuple):
    """A checkpoint on disk."""

    step: int
    folder: Path


class Policy(NamedTuple):
    """Which checkpoints stay."""

    keep_last: int = 2
    steps_kept: frozenset[int] = frozenset()


def snapshot(
    step: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: dict[str, Any]
) -> Snapshot:
    """Copies of all tensors on the processor."""

    def copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in tensors.items()
        }

    return Snapshot(step, copies(model), copies(optimizer), state)


def stored(folder: Path) -> list[Stored]:
    """The checkpoints under their final names, newest first; whether they are whole is not seen."""
    if not folder.is_dir():
        return []
    found = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir() if path.is_dir()]
    return sorted((Stored(int(match[1]), path) for path, match in found if match), reverse=True)


def faults(folder: Path, run: str = "") -> list[str]:
    """What is wrong with a checkpoint; nothing if it is whole, and of a run if that is given."""
    path = folder / "manifest.json"
    if not path.is_file():
        return ["manifest.json: missing"]
    try:
        manifest = checked_manifest(path)
    except DamagedError as error:
        return [f"manifest.json: {error.got}"]
    of = manifest["identity"]
    if folder.name != _name(of.get("step", -1)):
        return [f"manifest.json: it is the checkpoint of step {of.get('step')}"]
    if run and of.get("run") != run:
        return ["manifest.json: it is the checkpoint of another run"]
    return verify(folder, manifest)


def _name(step: int) -> str:
    return f"step-{step:08d}"


def newest(folder: Path, warn: Callable[[str], None], run: str = "") -> Stored | None:
    """The newest checkpoint that is whole, and of a run if given; None if there is none at all.

    If there are some and each is damaged, that is an error: a run never starts over silently.
    """
    bad: list[str] = []
    for checkpoint in stored(folder):
        wrong = faults(checkpoint.folder, run)
        if not wrong:
            return checkpoint
        bad.append(f"{checkpoint.folder.name}: {'; '.join(wrong)}")
        warn(f"checkpoint {checkpoint.folder} is damaged and is passed over ({wrong[0]})")
    if bad:
        raise DamagedError(
            f"every checkpoint in {folder} is damaged",
            got="\n       ".join(bad),
            fix="restore one from a copy, or give another --out to start over",
        )
    return None


def read_checkpoint(checkpoint: Stored) -> Snapshot:
    """The contents of a checkpoint that was verified."""
    return Snapshot(
        checkpoint.step,
        load_file(checkpoint.folder / "model.safetensors"),
        load_file(checkpoint.folder / "optimizer.safetensors"),
        read_json(checkpoint.folder / "state.json"),
    )


def write(folder: Path, taken: Snapshot, keep: bool = False, run: str = "") -> Path:
    """Commit a snapshot of a run; returns its folder."""
    final = folder / _name(taken.step)
    if final.exists() and not faults(final, run):
        if keep:
            (final / "keep").touch()
        return final
    staged = folder / f"{_STAGED}{final.name}"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    files = [
        committed_file(staged, "model.safetensors", _saver(taken.model)),
        committed_file(staged, "optimizer.safetensors", _saver(taken.optimizer)),
        committed_file(
            staged, "state.json", lambda path: path.write_bytes(json_bytes(taken.state))
        ),
    ]
    if keep:
        (staged / "keep").touch()
    write_json(
        staged / "manifest.json",
        {"kind": "checkpoint", "identity": {"step": taken.step, "run": run}, "files": files},
    )
    if final.exists():  # damaged
        shutil.rmtree(final)
    staged.rename(final)
    fsync_folder(folder)
    return final


def _saver(tensors: dict[str, Tensor]) -> Callable[[Path], None]:
    return lambda path: save_file(tensors, path)


def prune(folder: Path, policy: Policy) -> list[Path]:
    """Remove checkpoints that nothing keeps; the newest that is whole always stays."""
    all_of_them = stored(folder)
    whole = next((c for c in all_of_them if not faults(c.folder)), None)
    if whole is None:
        return []
    staying = {c.folder for c in all_of_them[: policy.keep_last]} | {whole.folder}
    removed = []
    for checkpoint in all_of_them:
        kept = checkpoint.step in policy.steps_kept or (checkpoint.folder / "keep").exists()
        if checkpoint.folder in staying or kept:
            continue
        # The manifest goes first, so that half a removal is no checkpoint.
        (checkpoint.folder / "manifest.json").unlink(missing_ok=True)
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
        removed.append(checkpoint.folder)
    return removed


def clear_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing or removing."""
    for path in folder.glob(f"{_STAGED}*"):
        shutil.rmtree(path, ignore_errors=True)
    half = [c.folder for c in stored(folder) if not (c.folder / "manifest.json").exists()]
    if len(half) == len(stored(folder)):
        return  # pruning leaves at least one whole: this is damage, and somebody may mend it
    for one in half:
        if not _has_all(one):
            shutil.rmtree(one, ignore_errors=True)


def _has_all(folder: Path) -> bool:
    """Whether only the manifest is missing: then somebody removed it, and that is damage."""
    names = ("model.safetensors", "optimizer.safetensors", "state.json")
    return all((folder / name).is_file() for name in names)


class Writer:
    """Writes snapshots in the background, one at a time; an error surfaces at the next call."""

    def __init__(
        self,
        folder: Path,
        policy: Policy,
        committed: Callable[[Path], None] = lambda path: None,
        run: str = "",
    ) -> None:
        self.folder, self.policy, self.committed, self.run = folder, policy, committed, run
        self.blocked = 0.0
        """Seconds that training waited for saves."""
        self.seconds = 0.0
        """That the last write took."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._last: Future[None] | None = None

    def save(self, take: Callable[[], Snapshot], prune: bool = True) -> None:
        """Take a snapshot now and write it while training goes on; `prune` older ones after it."""
        begin = time.monotonic()
        self.wait()
        taken = take()
        self._last = self._pool.submit(self._write, taken, prune)
        self.blocked += time.monotonic() - begin

    def _write(self, taken: Snapshot, and_prune: bool) -> None:
        begin = time.monotonic()
        folder = write(self.folder, taken, taken.step in self.policy.steps_kept, self.run)
        self.seconds = time.monotonic() - begin
        self.committed(folder)
        if and_prune:
            prune(self.folder, self.policy)

    def check(self) -> None:
        """Raise what the last write failed with, if it has."""
        if self._last is not None and self._last.done():
            self.wait()

    def wait(self) -> None:
        """Until the last write is done; raises what it failed with."""
        if self._last is None:
            return
        last, self._last = self._last, None
        try:
            last.result()
        except (OSError, SafetensorError) as error:  # the latter for a full disk, too
            raise NotSaved(error) from error

    def close(self) -> None:
        """Finish the last write and stop."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


class NotSaved(UserError):
    """A checkpoint could not be written; earlier ones are whole."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            "a checkpoint could not be written",
            got=f"{error}",
            fix="make room or mend the folder; the same command goes on from the one before",
        )
