"""Clean, repair and filter the text of every document, whatever the kind of corpus."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from electrify.corpora.archive import MAX_DOCUMENT_BYTES
from electrify.corpora.troubles import REPAIRED
from electrify.errors import UserError, needs


@dataclass(frozen=True)
class Filters:
    """Which documents to keep."""

    min_chars: int = 1
    """Drop documents with fewer characters."""
    max_chars: int = MAX_DOCUMENT_BYTES
    """Drop documents with more characters; cannot exceed 10,000,000."""
    min_letters: float = 0.0
    """Drop documents with a smaller fraction of letters among the non-space characters."""
    max_repeated_lines: float = 1.0
    """Drop documents in which a larger fraction of the lines repeats an earlier line."""
    repair: bool = False
    """Fix wrongly decoded Unicode (mojibake) with ftfy."""
    dedup: bool = False
    """Keep only the first of several documents with the same text."""
    limit: int | None = None
    """Stop after this many documents; by default all are read."""

    def __post_init__(self) -> None:
        fractions = {
            "--min-letters": self.min_letters,
            "--max-repeated-lines": self.max_repeated_lines,
        }
        for option, fraction in fractions.items():
            if not 0 <= fraction <= 1:
                what = f"{option} must be between 0 and 1"
                raise UserError(what, got=f"{fraction}", fix="use a fraction such as 0.5")
        if self.max_chars > MAX_DOCUMENT_BYTES:
            raise UserError(
                "--max-chars is too large",
                got=f"{self.max_chars:,}",
                fix=f"use at most {MAX_DOCUMENT_BYTES:,}: longer documents are never read",
            )
        if self.min_chars > self.max_chars:
            raise UserError(
                "--min-chars must not be larger than --max-chars",
                got=f"--min-chars {self.min_chars:,}, --max-chars {self.max_chars:,}",
                fix="lower --min-chars or raise --max-chars",
            )
        if self.limit is not None and self.limit < 1:
            raise UserError(
                "--limit must be at least 1",
                got=f"{self.limit}",
                fix="use 1 or more, or leave --limit out to keep all documents",
            )


def decode_utf8(data: bytes, tally: Counter[str]) -> str:
    """Decode UTF-8; invalid bytes become U+FFFD and are counted as repaired."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        tally[REPAIRED] += 1
        return data.decode(errors="replace")


def replace_surrogates(text: str, tally: Counter[str]) -> str:
    """Replace lone surrogates, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        tally[REPAIRED] += 1
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


_INVISIBLE = str.maketrans("", "", "\0\ufeff")
_BLANK_LINES = re.compile(r"\n{3,}")


def tidy(text: str) -> str:
    r"""Normalize to LF line ends, without NUL, BOM, trailing spaces or repeated blank lines.

    >>> tidy("\ufeffone  \r\n\r\n \r\ntwo\0\r")
    'one\n\ntwo'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text or "\ufeff" in text:
        text = text.translate(_INVISIBLE)
    # A regular expression that looks for spaces before a line end would take quadratic time.
    lines = "\n".join(map(str.rstrip, text.split("\n")))
    return _BLANK_LINES.sub("\n\n", lines).strip()


@cache
def _ftfy_line() -> Callable[[str], str]:
    ftfy = needs("ftfy", extra="data", why="repairing Unicode")
    # Only wrong decoding is repaired; quotes and ligatures are the author's choice.
    config = ftfy.TextFixerConfig(
        uncurl_quotes=False, fix_latin_ligatures=False, unescape_html=False, explain=False
    )
    return lambda line: str(ftfy.fix_text_segment(line, config))


def repair_unicode(text: str) -> str:
    """Fix mojibake line by line, as ftfy advises because it is slow on long texts."""
    fix = _ftfy_line()
    return "\n".join(line if line.isascii() else fix(line) for line in text.split("\n"))


def letter_fraction(text: str) -> float:
    """Return the fraction of non-space characters that are letters or combining marks."""
    count = Counter(text)
    visible = sum(n for char, n in count.items() if not char.isspace())
    letters = sum(
        n for char, n in count.items() if char.isalpha() or unicodedata.category(char)[0] == "M"
    )
    return letters / visible if visible else 0.0


def repeated_line_fraction(text: str) -> float:
    """Return the fraction of non-blank lines that repeat an earlier line."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    return 1 - len(set(lines)) / len(lines) if lines else 0.0


def reason_to_drop(text: str, filters: Filters) -> str | None:
    """Return why to drop a tidied text, or None to keep it; the cheap checks come first."""
    if not text or text.isspace():
        return "empty"
    if len(text) < filters.min_chars:
        return "too short"
    if len(text) > filters.max_chars:
        return "too long"
    if filters.min_letters > 0 and letter_fraction(text) < filters.min_letters:
        return "too few letters"
    if filters.max_repeated_lines < 1 and repeated_line_fraction(text) > filters.max_repeated_lines:
        return "repeated lines"
    return None
