"""Wrapped lines: where a page ended them, and prose joined again as if it never had."""

import re
from collections.abc import Iterator, Sequence

_GAP = re.compile(r"\S {3,}\S|\t|\.{5,}")
_BULLET = re.compile(r"\s*(?:[-*+•:]|\.\.|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s")
_OPENING = re.compile(r"[\W_]*[A-ZÀ-ÞΑ-ΩА-Я]")


def blocks_of(lines: Sequence[str]) -> Iterator[list[str]]:
    """Runs of lines with something on them."""
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
    """Where the lines of a text were wrapped: nine of ten are shorter."""
    lengths = sorted(len(line.rstrip()) for line in lines if line.strip())
    return max(50, lengths[len(lengths) * 9 // 10]) if lengths else 50


def is_wrapped_prose(block: Sequence[str], width: int) -> bool:
    """Whether the lines of a block end where they do only because the page did.

    A wrapped line has no room for the first word of the next one. Verse has room, and begins its
    lines with capitals; a table has gaps; indented blocks and lists are set off on purpose.
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


def joined_prose(block: Sequence[str], width: int) -> str:
    """A block of prose as one line; any other as it is, without the margin."""
    if not is_wrapped_prose(block, width):
        margin = min(len(line) - len(line.lstrip()) for line in block)
        return "\n".join(line[margin:] for line in block)
    return one_line(block)


def one_line(block: Sequence[str]) -> str:
    """The lines of a block joined as if they had never been wrapped."""
    joined = ""
    for line in block:
        # a hyphen or dash at the end of a line belongs between its neighbours, without a space
        joined += ("" if not joined or joined.endswith("-") else " ") + " ".join(line.split())
    return joined
