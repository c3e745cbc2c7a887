"""What is done to the text of every document, whatever its kind: tidied, repaired, judged.

Also what several kinds need: bytes decoded, wrapped lines joined, marks of markup taken off.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

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


_ITEM = re.compile(  # what begins a line of its own: in a list, of parameters, of references
    r"\s*(?:[-*+•] |\(?(?:\d{1,3}|[a-zA-Z])[.)] |[:@]\w|\[\d+\] |``?[^`]+``? ?:"
    r"|\*{0,2}\w[\w.]*(?: ?\(.*?\))? ?:(?:\s|$))"
)
_TERM = re.compile(r"\s*[*`\w][\w.,*` ]* : ")  # and its type; what follows is about it


def unwrapped(block: Sequence[str], width: int) -> str:
    """A block of prose as one line; in any other, lines joined where one goes on in the next."""
    margin = min(len(line) - len(line.lstrip()) for line in block)
    block = [line[margin:] for line in block]
    width = min(max(40, width - margin), max(72, *map(len, block)))
    if not any(map(_ITEM.match, block[1:])) and is_wrapped_prose(block, width):
        return one_line(block)
    joined = [[block[0]]]
    for line, after in pairwise(block):
        words = after.lstrip()
        full = len(line) + 1 + len(words.split(None, 1)[0]) > 0.85 * width
        open_end = len(line) > 50 and line[-1] not in ".:;!?" and words[0].islower()
        start = len(joined[-1][0]) - len(joined[-1][0].lstrip())
        deep = len(after) - len(words) >= start
        if (full or open_end) and deep and not _TERM.match(line) and not _ITEM.match(after):
            joined[-1].append(after)
        else:
            joined.append([after])
    return "\n".join(lines[0][: -len(lines[0].lstrip())] + one_line(lines) for lines in joined)


_LITERAL = re.compile(r"``([^`\n]+)``")
_ROLE = re.compile(r"(?::[a-zA-Z][\w+.-]*)+:`([^`\n]+)`")
_LINK = re.compile(r"`([^`<\n]+?)(?: *<[^`>\n]+>)?`__?(?!\w)")
_CITED = re.compile(r"(\[[^]\s]+\])_(?!\w)")
_STRONG = re.compile(r"(?<![\w*])(\*\*?)(?![\s*])([\w ./'-]*\w)\1(?![\w*])")
_ESCAPE = re.compile(r"(`)\\ ?(?=\w)|\\([*_|])")
_FIELD = re.compile(
    r"^( *):(?:(?:param(?:eter)?|arg(?:ument)?|key(?:word)?|kwarg|[ic]?var) (?:[^:\n]* )?(\S+)"
    r"|((?:returns?|raises?|yields?)(?: [^:\n]+)?)):",
    re.MULTILINE,
)
_TITLED = re.compile(r"(.+?) *<[^>]+>")


def without_marks(text: str) -> str:
    """Text without the marks of reStructuredText inside lines: roles, links, emphasis, fields."""
    text = _CITED.sub(r"\1", _FIELD.sub(r"\1\2\3:", _ESCAPE.sub(r"\1\2", text)))
    if "`" in text:
        text = _LITERAL.sub(r"\1", _LINK.sub(r"\1", _ROLE.sub(_said, text)))
    return _STRONG.sub(r"\2", text) if "*" in text else text


def _said(role: re.Match[str]) -> str:
    if titled := _TITLED.fullmatch(role[1]):
        return titled[1]
    return role[1].rpartition(".")[2] if role[1].startswith("~") else role[1].lstrip("!.")


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
