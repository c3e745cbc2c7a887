"""Errors for users: each says what is wrong, what was given, and how to fix it."""

import errno
import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

# C0 and C1 codes can control a terminal; directional overrides reverse the text after them.
_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {
    code: "\ufffd"
    for code in (*range(32), *range(127, 160), *_DIRECTIONS)
    if chr(code) not in "\n\t"
}

EXIT_USER = 2
EXIT_DAMAGED = 3
EXIT_GUARD = 4
EXIT_INTERRUPTED = 130


def visible(text: str) -> str:
    r"""Return text with control characters, which could control the terminal, replaced.

    >>> visible("a \x1b[31mred name")
    'a �[31mred name'
    """
    return text.translate(_CONTROLS)


class UserError(Exception):
    """Something the user can fix. Printed without a traceback; exit code 2.

    >>> print(UserError("corpus too small", got="11,204 tokens", fix="add text"))
    corpus too small
      got: 11,204 tokens
      fix: add text
    """

    exit_code = EXIT_USER

    def __init__(self, what: str, *, got: str, fix: str) -> None:
        super().__init__(what, got, fix)
        self.what, self.got, self.fix = what, got, fix

    def __str__(self) -> str:
        return visible(f"{self.what}\n  got: {self.got}\n  fix: {self.fix}")

    def __reduce__(self) -> tuple[object, ...]:  # pickle would not pass the keyword arguments on
        return partial(type(self), got=self.got, fix=self.fix), (self.what,)


class DamagedError(UserError):
    """A file on disk is not what was written. Exit code 3."""

    exit_code = EXIT_DAMAGED


class GuardError(UserError):
    """Training was stopped because it diverged. Exit code 4."""

    exit_code = EXIT_GUARD


def needs(module: str, *, extra: str, why: str = "") -> Any:
    """Import an optional module; if it is missing, the error names the extra that installs it.

    >>> needs("no_such_package", extra="data", why="reading Parquet")
    Traceback (most recent call last):
    electrify.errors.UserError: reading Parquet needs no_such_package, which is not installed
      got: No module named 'no_such_package'
      fix: pip install "electrify[data]"
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise UserError(
            (f"{why} needs {package}, which" if why else package) + " is not installed",
            got=str(error),
            fix=f'pip install "electrify[{extra}]"',
        ) from error


SYSTEM_FAULTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
    errno.EROFS: "the folder cannot be written to",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk reports an error",
    errno.ENAMETOOLONG: "a name is longer than this system allows",
}


def deleted_directory() -> UserError | None:
    """Return an error if the working directory was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return UserError(
            "the working directory no longer exists",
            got=os.environ.get("PWD", "a deleted folder"),
            fix="cd to a folder that exists and run the same command again",
        )
    return None


def system_error(error: OSError) -> UserError | None:
    """Return the error for a fault of the system such as a full disk; None for other faults."""
    if (what := SYSTEM_FAULTS.get(error.errno or 0)) is None:
        return None
    return UserError(
        what,
        got=f"{error}",
        fix="fix this and run the same command again; finished parts are kept",
    )
