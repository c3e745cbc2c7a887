"""What is done to the text of every document, whatever its kind: tidied, repaired, judged."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from electrify.corpora.archive import LIMIT
from electrify.corpora.troubles import REPAIRED
from electrify.errors import UserError, needs


@dataclass(frozen=True)
class Filters:
    """Which documents stay."""

    min_chars: int = 1
    """Leave out documents with fewer characters."""
    max_chars: int = LIMIT
    """Leave out documents with more characters. 10,000,000 is the most: no reader gives more."""
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
                    f"{_option(name)} is not a share",
                    got=f"{share}",
                    fix="give a number from 0 to 1",
                )
        if self.max_chars > LIMIT:
            raise UserError(
                "--max-chars is too large",
                got=f"{self.max_chars:,}",
                fix=f"give {LIMIT:,} at most: what is longer is not read at all",
            )
        if self.min_chars > self.max_chars:
            raise UserError(
                "no text can be long and short enough at once",
                got=f"--min-chars {self.min_chars:,}, --max-chars {self.max_chars:,}",
                fix="lower --min-chars or raise --max-chars",
            )
        if self.limit is not None and self.limit < 1:
            raise UserError("--limit leaves nothing", got=f"{self.limit}", fix="give 1 or more")


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")


def decode_utf8(data: bytes, tally: Counter[str]) -> str:
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


@cache
def _ftfy_line() -> Callable[[str], str]:
    ftfy = needs("ftfy", extra="data", why="repairing Unicode")
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
