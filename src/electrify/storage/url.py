"""Recognise URLs of object stores that were given as paths."""

import re
from pathlib import Path

# Paths have single slashes. A protocol has at least two letters: one is a drive on Windows.
_URL = re.compile(r"([a-z][a-z0-9+.]+):/+(.+)")


def url_of(path: Path) -> str | None:
    """Return the URL that a path was made from, or None if it is an ordinary path.

    >>> url_of(Path("s3://bucket/shards")), url_of(Path("file:///data/shards"))
    ('s3://bucket/shards', 'file:///data/shards')
    >>> url_of(Path("data/shards")) is None
    True
    """
    match = _URL.fullmatch(path.as_posix())
    if match is None or path.exists():
        return None
    protocol, rest = match.groups()
    return f"{protocol}://{'/' if protocol == 'file' else ''}{rest}"
