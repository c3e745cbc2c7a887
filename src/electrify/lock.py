"""One process at a time works in a folder."""

import fcntl
import os
import platform
from pathlib import Path
from typing import IO

from electrify.errors import UserError


def hold(path: Path, what: str) -> IO[bytes]:
    """Take the lock, or say who has it. Hold on to what this returns; closing it lets go.

    The kernel frees it when the process dies, so a stale lock cannot stay.
    """
    file = path.open("ab+", buffering=0)  # nothing to write, and fail, once more when it closes
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read(200).decode(errors="replace") or "its lock is held"
        file.close()
        raise UserError(
            f"another process is {what}", got=holder, fix="wait for it, or give another --out"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}".encode())
    return file
