"""Detect wrapped lines and join them into paragraphs."""

import re
from collections.abc import Iterator, Sequence

_GAP = re.compile(r"\S {3,}\S|\t|\.{5,}")
_BULLET = re.compile(r"\s*(?:[-*+•:]|\.\.|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s")
_OPENING = re.compile(r"[\W_]*[A-ZÀ-ÞΑ-ΩА-Я]")


def blocks_of(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield runs of non-blank lines."""
    block: list[str] = []
    for line in lines:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []
    if block:
        yield block


def wrap_width(lines: Sequence[str]) -> int:
    """Estimate the width at which a text was wrapped: the 90th percentile of its line lengths."""
    lengths = sorted(len(line.rstrip()) for line in lines if line.strip())
    return max(50, lengths[len(lengths) * 9 // 10]) if lengths else 50


def is_wrapped_prose(block: Sequence[str], width: int) -> bool:
    """Return whether the lines of a block are prose that was wrapped at `width`.

    A wrapped line has no room for the first word of the next line. Verse has room, and its lines
    begin with capitals; tables have gaps; indented blocks and lists are intentional.
    """
    following = block[1:]
    if not following:
        return True
    if sum(line.startswith(("  ", "\t")) for line in following) * 2 >= len(following):
        return False
    if sum(bool(_GAP.search(line.strip())) for line in block) * 2 >= len(block):
        return False
    if sum(map(bool, map(_BULLET.match, following))) * 4 >= len(following):
        return False
    if len(block) >= 4 and sum(map(bool, map(_OPENING.match, following))) >= 0.8 * len(following):
        return False
    full = [
        len(line) + 1 + len(after.split(None, 1)[0]) >= 0.8 * width
        for line, after in zip(block, following, strict=False)
    ]
    return sum(full) >= 0.6 * len(full)


def unwrap_prose(block: Sequence[str], width: int) -> str:
    """Join a block of prose into one line; return any other block without its margin."""
    if not is_wrapped_prose(block, width):
        margin = min(len(line) - len(line.lstrip()) for line in block)
        return "\n".join(line[margin:] for line in block)
    return join_lines(block)


def join_lines(block: Sequence[str]) -> str:
    """Join wrapped lines into one line."""
    joined = ""
    for line in block:
        # no space after a hyphen or dash at the end of a line
        joined += ("" if not joined or joined.endswith("-") else " ") + " ".join(line.split())
    return joined
