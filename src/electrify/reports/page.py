"""An HTML page in one file: the pieces it is put together from, and its frame.

Everything that is text goes through `text`; what is `Html` has been. A type checker sees to it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import NamedTuple, NewType

from electrify import __version__

Html = NewType("Html", str)
EMPTY_CELL = Html("–")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may do: show itself. Browsers fetch nothing and run nothing for it."""


class Section(NamedTuple):
    """A heading and what stands under it."""

    title: Html
    parts: Sequence["Html | Section"]
    key: str = ""
    """Its id, for links; must be the page's only one of that name."""


class Tile(NamedTuple):
    """A headline number."""

    label: str
    value: Html
    note: Html = Html("")


class Key(NamedTuple):
    """A line of a legend."""

    words: Html
    series: int
    """Which colour, from 0."""
    dashes: Sequence[float] = ()
    faint: bool = False
    diamond: bool = False
    """A point in the colour of the axes instead of a line."""


def asset(name: str) -> str:
    """A file that pages are made of."""
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")


def text(words: object) -> Html:
    """Any text, harmless."""
    return Html(escape(str(words)))


def name(words: object) -> Html:
    """A name that people gave, kept together whatever way it is written."""
    return Html(f"<bdi>{escape(str(words))}</bdi>")


def joined(parts: Iterable[str], between: str = "\n") -> Html:
    """Pieces of HTML one after the other."""
    return Html(between.join(parts))


def paragraph(inner: Html, kind: str = "") -> Html:
    """A paragraph."""
    return Html(f'<p class="{kind}">{inner}</p>' if kind else f"<p>{inner}</p>")


def code(words: object) -> Html:
    """Something to be read letter by letter."""
    return Html(f"<code>{escape(str(words))}</code>")


def tiles(rows: Iterable[Tile]) -> Html:
    """Headline numbers side by side."""
    cells = joined(
        f"<div><dt>{text(row.label)}</dt><dd><strong>{row.value}</strong>"
        f"{f'<small>{row.note}</small>' if row.note else ''}</dd></div>"
        for row in rows
    )
    return Html(f'<dl class="tiles">\n{cells}\n</dl>')


def pairs(rows: Iterable[tuple[str, Html]]) -> Html:
    """What things are, line by line."""
    cells = joined(f"<div><dt>{text(label)}</dt><dd>{value}</dd></div>" for label, value in rows)
    return Html(f'<dl class="pairs">\n{cells}\n</dl>')


def table(
    caption: str,
    columns: Sequence[Html],
    rows: Sequence[Sequence[Html]],
    left: Sequence[int] = (0,),
    marked: int = 0,
) -> Html:
    """A table in a box that scrolls by itself; the first cell names its row.

    Columns are flush right but for those in `left`; the first `marked` rows stand out.
    """

    def cell(place: int, inner: Html) -> str:
        kind = ' class="left"' if place in left else ""
        return f"<td{kind}>{inner}</td>" if place else f'<th scope="row"{kind}>{inner}</th>'

    def line(number: int, row: Sequence[Html]) -> str:
        kind = ' class="own"' if number < marked else ""
        return f"<tr{kind}>{joined((cell(p, inner) for p, inner in enumerate(row)), '')}</tr>"

    def title(place: int, inner: Html) -> str:
        kind = ' class="left"' if place in left else ""
        return f'<th scope="col"{kind}>{inner}</th>'

    head = joined((title(place, inner) for place, inner in enumerate(columns)), "")
    body = joined(line(number, row) for number, row in enumerate(rows))
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">\n'
        f"<table><caption><span>{text(caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def figure(title: Html, svg: str, said: str, keys: Iterable[Key] = (), kind: str = "") -> Html:
    """A drawing with its title and legend; `said` is for those who do not see it."""
    legend = joined((_key(key) for key in keys), "")
    label = escape(said)
    drawn = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    more = f'<span class="keys">{legend}</span>' if legend else ""
    caption = f"<figcaption><b>{title}</b>{more}</figcaption>"
    return Html(f'<figure class="plot {kind}">{caption}\n{drawn}</figure>')


def _key(key: Key) -> str:
    lengths = " ".join(f"{2 * length:g}" for length in key.dashes)
    dashes = f' stroke-dasharray="{lengths}"' if lengths else ""
    faint = ' opacity="0.6"' if key.faint else ""
    colour, width = f"var(--series-{key.series + 1})", 2 if key.faint else 3
    line = f'<path d="M1 4H21" style="stroke: {colour}" stroke-width="{width}"{dashes}{faint}/>'
    diamond = '<path d="M11 0L15 4L11 8L7 4Z" style="fill: var(--ink)"/>'
    return (
        '<span class="key"><svg viewBox="0 0 22 8" width="22" height="8" aria-hidden="true">'
        f"{diamond if key.diamond else line}</svg> {key.words}</span>"
    )


def grid(figures: Iterable[Html]) -> Html:
    """Drawings side by side, as many as there is room for."""
    return Html(f'<div class="plots">\n{joined(figures)}\n</div>')


def details(summary: Html, inner: Html) -> Html:
    """What is folded away until it is asked for."""
    return Html(f"<details><summary>{summary}</summary>\n{inner}\n</details>")


def document(
    title: str, heading: Html, intro: Html, sections: Sequence[Section], more_style: str = ""
) -> bytes:
    """The page as it is written; `more_style` is for pieces that others make."""
    links = joined(
        (f'<a href="#{section.key}">{section.title}</a>' for section in sections if section.key),
        "\n",
    )
    style = asset("page.css") + more_style
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="electrify {__version__}">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="eyebrow">electrify report</p>
<h1>{heading}</h1>
{intro}
<nav aria-label="Sections">
{links}
</nav>
</header>
<main>
{joined(_rendered(section, 2) for section in sections)}
</main>
</body>
</html>
"""
    # a folder's name may hold bytes that are no characters
    return page.encode("utf-8", errors="backslashreplace")


def _rendered(section: Section, level: int) -> Html:
    inner = joined(
        _rendered(part, level + 1) if isinstance(part, Section) else part for part in section.parts
    )
    key = f' id="{section.key}"' if section.key else ""
    return Html(f"<section{key}>\n<h{level}>{section.title}</h{level}>\n{inner}\n</section>")
