"""One process at a time works in a folder."""

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

# What flock fails with where the file system has no locks: Lustre without -o flock, some NFS.
WITHOUT_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}


def hold(path: Path, what: str) -> IO[bytes]:
    """Take the lock, or say who has it. Hold on to what this returns; closing it lets go.

    The kernel frees it when the process dies, so a stale lock cannot stay. A holder may remove the
    file, so a lock counts only if its file is still there. Where the file system has no locks,
    there is a warning instead.
    """
    while True:
        try:
            file = path.open("ab+", buffering=0)  # nothing to write, and fail, again when it closes
        except FileNotFoundError as error:  # a holder that got nowhere removes its empty folder
            raise UserError(
                f"another process is {what}",
                got=f"it has just removed {path.parent}",
                fix="run the same command again",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read(200).decode(errors="replace") or "its lock is held"
            file.close()
            raise UserError(
                f"another process is {what}", got=holder, fix="wait for it, or give another --out"
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
    """Once: a command may take many locks."""
    print(
        f"warning: this file system cannot lock files ({why}); make sure that no other process "
        "uses the same --out",
        file=sys.stderr,
        flush=True,
    )
