"""Convert docstrings to plain text: drop markup, code and empty headings, unwrap paragraphs."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from electrify.corpora.wrapping import blocks_of, is_wrapped_prose, join_lines, wrap_width

_REMOVED = "\0"  # replaces code until the headings above it have been checked
_KEPT = re.compile(  # directives whose text is kept
    r"(?i:notes?|warnings?|caution|important|tip|hint|attention|danger|error|admonition|topic"
    r"|deprecated|version-?added|version-?changed)"
)
_DIRECTIVE = re.compile(r"(?:\.\. |!!! )(?P<name>[\w:.-]+?)(?:::| *$)(?: +(?P<rest>.*))?")
_COMMENT = re.compile(r"\.\.(?: (?!\[)|$)")  # also targets and substitutions, but not footnotes
_TAG = re.compile(r"</?[A-Z]\w*[^>]*>|\[!\w+\]")  # <Tip>, [!NOTE]
_VERSION = re.compile(r"v?\d[\w.]*[:,]?\s*")
_CODE = re.compile(
    r"from [\w.]+ import|import [\w.]+(?: as \w+)?$|(?:async )?def \w+\(|class \w+.*:$|@\w|[$%#] "
    r"|(?:for|if|while|with|try|else|elif|except)\b.*:$|(?:return|assert|raise|await|del) \S+$"
    r"|[\w.\[\]'\"]+(?:, \w+)* ?[-+*/|&]?= ?(?:\S+$|[\w.]+[(\[{]|[-\d\"'(\[{])"
    r"|[\w.]+\((?:(?:[^)]|\)(?! ))*[),(\[{])?(?:\.\w+)*$|[)\]}]+[,:]?$|[\w./]+ --?\w"
)
_UNDERLINE = re.compile(r"([-=~^\"'*+#])\1{2,}")
_BORDER = re.compile(r"[-=~^+| ]{3,}")
_CODE_LEAD = re.compile(  # lines that only announce code
    r"(?:\S+ ){0,3}\S+:|(?:(?:[Uu]sage|[Cc]ode|[Bb]asic) )?(?:[Ee]xamples?|[Uu]sage)(?: [Uu]sage)?"
)


def prose(text: str, code: bool = False) -> str:
    """Convert a docstring to plain text, one paragraph, parameter or row per line."""
    lines = _drop_empty_headings(list(_drop_markup(text.split("\n"), code)))
    width = wrap_width(lines)
    return strip_inline_markup("\n".join(unwrap(block, width) for block in blocks_of(lines)))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end_of_body(lines: Sequence[str], start: int, indent: int) -> int:
    """Return the index after the last line that is indented deeper than `indent`."""
    end = start
    for number in range(start, len(lines)):
        if lines[number].strip():
            if _indent(lines[number]) <= indent:
                break
            end = number + 1
    return end


def _end_of_block(lines: Sequence[str], start: int) -> int:
    return next((n for n in range(start, len(lines)) if not lines[n].strip()), len(lines))


def _drop_markup(lines: Sequence[str], code: bool) -> Iterator[str]:
    """Yield the lines without directives and, unless `code` is set, without code."""
    number = outer = 0
    while number < len(lines):
        start, line = number, lines[number]
        bare, indent = line.strip(), _indent(line)
        number += 1
        if directive := _DIRECTIVE.match(bare):
            if _KEPT.fullmatch(directive["name"]):
                yield " " * indent + _VERSION.sub("", directive["rest"] or "", count=1)
            elif not (code and "code" in directive["name"]):
                number = _end_of_body(lines, number, indent)
                yield _REMOVED
        elif _COMMENT.match(bare):
            number = _end_of_body(lines, number, indent)
        elif code:
            yield line
        elif bare.startswith(("```", "~~~")):
            ends = (n for n in range(number, len(lines)) if lines[n].strip() == bare[:3])
            number = next(ends, len(lines) - 1) + 1
            yield _REMOVED
        elif bare.startswith(">>>"):
            number = _end_of_block(lines, number)
            yield _REMOVED
        elif bare.endswith("::"):
            number = _end_of_body(lines, number, indent)
            yield line.rstrip(": ") + ":" if bare != "::" else ""
            yield _REMOVED
        elif _CODE.match(bare) and (end := _end_of_code(lines, start, outer)):
            number = end
            yield _REMOVED
        elif not _TAG.fullmatch(bare.removeprefix("> ")):
            marked = bare.startswith((".. [", "> "))  # a footnote, a quotation
            yield " " * indent + bare.partition(" ")[2] if marked else line
        outer = indent if bare else outer


def _end_of_code(lines: Sequence[str], start: int, outer: int) -> int:
    """Return where a block of code ends; 0 if it is not code or no block begins here."""
    indent = _indent(lines[start])
    if indent > outer:
        end = _end_of_body(lines, start, outer)
    elif start == 0 or not lines[start - 1].strip():
        end = _end_of_block(lines, start)
    else:
        return 0
    level = [line.strip() for line in lines[start:end] if line.strip() and _indent(line) <= indent]
    return end if sum(map(bool, map(_CODE.match, level))) * 2 > len(level) else 0


def _drop_empty_headings(lines: Sequence[str]) -> list[str]:
    """Return the lines without underlines and without headings of empty or removed sections."""
    kept: list[str] = []
    below, removed = -1, False  # the indent of the next line kept; -1 for a heading or the end
    number = len(lines)
    while number:
        number -= 1
        line, indent = lines[number], _indent(lines[number])
        bare = line.strip()
        above = lines[number - 1] if number else ""
        title = above.strip()
        alone = not title or title == _REMOVED or _indent(above) > indent
        if bare == _REMOVED:
            removed = True
        elif title.strip(_REMOVED) and _UNDERLINE.fullmatch(bare) and len(title) <= len(bare) + 2:
            number -= 1
            kept += [] if below == -1 else ["", above, ""]
            below, removed = -1, False
        elif not bare or _BORDER.fullmatch(bare):
            kept.append("")
        elif alone and _CODE_LEAD.fullmatch(bare) and below <= indent and (removed or below == -1):
            continue
        else:
            kept.append(line)
            below, removed = indent, False
    return kept[::-1]


_ITEM = re.compile(  # starts a line of its own: a list item, parameter or reference
    r"\s*(?:[-*+•] |\(?(?:\d{1,3}|[a-zA-Z])[.)] |[:@]\w|\[\d+\] |``?[^`]+``? ?:"
    r"|\*{0,2}\w[\w.]*(?: ?\(.*?\))? ?:(?:\s|$))"
)
_TERM = re.compile(r"\s*[*`\w][\w.,*` ]* : ")  # a parameter and its type; its description follows


def unwrap(block: Sequence[str], width: int) -> str:
    """Join a block of prose into one line; in other blocks join only the wrapped lines."""
    margin = min(map(_indent, block))
    block = [line[margin:] for line in block]
    width = min(max(40, width - margin), max(72, *map(len, block)))
    if not any(map(_ITEM.match, block[1:])) and is_wrapped_prose(block, width):
        return join_lines(block)
    joined = [[block[0]]]
    for line, after in pairwise(block):
        words = after.lstrip()
        full = len(line) + 1 + len(words.split(None, 1)[0]) > 0.85 * width
        open_end = len(line) > 50 and line[-1] not in ".:;!?" and words[0].islower()
        deep = _indent(after) >= _indent(joined[-1][0])
        if (full or open_end) and deep and not _TERM.match(line) and not _ITEM.match(after):
            joined[-1].append(after)
        else:
            joined.append([after])
    return "\n".join(lines[0][: -len(lines[0].lstrip())] + join_lines(lines) for lines in joined)


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


def strip_inline_markup(text: str) -> str:
    """Remove inline reStructuredText markup: roles, links, emphasis, fields."""
    text = _CITED.sub(r"\1", _FIELD.sub(r"\1\2\3:", _ESCAPE.sub(r"\1\2", text)))
    if "`" in text:
        text = _LITERAL.sub(r"\1", _LINK.sub(r"\1", _ROLE.sub(_role_text, text)))
    return _STRONG.sub(r"\2", text) if "*" in text else text


def _role_text(role: re.Match[str]) -> str:
    if titled := _TITLED.fullmatch(role[1]):
        return titled[1]
    return role[1].rpartition(".")[2] if role[1].startswith("~") else role[1].lstrip("!.")
