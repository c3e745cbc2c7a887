"""Findings of `electrify doctor`: one line each, without anything that identifies a person."""

import getpass
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "missing"]


class Finding(NamedTuple):
    """What one check found."""

    name: str
    value: str
    status: Status = "ok"
    """missing: electrify cannot train without it."""
    fix: str = ""


MachineCheck = Callable[[], Finding | Iterable[Finding]]


def findings(checks: Mapping[str, MachineCheck]) -> Iterator[Finding]:
    """Run checks by name; one that fails is itself a finding."""
    for name, check in checks.items():
        try:
            found = check()
            several = [found] if isinstance(found, Finding) else list(found)
        except Exception as error:  # of any kind: a report with a gap is better than none
            several = [Finding(name, f"could not be checked: {error!r}", "warn")]
        for finding in several:
            yield finding._replace(value=anonymous(finding.value), fix=anonymous(finding.fix))


_HOMES = re.compile(r"(?:/home|/Users)/[^/\s:'\"]+")
_TOKEN = re.compile(r"\bhf_\w{8,}")
_PASSWORD = re.compile(r"//[^/@\s]+@")
SHORTEST_NAME = 3  # shorter names of users and hosts occur in other words


def anonymous(text: str) -> str:
    """Return a text without home folders, tokens, and the names of the user and the host.

    >>> anonymous("/home/ann/venv/lib/libc10.so, https://ann:secret@hub, hf_abcdefghij")
    '~/venv/lib/libc10.so, https://hub, hf_…'
    """
    with suppress(RuntimeError):  # there may be no home
        home = str(Path.home())
        text = re.sub(rf"{re.escape(home)}(?=/|\b)", "~", text) if len(home) > 1 else text
    text = _PASSWORD.sub("//", _TOKEN.sub("hf_…", _HOMES.sub("~", text)))
    names = {"HOST": socket.gethostname()}
    with suppress(Exception):  # getpass raises several kinds of errors
        names["USER"] = getpass.getuser()
    for instead, name in names.items():
        if len(name) >= SHORTEST_NAME and name not in ("root", "localhost"):
            text = re.sub(rf"\b{re.escape(name)}\b", instead, text)
    return text
