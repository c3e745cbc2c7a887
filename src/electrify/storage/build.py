"""A folder that is made part by part, can be continued after a kill, and is whole or not there.

OUT/manifest.json      written last: without it the folder is not finished
OUT/*                  finished parts, each committed by itself
OUT/.parts/            while it is being built: the settings, and one record per finished part
"""

import platform
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any, TypeVar

from electrify import __version__
from electrify.errors import UserError
from electrify.jobs import in_order
from electrify.storage.commit import (
    checked_manifest,
    committed,
    differences,
    made_before,
    read_json,
    sha256_of,
    write_json,
)
from electrify.storage.lock import hold

_Part = TypeVar("_Part")
Record = dict[str, Any]
MakePart = Callable[[_Part, int, Path], Record]
"""Makes part number i in a folder and returns its record, whose "files" are what it wrote."""


class Build:
    """A folder under construction; `identity` is all that decides its bytes: settings, inputs.

    `later` has fields of the identity that older folders lack, and what began with each.
    """

    def __init__(
        self, out: Path, kind: str, identity: dict[str, Any], later: Mapping[str, str] | None = None
    ) -> None:
        self.out, self.kind, self.identity, self.later = out, kind, identity, later or {}
        self.staging = out / ".parts"
        self.finished = False
        self._lock: IO[bytes] | None = None
        self._open()

    def _open(self) -> None:
        manifest, settings = self.out / "manifest.json", self.staging / "settings.json"
        if manifest.exists():
            self._refuse_if_other(checked_manifest(manifest)["identity"], "was made")
            self.finished = True
            shutil.rmtree(self.staging, ignore_errors=True)  # of a run killed after its last commit
            return
        if self.out.exists() and not self.out.is_dir():
            raise UserError(f"{self.out} is a file", got=f"{self.out}", fix="give --out a folder")
        if self.out.is_dir() and any(self.out.iterdir()) and not self.staging.is_dir():
            raise UserError(
                f"{self.out} holds files that electrify did not make",
                got=", ".join(sorted(path.name for path in self.out.iterdir())[:5]),
                fix="give --out a new or empty folder; nothing was touched",
            )
        try:
            self.staging.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.out} cannot be made",
                got=f"{error}",
                fix="give --out a folder that can be made",
            ) from error
        self._lock = hold(self.staging / "lock", f"building {self.out}")
        for leftover in self.out.rglob(".*.tmp"):  # of a process that was killed while it wrote
            leftover.unlink()
        if settings.exists():
            self._refuse_if_other(read_json(settings), "was begun", with_versions=True)
        else:
            write_json(settings, {**self.identity, "made_with": versions()})

    def _refuse_if_other(
        self, there: dict[str, Any], was_made: str, with_versions: bool = False
    ) -> None:
        here = {**self.identity, "made_with": versions()} if with_versions else self.identity
        differing = differences(there, here)
        if not differing:
            return
        if since := made_before(there, here, self.later):
            raise UserError(
                f"{self.out} {was_made} before {since}",
                got=differing,
                fix="use another --out; nothing was touched",
            )
        raise UserError(
            f"{self.out} {was_made} with other settings, other input or other versions",
            got=differing,
            fix="use the same ones, or another --out; nothing was touched",
        )

    def save_settings(self, toml: str) -> None:
        """Keep the resolved settings beside what they made."""
        with committed(self.out / "settings.toml") as temporary:
            temporary.write_text(toml, encoding="utf-8", errors="replace")

    def make(
        self, stage: str, parts: Iterable[_Part], work: MakePart[_Part], pool: Executor, ahead: int
    ) -> Generator[Record]:
        """The records of all parts in order; what an earlier run finished is not made again."""
        job = partial(_make, work, self.out, self.staging / stage)
        (self.staging / stage).mkdir(exist_ok=True)
        yield from in_order(job, self._numbered(stage, parts), pool, ahead)

    def _numbered(self, stage: str, parts: Iterable[_Part]) -> Iterator[tuple[int, _Part | None]]:
        for index, part in enumerate(parts):
            done = _finished(self.out, self.staging / stage, index)
            yield index, None if done else part  # a finished part's bytes need not travel

    def withdraw(self) -> None:
        """Leave no trace if nothing was made yet: a corrected command can then use the folder."""
        if any(self.staging.glob("*/*.json")):
            return
        shutil.rmtree(self.staging, ignore_errors=True)
        (self.out / "settings.toml").unlink(missing_ok=True)
        with suppress(OSError):  # it holds something else
            self.out.rmdir()

    def finish(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Commit the manifest, which makes the folder whole, and clear the traces of the work."""
        manifest = {
            "kind": self.kind,
            "made_with": versions(),
            "identity": self.identity,
            **manifest,
        }
        write_json(self.out / "manifest.json", manifest)
        shutil.rmtree(self.staging, ignore_errors=True)
        if self._lock:
            self._lock.close()
        return manifest


def versions() -> dict[str, str]:
    """What may decide bytes beside settings and inputs: parts of two versions are never mixed."""
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
    """Commit one file of a part; returns its entry for the record and the manifest."""
    with committed(out / name) as temporary:
        write(temporary)
        size, digest = temporary.stat().st_size, sha256_of(temporary)
    return {"name": name, "bytes": size, "sha256": digest}
