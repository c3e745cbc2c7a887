"""Which bytes a page's numbers came from: files by their hashes."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.reports.page import Html, code, details, joined, paragraph, table, text


class Source(NamedTuple):
    """What was read of a file: all of it, or as much as was there of one that grows."""

    name: str
    """Below the folder the page is about."""
    size: int
    sha256: str


def read_source(folder: Path, name: str) -> tuple[bytes, Source]:
    """The bytes of a file and what identifies them: read once, so that both are of one moment."""
    content = (folder / name).read_bytes()
    return content, Source(name, len(content), hashlib.sha256(content).hexdigest())


def sources_table(sources: Sequence[Source]) -> Html:
    """Every file that was read, by its hash."""
    rows = [[text(s.name), text(f"{s.size:,}"), code(s.sha256)] for s in sources]
    columns = [text("file"), text("bytes"), text("SHA-256")]
    caption = f"Files the numbers came from: {len(sources)}"
    how = paragraph(
        joined(
            [
                text("A file that has grown since is checked up to that length: "),
                code("head -c BYTES FILE | sha256sum"),
            ],
            "",
        ),
        "soft",
    )
    listed = joined([table(caption, columns, rows, left=(0, 2)), how])
    return details(text(caption), listed)
