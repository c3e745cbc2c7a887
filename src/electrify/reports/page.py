"""Building blocks of a self-contained HTML page.

All plain text is escaped by `text`; `Html` is already escaped. The type checker enforces it.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import NamedTuple, NewType

from electrify import __version__
from electrify.errors import UserError
from electrify.reports.plots import SERIES

Html = NewType("Html", str)
EMPTY_CELL = Html("–")

_OWN_PAGES = (b'<meta name="generator" content="electrify ', b"<title>electrify inspect</title>")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The Content-Security-Policy of the page: browsers fetch nothing and run no script."""


class Section(NamedTuple):
    """A heading and its contents."""

    title: Html
    parts: Sequence["Html | Section"]
    key: str = ""
    """Its id for links, unique on the page."""


class Tile(NamedTuple):
    """A headline number."""

    label: str
    value: Html
    note: Html = Html("")


class Key(NamedTuple):
    """An entry of a legend."""

    label: Html
    series: int
    """Index of the colour, from 0."""
    dashes: Sequence[float] = ()
    faint: bool = False
    diamond: bool = False
    """Draw a point in the colour of the axes instead of a line."""


def asset(name: str) -> str:
    """Return the contents of a file in `assets`."""
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")


def text(content: object) -> Html:
    """Return escaped text."""
    return Html(escape(str(content)))


def name(content: object) -> Html:
    """Return a user-given name, isolated because it may be written right to left."""
    return Html(f"<bdi>{escape(str(content))}</bdi>")


def joined(parts: Iterable[str], between: str = "\n") -> Html:
    """Join HTML fragments."""
    return Html(between.join(parts))


def paragraph(inner: Html, kind: str = "") -> Html:
    """Return a paragraph."""
    return Html(f'<p class="{kind}">{inner}</p>' if kind else f"<p>{inner}</p>")


def code(content: object) -> Html:
    """Return text in a monospaced font."""
    return Html(f"<code>{escape(str(content))}</code>")


def tiles(rows: Iterable[Tile]) -> Html:
    """Return headline numbers side by side."""
    cells = joined(
        f"<div><dt>{text(row.label)}</dt><dd><strong>{row.value}</strong>"
        f"{f'<small>{row.note}</small>' if row.note else ''}</dd></div>"
        for row in rows
    )
    return Html(f'<dl class="tiles">\n{cells}\n</dl>')


def pairs(rows: Iterable[tuple[str, Html]]) -> Html:
    """Return a list of labels and values."""
    cells = joined(f"<div><dt>{text(label)}</dt><dd>{value}</dd></div>" for label, value in rows)
    return Html(f'<dl class="pairs">\n{cells}\n</dl>')


def table(
    caption: str,
    columns: Sequence[Html],
    rows: Sequence[Sequence[Html]],
    left: Sequence[int] = (0,),
    marked: int = 0,
) -> Html:
    """Return a table in a scrollable box; the first cell of a row is its header.

    Columns are right-aligned except those in `left`; the first `marked` rows are highlighted.
    """

    def align(column: int) -> str:
        return ' class="left"' if column in left else ""

    def cell(column: int, inner: Html) -> str:
        kind = align(column)
        return f"<td{kind}>{inner}</td>" if column else f'<th scope="row"{kind}>{inner}</th>'

    def line(number: int, row: Sequence[Html]) -> str:
        kind = ' class="own"' if number < marked else ""
        return f"<tr{kind}>{joined((cell(c, inner) for c, inner in enumerate(row)), '')}</tr>"

    head = joined(
        (f'<th scope="col"{align(c)}>{inner}</th>' for c, inner in enumerate(columns)), ""
    )
    body = joined(line(number, row) for number, row in enumerate(rows))
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">\n'
        f"<table><caption><span>{text(caption)}</span></caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def figure(
    title: Html,
    svg: str,
    description: str,
    keys: Iterable[Key] = (),
    kind: str = "",
    hint: str = "",
) -> Html:
    """Return a drawing with its title, how to read it, and its legend.

    `description` is for screen readers.
    """
    keys_html = joined((_key(key) for key in keys), "")
    legend = f'<span class="keys">{keys_html}</span>' if keys_html else ""
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(description)}" ', 1)
    note = f"<small>{text(hint)}</small>" if hint else ""
    caption = f"<figcaption><b>{title}</b>{note}{legend}</figcaption>"
    return Html(f'<figure class="plot {kind}">{caption}\n{svg}</figure>')


def _key(key: Key) -> str:
    lengths = " ".join(f"{2 * length:g}" for length in key.dashes)
    dashes = f' stroke-dasharray="{lengths}"' if lengths else ""
    faint = ' opacity="0.6"' if key.faint else ""
    colour, width = f"var(--series-{key.series + 1})", 2 if key.faint else 3
    line = f'<path d="M1 4H21" style="stroke: {colour}" stroke-width="{width}"{dashes}{faint}/>'
    diamond = '<path d="M11 0L15 4L11 8L7 4Z" style="fill: var(--ink)"/>'
    return (
        '<span class="key"><svg viewBox="0 0 22 8" width="22" height="8" aria-hidden="true">'
        f"{diamond if key.diamond else line}</svg> {key.label}</span>"
    )


def series_keys(names: Sequence[str]) -> list[Key]:
    """Return a legend entry per name, each in the colour of its series."""
    return [Key(name(label), series % SERIES) for series, label in enumerate(names)]


def grid(figures: Iterable[Html]) -> Html:
    """Return drawings side by side, as many per row as fit."""
    return Html(f'<div class="plots">\n{joined(figures)}\n</div>')


def details(summary: Html, inner: Html) -> Html:
    """Return content that is collapsed until clicked."""
    return Html(f"<details><summary>{summary}</summary>\n{inner}\n</details>")


def check_page(path: Path) -> None:
    """Raise an error if a page would overwrite a file that is not a page of electrify."""
    if not path.is_file() or not (size := path.stat().st_size):
        return
    with path.open("rb") as file:
        head = file.read(2048)
    if not any(mark in head for mark in _OWN_PAGES):
        raise UserError(
            f"{path} is not a page that electrify made",
            got=f"a file of {size:,} bytes",
            fix="use another name, or remove the file; nothing was changed",
        )


def document(
    title: str, heading: Html, intro: Html, sections: Sequence[Section], more_style: str = ""
) -> bytes:
    """Return the encoded page; `more_style` is appended to its stylesheet."""
    links = joined(
        f'<a href="#{section.key}">{section.title}</a>' for section in sections if section.key
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
    # The name of a folder may contain bytes that are not valid UTF-8.
    return page.encode("utf-8", errors="backslashreplace")


def _rendered(section: Section, level: int) -> Html:
    inner = joined(
        _rendered(part, level + 1) if isinstance(part, Section) else part for part in section.parts
    )
    key = f' id="{section.key}"' if section.key else ""
    return Html(f"<section{key}>\n<h{level}>{section.title}</h{level}>\n{inner}\n</section>")
