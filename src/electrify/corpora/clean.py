"""What is done to the text of every document, whatever its kind: tidied, repaired, judged."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from electrify.errors import UserError

REPAIRED = "not valid UTF-8, repaired"


@dataclass(frozen=True)
class Filters:
    """Which documents stay."""

    min_chars: int = 1
    """Leave out documents with fewer characters."""
    max_chars: int = 10_000_000
    """Leave out documents with more characters."""
    min_letters: float = 0.0
    """Leave out documents where less than this share of the non-space characters are letters."""
    max_repeated_lines: float = 1.0
    """Leave out documents where more than this share of the lines repeat an earlier one."""
    repair: bool = False
    """Repair wrongly decoded Unicode (mojibake) with ftfy."""
    dedup: bool = False
    """Keep only the first of documents with the same text."""
    limit: int | None = None
    """Stop after this many documents."""

    def __post_init__(self) -> None:
        for name in ("min_letters", "max_repeated_lines"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise UserError(
                    f"{name} is not a share", got=f"{share}", fix="give a number from 0 to 1"
                )
        if self.min_chars > self.max_chars:
            raise UserError(
                "no text can be long and short enough at once",
                got=f"min_chars {self.min_chars:,}, max_chars {self.max_chars:,}",
                fix="lower min_chars or raise max_chars",
            )
        if self.limit is not None and self.limit < 1:
            raise UserError("limit leaves nothing", got=f"{self.limit}", fix="give 1 or more")


def decode(data: bytes, tally: Counter[str]) -> str:
    """UTF-8 bytes as text; bytes that are no UTF-8 become U+FFFD, and that is counted."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        tally[REPAIRED] += 1
        return data.decode(errors="replace")


def storable(text: str, tally: Counter[str]) -> str:
    """Text without lone surrogates, which JSON can carry and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        tally[REPAIRED] += 1
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_INVISIBLE = str.maketrans("", "", "\0\ufeff")
_BLANK_LINES = re.compile(r"\n{3,}")


def tidy(text: str) -> str:
    r"""LF line ends, no NUL or BOM, no trailing spaces, never more than one blank line.

    >>> tidy("\ufeffone  \r\n\r\n \r\ntwo\0\r")
    'one\n\ntwo'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text or "\ufeff" in text:
        text = text.translate(_INVISIBLE)
    # not a regular expression: one that looks for spaces before a line end is quadratic
    lines = "\n".join(map(str.rstrip, text.split("\n")))
    return _BLANK_LINES.sub("\n\n", lines).strip()


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


def is_prose(block: Sequence[str], width: int) -> bool:
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


def paragraph(block: Sequence[str], width: int) -> str:
    """A block of prose as one line; any other as it is, without the margin."""
    if not is_prose(block, width):
        margin = min(len(line) - len(line.lstrip()) for line in block)
        return "\n".join(line[margin:] for line in block)
    joined = ""
    for line in block:
        # a hyphen or dash at the end of a line belongs between its neighbours, without a space
        joined += ("" if not joined or joined.endswith("-") else " ") + " ".join(line.split())
    return joined


@cache
def _ftfy_line() -> Callable[[str], str]:
    try:
        import ftfy
    except ImportError as error:
        raise UserError(
            "repairing Unicode needs ftfy", got=str(error), fix='pip install "electrify[data]"'
        ) from error
    # quotes and ligatures are the author's: what is repaired is wrong decoding alone
    config = ftfy.TextFixerConfig(
        uncurl_quotes=False, fix_latin_ligatures=False, unescape_html=False, explain=False
    )
    return lambda line: str(ftfy.fix_text_segment(line, config))


def repaired(text: str) -> str:
    """Text with mojibake undone, line by line, as ftfy advises: it is slow on long texts."""
    fix = _ftfy_line()
    return "\n".join(line if line.isascii() else fix(line) for line in text.split("\n"))


def share_of_letters(text: str) -> float:
    """Letters and the marks that combine with them, among all characters that are not space."""
    count = Counter(text)
    visible = sum(n for char, n in count.items() if not char.isspace())
    letters = sum(
        n for char, n in count.items() if char.isalpha() or unicodedata.category(char)[0] == "M"
    )
    return letters / visible if visible else 0.0


def share_of_repeated_lines(text: str) -> float:
    """Lines that say what an earlier line said, among all lines that say something."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def reason_to_drop(text: str, filters: Filters) -> str | None:
    """Why a tidied text does not stay, or None; the cheap questions come first."""
    if not text or text.isspace():
        return "empty"
    if len(text) < filters.min_chars:
        return "too short"
    if len(text) > filters.max_chars:
        return "too long"
    if filters.min_letters > 0 and share_of_letters(text) < filters.min_letters:
        return "too few letters"
    if (
        filters.max_repeated_lines < 1
        and share_of_repeated_lines(text) > filters.max_repeated_lines
    ):
        return "repeated lines"
    return None
