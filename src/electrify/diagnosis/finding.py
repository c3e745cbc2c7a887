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
        several: list[Finding] = []
        try:
            found = check()
            several.extend([found] if isinstance(found, Finding) else found)  # one by one
        except Exception as error:  # of any kind: a report with a gap is better than none
            several.append(Finding(name, f"could not be checked: {error!r}", "warn"))
        for finding in several:
            yield finding._replace(value=anonymous(finding.value), fix=anonymous(finding.fix))


_HOMES = re.compile(r"(?:/home|/Users)/[^/\s:'\"]+")
_TOKEN = re.compile(r"\bhf_\w{8,}")
_ADDRESS = re.compile(
    r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}"
)
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
    host = socket.gethostname()
    names = dict.fromkeys([socket.getfqdn(), host, host.partition(".")[0]], "HOST")
    with suppress(Exception):  # getpass raises several kinds of errors
        names[getpass.getuser()] = "USER"
    text = _ADDRESS.sub("ADDRESS", text)
    for name, instead in names.items():
        if len(name) >= SHORTEST_NAME and name not in ("root", "localhost"):
            text = re.sub(rf"\b{re.escape(name)}\b", instead, text)
    return text
