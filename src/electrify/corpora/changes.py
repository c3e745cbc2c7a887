"""Notice that sources change while they are read."""

import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from electrify.corpora.archive import printable
from electrify.errors import UserError


@contextmanager
def unchanged(sources: Sequence[Path]) -> Iterator[Callable[[], None]]:
    """Yield a function that raises an error if files of the sources have changed since then.

    It is called after an error too, because the change may have caused it.
    """
    before = _stamps(sources)

    def check() -> None:
        now = _stamps(sources)
        changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
        if changed:
            names = ", ".join(map(printable, sorted(changed)[:3]))
            raise UserError(
                "the sources changed while they were read",
                got=f"{names} and {len(changed) - 3:,} more" if len(changed) > 3 else names,
                fix="wait until nothing writes to them, and use a new or empty folder for --out",
            )

    try:
        yield check
    except Exception:
        check()
        raise


def _stamps(sources: Sequence[Path]) -> dict[str, tuple[int, int, int]]:
    """Return size, modification time and inode of every file."""
    stamps = {}
    for source in sources:
        for path in source.rglob("*") if source.is_dir() else [source]:
            with suppress(OSError):  # removed meanwhile
                found = path.stat()
                if stat.S_ISREG(found.st_mode):
                    stamps[str(path)] = found.st_size, found.st_mtime_ns, found.st_ino
    return stamps
