"""The files that a page's numbers came from, with their hashes."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.reports.page import Html, code, details, joined, paragraph, table, text


class Source(NamedTuple):
    """What was read of a file; a journal may have grown since."""

    name: str
    """The path relative to the folder of the run or results."""
    size: int
    sha256: str


def read_source(folder: Path, name: str) -> tuple[bytes, Source]:
    """Read a file once, and return its bytes together with their hash."""
    content = (folder / name).read_bytes()
    return content, Source(name, len(content), hashlib.sha256(content).hexdigest())


def sources_table(sources: Sequence[Source]) -> Html:
    """Return a table of every file that was read."""
    rows = [[text(s.name), text(f"{s.size:,}"), code(s.sha256)] for s in sources]
    columns = [text("file"), text("bytes"), text("SHA-256")]
    caption = f"Source files of these numbers: {len(sources)}"
    check = code("head -c BYTES FILE | sha256sum")
    hint = Html(f"To check a file that has grown since, hash only its first bytes: {check}")
    listed = [table(caption, columns, rows, left=(0, 2)), paragraph(hint, "soft")]
    return details(text(caption), joined(listed))
