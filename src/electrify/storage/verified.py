"""Remember which files were verified, so that resuming a run does not hash its shards again."""

import os
from contextlib import suppress
from pathlib import Path
from threading import Lock

from electrify.errors import DamagedError
from electrify.storage.commit import read_json, write_json

Stamp = tuple[str, str, int, int, int]
"""Path, expected SHA-256, size, time of the last change and inode."""


class Verified:
    """Stamps of files that matched their checksums; `RUN/verified.json` keeps them."""

    def __init__(self, path: Path | None = None) -> None:
        self._stamps = _read(path) if path else set()
        self._path: Path | None = None
        self._saving = Lock()

    def __contains__(self, stamp: object) -> bool:
        return stamp in self._stamps

    def add(self, stamp: Stamp) -> None:
        """Add the stamp that a verified file had before it was read."""
        self._stamps.add(stamp)

    def keep(self, path: Path) -> None:
        """Write the stamps to a file, now and at every `save`."""
        self._path = path
        self.save()

    def save(self) -> None:
        """Write the stamps if `keep` was called."""
        with self._saving, suppress(OSError):  # without the file, the next start only takes longer
            if self._path:
                write_json(self._path, sorted(self._stamps.copy()))


def stamp_of(path: Path, sha256: str) -> Stamp:
    """Return a stamp that identifies a file as it is now; writing to the file changes it.

    The time is that of the inode, because `cp -p` and `touch` can set the modification time.
    """
    stat = path.stat()
    return os.path.realpath(path), sha256, stat.st_size, stat.st_ctime_ns, stat.st_ino


def _read(path: Path) -> set[Stamp]:
    try:
        return {(str(p), str(h), int(s), int(t), int(i)) for p, h, s, t, i in read_json(path)}
    except (OSError, DamagedError, OverflowError, TypeError, ValueError):
        return set()  # then all is verified again
