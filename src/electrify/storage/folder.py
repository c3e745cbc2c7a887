"""The one protocol of folders that commands make, whatever they hold.

1. `Claim`: the folder holds nothing else, one process works in it, half-written files go.
2. The identity, which is all that decides the content, is written before anything else; where it is
   there already, `refuse_other` compares it with that of the command, which then resumes.
3. What makes the folder complete (manifest, result) is committed last.

A command that is refused leaves the folder as it was: complete, resumable or absent.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from electrify.errors import UserError
from electrify.storage.commit import differences, left_over, made_before
from electrify.storage.lock import hold


class Claim:
    """A folder in which this process alone works, until the claim is closed.

    `identity` is the file below the folder that is written first. Before it is there, the folder
    may hold nothing but the lock and what is called as in `early`. `written` are the names, or
    patterns of names, of files that are committed: of these, half-written ones are removed.
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
        self._identity, self._lock_path = folder / identity, folder / lock
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file", got=f"{folder}", fix="give --out a folder")
        known = {*early, Path(lock).parts[0]}
        known |= {path.relative_to(folder).parts[0] for path in left_over(folder, [identity])}
        found = sorted({path.name for path in folder.iterdir()} - known) if folder.is_dir() else []
        if found and not self._identity.exists():
            raise UserError(
                f"{folder} holds {strange}",
                got=", ".join(found[:5]),
                fix="give --out a new or empty folder; nothing was touched",
            )
        inside = self._lock_path.parent
        self._made = [one for one in (inside, *inside.parents) if not one.exists()]
        try:
            inside.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be made",
                got=f"{error}",
                fix="give --out a folder that can be made",
            ) from error
        self._lock = hold(self._lock_path, doing)
        try:
            for leftover in left_over(folder, written):  # of a process killed while it wrote
                leftover.unlink(missing_ok=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others in; without an identity, also remove what the claim made."""
        with self._lock, suppress(OSError):  # it holds something else
            if not self._identity.exists():
                self._lock_path.unlink(missing_ok=True)
                for folder in filter(Path.exists, self._made):  # innermost first
                    folder.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    `others` says what may be different; fields called as in `free` may differ. `later` has fields
    that older folders lack, and what began with each; fields as in `free_later` go with those.

    >>> refuse_other(Path("run"), {"seed": 1}, {"seed": 2}, others="other settings")
    Traceback (most recent call last):
    electrify.errors.UserError: run was made with other settings
      got: seed: 1 there, 2 here
      fix: use the same ones, or another --out; nothing was touched
    """
    differing = differences(before, now, free)
    if not differing:
        return
    if since := made_before(before, now, later or {}, {*free, *free_later}):
        fix = "use another --out; nothing was touched"
        raise UserError(f"{folder} {was} before {since}", got=differing, fix=fix)
    fix = "use the same ones, or another --out; nothing was touched"
    raise UserError(f"{folder} {was} with {others}", got=differing, fix=fix)
