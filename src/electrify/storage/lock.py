"""Lock a folder so that one process at a time works in it."""

import errno
import fcntl
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from electrify.errors import UserError

# Errors of flock on file systems without locks: Lustre without -o flock, some NFS.
WITHOUT_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}


def hold(path: Path, what: str, wait: bool = False) -> IO[bytes]:
    """Take a lock, or raise an error that names its holder; closing the returned file releases it.

    With `wait`, it waits for the holder instead.

    The kernel releases the lock when the process dies, so there are no stale locks. A holder may
    remove the file, so a lock is valid only if its file still exists. On file systems without
    locks, this prints a warning instead.
    """
    while True:
        try:
            file = path.open("ab+", buffering=0)  # unbuffered, so that closing it cannot fail
        except FileNotFoundError as error:  # a holder that made nothing removes its empty folder
            raise UserError(
                f"another process is {what}",
                got=f"it has just removed {path.parent}",
                fix="run the same command again",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read(200).decode(errors="replace") or "its lock is held"
            file.close()
            raise UserError(
                f"another process is {what}", got=holder, fix="wait for it, or use another --out"
            ) from error
        except OSError as error:
            if error.errno not in WITHOUT_LOCKS:
                file.close()
                raise
            _warn(f"{error.strerror}")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}".encode())
    return file


@cache
def _warn(why: str) -> None:
    """Print a warning, only once because a command may take many locks."""
    print(
        f"warning: this file system cannot lock files ({why}); make sure that no other process "
        "uses the same --out",
        file=sys.stderr,
        flush=True,
    )
