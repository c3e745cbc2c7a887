"""Notice that sources change while they are read."""

import hashlib
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from electrify.corpora.archive import printable
from electrify.errors import UserError
from electrify.storage.commit import json_bytes


class SourcesChanged(UserError):
    """Files of the sources changed while they were read."""


class Watched:
    """Sources whose files must stay as they are from now on."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self._sources, self._before = sources, _stamps(sources)

    @property
    def fingerprint(self) -> str:
        """Return a hash that also differs if a file was moved away and back, or rewritten."""
        return hashlib.sha256(json_bytes(sorted(self._before.values()))).hexdigest()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raise an error after the block if files have changed.

        An error of the block is replaced then, because the change may have caused it.
        """
        try:
            yield
        except Exception:
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        # Not the time of the inode: a new hard link, such as that of a backup, changes it too.
        both = self._before, _stamps(self._sources)
        before, now = ({path: stamp[:3] for path, stamp in one.items()} for one in both)
        changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
        if changed:
            names = ", ".join(map(printable, sorted(changed)[:3]))
            raise SourcesChanged(
                "the sources changed while they were read",
                got=f"{names} and {len(changed) - 3:,} more" if len(changed) > 3 else names,
                fix="wait until nothing writes to them, then run the same command again",
            )


def _stamps(sources: Sequence[Path]) -> dict[str, tuple[int, int, int, int]]:
    """Return size, inode, modification time and the inode's time of every file."""
    stamps = {}
    for source in sources:
        for path in source.rglob("*") if source.is_dir() else [source]:
            with suppress(OSError):  # removed meanwhile
                found = path.stat()
                if stat.S_ISREG(found.st_mode):
                    times = found.st_mtime_ns, found.st_ctime_ns
                    stamps[str(path)] = found.st_size, found.st_ino, *times
    return stamps
