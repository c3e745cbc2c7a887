"""Convert wikitext to clean prose, in linear time for any input.

The order is that of MediaWiki: comments, then tags (some contain text that is not wikitext), then
nested brackets (templates, tables, links), then single lines. Markup that is never closed loses
little more than its brackets: a missing brace must not swallow an article.
"""

import re
from collections.abc import Callable, Iterator
from html import unescape

from electrify.corpora import wikitemplates
from electrify.corpora.wikisite import Site, render_link, words
from electrify.corpora.wikitemplates import BREAK, RAISED

MAX_NESTING = 40  # as in MediaWiki; bounds how often a character is copied
MAX_LEAD_CHARS = 20_000  # in which an article names its subject, including an infobox
_SEAM = "\x01"  # separates quotes before a tag from those after it; XML forbids it too

# --- comments and tags ----------------------------------------------------------------------------

_MARKUP = {ord(sign): f"&#{ord(sign)};" for sign in "[]{}|<>'=*#:;_!-"}


def _literal(content: str) -> str:
    return content.translate(_MARKUP)


def _formula(content: str) -> str:
    return _literal(wikitemplates.formula(content.replace(_SEAM, "")))


# Elements whose content is not wikitext, and how it is rendered.
_DROPPED = words(
    "ref references gallery pre source syntaxhighlight timeline score hiero imagemap graph mapframe"
    " maplink templatedata templatestyles inputbox categorytree indicator includeonly rt rp style"
)
_RAW: dict[str, Callable[[str], str]] = {
    "nowiki": _literal, "math": _formula, "chem": _formula, "ce": _formula,
    **dict.fromkeys(_DROPPED, lambda content: ""),
}  # fmt: skip
# What replaces the other tags. A tag in neither table is text: "<joe@example.org>".
_INLINE = words(
    "b i u s em strong span font big small sub sup tt code var kbd samp cite abbr acronym dfn q ins"
    " del strike bdi bdo ruby rb rtc mark nobr wbr data time noinclude onlyinclude section img"
    " tbody thead tfoot colgroup col"
)
_BLOCK = words(
    "p div br center blockquote hr ul ol dl li dt dd h1 h2 h3 h4 h5 h6 poem tr td th caption"
)
_TAGS = dict.fromkeys(_INLINE, "") | dict.fromkeys(_BLOCK, BREAK) | {
    "table": "\n{|\n", "/table": "\n|}\n",
}  # fmt: skip
# What these never contain: if found, the element was not closed, but another one was.
_NEVER_INSIDE = {"ref": "<ref", "math": "<math", "nowiki": "\n=="}
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)\b([^<>]*)>")
# Most references match this, which is faster than a call for each.
_SIMPLE_REF = re.compile(r"<ref\b[^<>]*(?:/>|(?<!/)>[^<]*</ref>)")
_RAISED_NUMBER = re.compile(r"<sup>((?:[-+−]|&minus;)?\d{1,4})</sup>")


def _drop_comments(text: str) -> str:
    first, *rest = text.split("<!--")
    kept, unclosed = [first], []
    for part in rest:
        inside, end, after = part.partition("-->")
        if not end:
            unclosed.append(inside)
            continue
        unclosed.clear()
        # A comment on its own line is removed with the line, or it would split a paragraph.
        alone = after.startswith("\n") and kept[-1].endswith("\n")
        kept.append(after[1:] if alone else after)
    return "".join(kept + unclosed)


def _drop_tags(text: str) -> str:
    text = _SIMPLE_REF.sub("", text.replace("'<", f"'{_SEAM}<"))
    if "<sup>" in text:
        text = _RAISED_NUMBER.sub(lambda found: unescape(found[1]).translate(RAISED), text)
    kept, done = [], 0
    ends: dict[str, tuple[int, int]] = {}  # the next end of each raw element, found once
    for tag in _TAG.finditer(text):
        start, stop = tag.span()
        if start < done:  # inside a raw element
            continue
        closing, name = tag[1], tag[2].lower()
        raw = _RAW.get(name)
        replacement = "" if raw else _TAGS.get(closing + name, _TAGS.get(name))
        if replacement is None:
            continue
        kept.append(text[done:start])
        done = stop
        if raw and not closing and not tag[3].endswith("/"):
            end, after = ends.get(name, (-1, -1))
            if end < stop:
                found = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(text, stop)
                end, after = ends[name] = found.span() if found else (len(text) + 1, 0)
            if end <= len(text) and not _is_interrupted(name, text, stop, end):
                replacement, done = raw(text[stop:end]), after
            elif name == "math":  # TeX is not prose, so drop the rest of the line
                done = text.find("\n", stop) % (len(text) + 1)
        kept.append(replacement)
    kept.append(text[done:])
    return "".join(kept)


def _is_interrupted(name: str, text: str, start: int, end: int) -> bool:
    sign = _NEVER_INSIDE.get(name)
    # Bounded, because many <nowiki> may share one end; the others find their own kind first.
    reach = min(end, start + 10_000) if name == "nowiki" else end
    return sign is not None and text.find(sign, start, reach) >= 0


# --- nested markup: templates, tables, links ------------------------------------------------------

_SIMPLE_LINK = re.compile(r"\[\[(?:[^\[\]{}|:\n]+\|)?([^\[\]{}|:\n]+)\]\]")
_BRACKETS = re.compile(r"(\{\{+|\}\}+|\[\[|\]\]|\{\||\|\}(?!\}))")
_LINE_STARTS = " \t:*#;" + BREAK
_TEMPLATE, _PARAMETER, _LINK, _TABLE = "{{", "{{{", "[[", "{|"


def _openings(run: int) -> list[str]:
    """Return what a run of braces opens, outermost first: {{{{{ is a parameter in a template."""
    odd = run % 2
    return [_TEMPLATE] * ((run - 3 * odd) // 2) + [_PARAMETER] * odd


class _Nest:
    """The text so far in fragments, and the fragment at which each open bracket started."""

    def __init__(self, title: str, site: Site) -> None:
        self.title, self.site = title, site
        self.fragments: list[str] = []
        self.open: list[tuple[str, int]] = []
        self.count = dict.fromkeys((_TEMPLATE, _PARAMETER, _LINK, _TABLE), 0)
        self.has_rows = False  # whether an unclosed template or table left its rows

    def push(self, kind: str) -> None:
        if len(self.open) < MAX_NESTING:
            self.open.append((kind, len(self.fragments)))
            self.count[kind] += 1

    def pop(self) -> tuple[str, int]:
        kind, start = self.open.pop()
        self.count[kind] -= 1
        return kind, start

    def abandon(self) -> None:
        """Treat the content of the innermost bracket as text, except for names and attributes."""
        kind, start = self.pop()
        self.has_rows |= kind in (_TEMPLATE, _TABLE)
        if kind != _LINK and start < len(self.fragments):
            line, newline, rest = self.fragments[start].partition("\n")
            text = "" if kind == _TABLE else line.rpartition("|")[2]
            self.fragments[start] = text + newline + rest

    def close(self, *kinds: str) -> str:
        """Close the innermost bracket of these kinds and return its kind; "" if none is open."""
        if not any(map(self.count.__getitem__, kinds)):
            return ""
        while self.open[-1][0] not in kinds:
            self.abandon()
        kind, start = self.pop()
        inside = self.fragments[start:]
        if kind == _TEMPLATE and any("\n==" in fragment for fragment in inside):
            self.has_rows = True
            return kind  # a section starts inside: this template was never closed
        del self.fragments[start:]
        self.fragments.append(self.render(kind, inside))
        return kind

    def render(self, kind: str, inside: list[str]) -> str:
        if kind == _LINK:
            return render_link("".join(inside), self.site)
        if kind == _TEMPLATE:
            return wikitemplates.render_template(inside, self.title)
        return "".join(inside).partition("|")[2] if kind == _PARAMETER else ""


def _starts_line(before: str, at_start: bool) -> bool:
    """Return whether a table may start or end here: at a line start, or after a template."""
    _, newline, indent = before.rpartition("\n")
    return bool(newline or at_start) and not indent.strip(_LINE_STARTS)


def _resolve_brackets(text: str, title: str, site: Site) -> tuple[str, bool]:
    """Return the text without nested markup, and whether unclosed markup left rows in it."""
    parts = _BRACKETS.split("".join(_SIMPLE_LINK.split(text)))
    nest = _Nest(title, site)
    nest.fragments.append(parts[0])
    for index in range(1, len(parts), 2):
        token, after = parts[index], parts[index + 1]
        if token == _LINK:
            nest.push(_LINK)
        elif token == "]]":
            if nest.open and nest.open[-1][0] == _LINK:
                nest.close(_LINK)
        elif token.startswith("{{"):
            for kind in _openings(min(len(token), 2 * MAX_NESTING)):
                nest.push(kind)
        elif token.startswith("}}"):
            run = len(token)
            while run > 1 and (kind := nest.close(_TEMPLATE, *([_PARAMETER] if run > 2 else []))):
                run -= len(kind)
        elif _starts_line(parts[index - 1], index == 1 or parts[index - 2].endswith("}}")):
            if token == _TABLE:
                nest.push(_TABLE)
            else:
                nest.close(_TABLE)
        nest.fragments.append(after)
    while nest.open:
        nest.abandon()
    return "".join(nest.fragments), nest.has_rows


# --- lines ----------------------------------------------------------------------------------------

_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_VARIANT = re.compile(r"(?:^|;)\s*[a-z-]{2,12}\s*:\s*([^;]*)")
_EXTERNAL_LINK = re.compile(
    r"\[(?:(?:https?|ftp|news|irc|gopher)://|mailto:|//)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]"
)
_BEHAVIOUR_WORD = re.compile(r"__[^\W\da-z]{3,40}?__")
_POSSESSIVE = re.compile(r"(?<=\w)'''(?=s\b)")
_BOLD = re.compile(r"(?<!')'''(?!')")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_ODD_SPACE = re.compile("[\r\f\x1c-\x1f\x85\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_INVISIBLE = re.compile("[\xad\u200b\u200e\u200f\u2060\ufeff]")
# Matches lines that are not just a URL, a language link ("pl:Herbata") or punctuation.
_PROSE = re.compile(r"(?!(?:https?|ftp)://\S*$|[a-z]{2,3}(?:-[a-z]{2,9})?:\w[^.:;=?!]{0,60}$)\W*\w")
_ABSOLUTE = re.compile(r"\|[^\s|=][^|=]{0,40}\|\s*[^\s|-]")
_CELL = re.compile(r"\|[-+}|]|\|[\w -]{1,40}=|[^|]*\|[^|]*\|")
_ITALIC = r"(?:[^'\n]|'(?!'))*''[ .]*(?:\n|$)"  # from the opening quotes to the end of the line
_LEADING_NOTES = re.compile(rf"(?:\s*(?::+ *''(?!')[^\n]*(?:\n|$)|''(?!'){_ITALIC}))+")
_NOTES = re.compile(  # starts with the quotes, which are fast to find
    r"''(?:(?<=[\n:]'')|(?<=[\n:] ''))(?:(?:see )?(?:the )?(?:main|full) articles?\b|see also\b"
    rf"|for (?:more|further|a more)\b){_ITALIC}",
    re.IGNORECASE,
)
_LEAD = re.compile(r"'''[^\n()]{0,80}\([^()\n]{0,600}\)")
_PRONUNCIATION = re.compile(
    r"([(,;])\s*[\[/]?\{\{\s*IPA2?\s*\|[^{}]*\}\}[\]/]?(?=\s*[,;)])", re.IGNORECASE
)

# Cleanup where markup was removed: (signs, pattern, replacement). For speed, a pattern is applied
# only if one of its signs is present. Every repeat is bounded, so that no input makes this slow.
_TIDY: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("(,", "( ", "(;", "(:", "（"), re.compile(r"([(（]) ?(?:[,;:、，；] ?){0,6}"), r"\1"),
    ((" )", ",)", ";)", "）"), re.compile(r"[ ,;、，；]{1,8}([)）])"), r"\1"),
    (("(see",), re.compile(r" \(see:? ?\)"), ""),
    (("()", "[]", "[ ]", "（）"), re.compile(r" \(\)|^\(\)|（）| \[ ?\]", re.MULTILINE), ""),
    ((" ,", " .", " ;"), re.compile(r" (?=,|[.;](?:\s|$))"), ""),
    ((",,", ", ,"), re.compile(r",(?: ?,){1,6}"), ","),
)


def _choose_variant(found: re.Match[str]) -> str:
    """Render -{zh-hans:电脑;zh-hant:電腦}- as one of its texts; a rule for the page as nothing."""
    flags, bar, text = found[1].rpartition("|")
    if bar and not set(flags.upper()) <= set("AR"):
        return ""
    texts = _VARIANT.findall(text)
    return str(texts[0]).strip() if texts else text


def _keep_apostrophe(line: str) -> str:
    """Keep the apostrophe of ''The Times'''s, where italics end, unless bold is open."""
    return _POSSESSIVE.sub("'", line) if len(_BOLD.findall(line)) % 2 else line


def _heading(line: str) -> tuple[int, str, str] | None:
    """Return level, title and trailing text of a heading, even a malformed one; else None."""
    if not line.startswith("==") and not (len(line) > 2 and line[0] == line[-1] == "="):
        return None
    body = line.lstrip("=")
    level = len(line) - len(body)
    title, closed, after = body.partition("=" * min(level, 2))
    if not closed and len(line) > 100:
        return None
    return level, title.strip(), after.lstrip("= ")


def _is_row(line: str, has_rows: bool) -> bool:
    """Return whether a line is a row of a table or template, not text that contains a bar."""
    if line.startswith("!"):
        return "!!" in line or "|" in line
    is_prose = _ABSOLUTE.match(line) or (
        line.endswith((".", "?", ":")) and line.count(" ") > 7 and not _CELL.match(line)
    )
    return line.startswith("|") and (has_rows or not is_prose)


def _paragraphs(text: str, headings: bool, has_rows: bool) -> Iterator[str]:
    """Yield paragraphs, list items and titles; consecutive lines are one paragraph."""
    paragraph: list[str] = []
    titles: list[tuple[int, str]] = []  # (level, title) of headings without text so far
    for line in text.split("\n"):
        first, stripped = line[:1], line.strip()
        is_row = first in ("|", "!") and _is_row(stripped, has_rows)
        if stripped and (first not in " *#:;|!-=" or (first == "|" and not is_row)):
            paragraph.append(stripped)
            continue
        heading = _heading(stripped) if first == "=" else None
        item = "" if heading or is_row else stripped.lstrip("*#:; ")
        if item.startswith("----"):
            item = item.lstrip("-")
        if titles and (paragraph or item):
            yield from (title for _, title in titles)
            titles.clear()
        if paragraph:
            yield " ".join(paragraph)
            paragraph.clear()
        if item:
            yield item.lstrip("=") if first == "=" else item
        if heading:
            level, title, after = heading
            titles = [entry for entry in titles if entry[0] < level]
            titles += [(level, title)] if headings else []
            paragraph += [after] if after else []
    if paragraph:
        yield from (title for _, title in titles)
        yield " ".join(paragraph)


def _tidy(text: str) -> str:
    for _ in range(3):  # some are escaped several times
        if "&" in text:
            text = _ENTITY.sub(lambda found: unescape(found[0]), text)
    if not text.isascii():
        text = _INVISIBLE.sub("", _ODD_SPACE.sub(" ", text.replace("\xa0", " ")))
    text = text.replace("\t", " ")
    while "  " in text:
        text = text.replace("  ", " ")
    for signs, pattern, replacement in _TIDY:
        if any(sign in text for sign in signs):
            text = pattern.sub(replacement, text)
    lines = (line.strip().lstrip(",; ") for line in text.split("\n"))
    return "\n".join(line for line in lines if _PROSE.match(line))


def clean(wikitext: str, title: str, site: Site, headings: bool = False) -> str:
    """Return the prose of a page: one paragraph, list item or section heading per line.

    >>> clean("'''Tea''' ({{IPA|ti}}) is a [[drink|hot drink]].<ref>Book.</ref>", "Tea", Site())
    'Tea is a hot drink.'
    """
    text = _drop_comments(wikitext)
    if "<" in text:
        text = _drop_tags(text)
    if lead := _LEAD.search(text, 0, MAX_LEAD_CHARS):  # pronunciation is not prose
        text = text[: lead.start()] + _PRONUNCIATION.sub(r"\1", lead[0]) + text[lead.end() :]
    text, has_rows = _resolve_brackets(text, title, site)
    text = text.replace(BREAK, "\n\n")
    if "-{" in text:
        text = _VARIANTS.sub(_choose_variant, text)
    text = "".join(_EXTERNAL_LINK.split(text))
    if "__" in text:
        text = _BEHAVIOUR_WORD.sub("", text)
    if notes := _LEADING_NOTES.match(text):
        text = text[notes.end() :]
    text = _NOTES.sub("\n", text)
    if "'''s" in text:
        text = "\n".join(map(_keep_apostrophe, text.split("\n")))
    for quotes in ("'''''", "'''", "''", _SEAM):
        text = text.replace(quotes, "")
    return _tidy("\n".join(_paragraphs(text, headings, has_rows)))
