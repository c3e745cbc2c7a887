"""A folder that is built part by part, can be resumed after a kill, and is complete or unfinished.

OUT/manifest.json      written last; without it the folder is not finished
OUT/*                  finished parts, each committed separately
OUT/.parts/            while it is being built: the settings, one record per finished part and, if
                       the input might have changed since, its state when the parts were made
"""

import platform
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TypeVar

from electrify import __version__
from electrify.jobs import in_order
from electrify.storage.commit import (
    checked_manifest,
    committed,
    read_json,
    sha256_of,
    write_json,
)
from electrify.storage.folder import Claim, refuse_other

_Part = TypeVar("_Part")
Record = dict[str, Any]
MakePart = Callable[[_Part, int, Path], Record]
"""Makes part number i in a folder and returns its record, whose "files" are those it wrote."""


class Build:
    """A folder under construction; `identity` is everything that decides its bytes.

    `files` are the names, or patterns of names, of what is built. `later` maps fields of the
    identity that older folders lack to the change that added each. The folder is locked until the
    `with` block ends.
    """

    def __init__(
        self,
        out: Path,
        kind: str,
        identity: dict[str, Any],
        later: Mapping[str, str] | None = None,
        files: Iterable[str] = (),
    ) -> None:
        self.out, self.kind, self.identity, self.later = out, kind, identity, later or {}
        self.staging = out / ".parts"
        self.finished = False
        self._claim: Claim | None = None
        self._files = list(files)
        self._written = ["manifest.json", "settings.toml", ".parts/**/*", *self._files]
        try:
            self._open()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _open(self) -> None:
        manifest, settings = self.out / "manifest.json", self.staging / "settings.json"
        if manifest.exists():
            self._refuse_other(checked_manifest(manifest)["identity"], self.identity, "was made")
            self.finished = True
            self._remove_staging()  # if killed after the last commit
            return
        self._claim = Claim(
            self.out,
            identity=".parts/settings.json",
            lock=".parts/lock",
            doing=f"building {self.out}",
            written=self._written,
        )
        identity = {**self.identity, "made_with": versions()}
        if settings.exists():
            self._refuse_other(read_json(settings), identity, "was started")
        else:
            write_json(settings, identity)

    def _refuse_other(self, before: dict[str, Any], now: dict[str, Any], was: str) -> None:
        others = "other settings, other input or other versions"
        refuse_other(self.out, before, now, others, was, later=self.later)

    def _remove_staging(self) -> None:
        """Remove the staging folder unless it is another's; the settings, which tell, last."""
        ours = (self.staging / "settings.json").exists()
        if ours or all(path.name == "lock" for path in self.staging.glob("*")):
            for folder in filter(Path.is_dir, self.staging.glob("*")):
                shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(self.staging, ignore_errors=True)

    def save_settings(self, toml: str) -> None:
        """Write the resolved settings to settings.toml."""
        with committed(self.out / "settings.toml") as temporary:
            temporary.write_text(toml, encoding="utf-8", errors="replace")

    def make(
        self, stage: str, parts: Iterable[_Part], work: MakePart[_Part], pool: Executor, ahead: int
    ) -> Generator[Record]:
        """Yield the records of all parts in order; parts that are already finished are skipped."""
        records = self.staging / stage
        records.mkdir(exist_ok=True)
        numbered = (  # finished parts are not sent to workers
            (index, None if _finished(self.out, records, index) else part)
            for index, part in enumerate(parts)
        )
        yield from in_order(partial(_make, work, self.out, records), numbered, pool, ahead)

    def keep_parts_of(self, state: str) -> None:
        """Keep the finished parts only if they were made from the same state of the input.

        The identity has the input's content before it was read. If that changed before a kill, and
        was restored, only something like the times of its files tells.
        """
        path = self.staging / "input.json"
        if not path.exists() or read_json(path) != state:
            self.discard()
            write_json(path, state)

    def discard(self) -> None:
        """Remove the finished parts, their records first."""
        for folder in filter(Path.is_dir, self.staging.glob("*")):
            shutil.rmtree(folder)
        for path in (path for pattern in self._files for path in self.out.glob(pattern)):
            path.unlink()

    def withdraw(self) -> None:
        """Clean the folder up if nothing was made yet, so that a corrected command can use it.

        Any file of a stage counts: a record, or the checkpoint of an unfinished run.
        """
        if not any(path.is_file() for path in self.staging.glob("*/**/*")):
            (self.out / "settings.toml").unlink(missing_ok=True)
            shutil.rmtree(self.staging, ignore_errors=True)
        self._release()

    def finish(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Commit the manifest, which completes the folder, and remove the staging folder."""
        manifest = {
            "kind": self.kind,
            "made_with": versions(),
            "identity": self.identity,
            **manifest,
        }
        write_json(self.out / "manifest.json", manifest)
        self._remove_staging()
        self._release()
        return manifest

    def _release(self) -> None:
        if self._claim:
            self._claim.close()
            self._claim = None


def versions() -> dict[str, str]:
    """Return the package versions that may decide bytes; parts of two versions are never mixed."""
    found = {"electrify": __version__, "python": platform.python_version()}
    for package in ("numpy", "pyarrow", "safetensors", "tokenizers", "ftfy"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _make(
    work: MakePart[_Part], out: Path, records: Path, numbered: tuple[int, _Part | None]
) -> Record:
    index, part = numbered
    if part is None:
        record: Record = read_json(_record_path(records, index))
        return record
    record = work(part, index, out)
    write_json(_record_path(records, index), record)
    return record


def _finished(out: Path, records: Path, index: int) -> bool:
    path = _record_path(records, index)
    if not path.exists():
        return False
    return all(
        (out / entry["name"]).is_file() and (out / entry["name"]).stat().st_size == entry["bytes"]
        for entry in read_json(path)["files"]
    )


def _record_path(records: Path, index: int) -> Path:
    return records / f"{index:06d}.json"


def committed_file(out: Path, name: str, write: Callable[[Path], object]) -> dict[str, Any]:
    """Commit one file of a part and return its entry for the record and the manifest."""
    with committed(out / name) as temporary:
        write(temporary)
        size, digest = temporary.stat().st_size, sha256_of(temporary)
    return {"name": name, "bytes": size, "sha256": digest}
