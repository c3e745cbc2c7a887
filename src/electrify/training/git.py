"""Read the commit of the working directory without running git.

A repository can name programs in its configuration (`core.fsmonitor`, filters), which `git status`
would run.
"""

import re
from pathlib import Path

_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"ref: (refs/(?!.*\.\.)\S+)")
MAX_REF_CHARS, MAX_PACKED_CHARS = 4_096, 1 << 24


def git_commit(folder: Path) -> str:
    """Return the commit that a folder's repository has checked out; empty if there is none."""
    roots = (parent / ".git" for parent in (folder, *folder.parents))
    found = next((root for root in roots if root.exists()), None)
    if found is None:
        return ""
    if found.is_file():  # of a worktree or a submodule
        found = found.parent / _text(found).removeprefix("gitdir: ")
    head = _text(found / "HEAD")
    if ref := _REF.fullmatch(head):
        shared = found / (_text(found / "commondir") or ".")
        loose = (_text(place / ref[1]) for place in (found, shared))
        head = next(filter(None, loose), "") or _packed(shared / "packed-refs", ref[1])
    return head if _COMMIT.fullmatch(head) else ""


def _text(path: Path, limit: int = MAX_REF_CHARS) -> str:
    """Return the first characters of a file; empty if it cannot be read."""
    try:
        if not path.is_file():  # reading a pipe might never end
            return ""
        with path.open(encoding="utf-8") as file:
            return file.read(limit).strip()
    except (OSError, ValueError):
        return ""


def _packed(path: Path, ref: str) -> str:
    pairs = (line.split() for line in _text(path, MAX_PACKED_CHARS).splitlines())
    return next((pair[0] for pair in pairs if pair[1:] == [ref]), "")
