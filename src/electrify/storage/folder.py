"""The protocol shared by all folders that commands make.

1. `Claim` checks that the folder holds nothing else, locks it and removes half-written files.
2. The identity, which is everything that decides the content, is written first. If it exists
   already, `refuse_other` compares it with that of the command, which then resumes.
3. The file that makes the folder complete (manifest, result) is committed last.

A refused command leaves the folder as it was: complete, resumable or absent.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from electrify.errors import UserError
from electrify.storage.commit import differences, left_over, made_before
from electrify.storage.lock import hold
from electrify.storage.url import url_of


class Claim:
    """A folder that only this process may work in until the claim is closed.

    `identity` is the file below the folder that is written first. Until it exists, the folder may
    contain nothing but the lock and, if there is a lock, the names in `early`: a process that was
    killed before it wrote the identity leaves both. `written` are the names, or patterns of names,
    of committed files; half-written ones are removed.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        lock: str,
        doing: str,
        written: Collection[str],
        early: Collection[str] = (),
        strange: str = "files that electrify did not make",
    ) -> None:
        if url := url_of(folder):
            raise UserError(
                "--out must be a folder on a file system",
                got=url,
                fix='use a local folder, then copy it: python -c "import fsspec; '
                f"fs, path = fsspec.url_to_fs('{url}'); fs.put('FOLDER/', path, recursive=True)\"",
            )
        self._identity, self._lock_path = folder / identity, folder / lock
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file", got=f"{folder}", fix="use a folder for --out")
        self._early = [folder / name for name in early]
        found = [] if self._identity.exists() else strangers(folder, identity, lock, early)
        if found:
            raise UserError(
                f"{folder} contains {strange}",
                got=", ".join(sorted(found)[:5]),
                fix="use a new or empty folder for --out; nothing was touched",
            )
        parent = self._lock_path.parent
        self._created = [path for path in (parent, *parent.parents) if not path.exists()]
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be created",
                got=f"{error}",
                fix="use a folder for --out that can be created",
            ) from error
        self._lock = hold(self._lock_path, doing)
        try:
            for leftover in left_over(folder, written):  # of a process killed while writing
                leftover.unlink(missing_ok=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder; if nothing was written yet, remove what the claim created."""
        with self._lock, suppress(OSError):  # a folder that is not empty stays
            if not any(path.exists() for path in (self._identity, *self._early)):
                self._lock_path.unlink(missing_ok=True)
                for folder in filter(Path.exists, self._created):  # innermost first
                    folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def strangers(folder: Path, identity: str, lock: str, early: Collection[str] = ()) -> set[str]:
    """Return the files and folders that no `Claim` left in a folder without an identity."""
    lock_path = folder / lock
    halves = left_over(folder, [identity])
    known = {Path(lock).parts[0], *(path.relative_to(folder).parts[0] for path in halves)}
    if halves or lock_path.exists():
        known |= set(early)
    found = {path.name for path in folder.iterdir()} - known if folder.is_dir() else set()
    if lock_path.parent != folder:
        inside = (path for path in lock_path.parent.rglob("*") if not path.is_dir())
        ours = {lock_path, *halves}
        found |= {path.relative_to(folder).as_posix() for path in inside if path not in ours}
    return found


def refuse_other(
    folder: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    others: str,
    was: str = "was made",
    free: Collection[str] = (),
    later: Mapping[str, str] | None = None,
    free_later: Collection[str] = (),
) -> None:
    """Raise an error unless a folder has the identity that a command would give it.

    `others` describes what differs; fields named in `free` may differ. `later` maps fields that
    older folders lack to the change that added each; fields in `free_later` changed with them.

    >>> refuse_other(Path("run"), {"seed": 1}, {"seed": 2}, others="other settings")
    Traceback (most recent call last):
    electrify.errors.UserError: run was made with other settings
      got: seed: the folder has 1, the command says 2
      fix: use the same ones, or another --out; nothing was touched
    """
    got = differences(before, now, free, form="the folder has {}, the command says {}")
    if not got:
        return
    what, fix = f"with {others}", "use the same ones, or another --out"
    if change := made_before(before, now, later or {}, {*free, *free_later}):
        what, fix = f"before {change}", "use another --out"
    raise UserError(f"{folder} {was} {what}", got=got, fix=f"{fix}; nothing was touched")
