"""`electrify inspect MODEL "text"`: show which tokens a discriminator flags as replaced."""

import json
import sys
from collections.abc import Sequence
from html import escape
from string import Template

from rich.console import Console
from rich.text import Text

from electrify.errors import UserError, visible
from electrify.reports.heat import (
    Token,
    as_json,
    as_percent,
    corrupt_text,
    counts_text,
    detect,
    heat_html,
    notes_on,
    verdict_on,
)
from electrify.reports.options import Inspect
from electrify.reports.page import asset
from electrify.reports.pair import LoadedPair, load_pair
from electrify.reports.serve import serve
from electrify.reports.spelling import on_one_line
from electrify.storage.commit import committed


def inspect(settings: Inspect) -> None:
    """Run the model on a text, and show its predictions in the requested format."""
    _check(settings)
    pair = load_pair(settings.model)
    if settings.serve:
        serve(pair, settings.text, settings.host, settings.port)
        return
    text = settings.text
    if settings.corrupt:
        tokens = corrupt_text(pair, text, settings.rate, settings.seed)
    else:
        tokens = detect(pair, text)
    if settings.html:
        with committed(settings.html) as temporary:
            temporary.write_text(page(pair, text, tokens), encoding="utf-8")
        print(settings.html, file=sys.stderr)
    if settings.json:
        print(json.dumps(as_json(pair, text, tokens), ensure_ascii=False, indent=1))
    elif not settings.html:
        _print(pair, text, tokens)


def _check(settings: Inspect) -> None:
    if settings.serve and (settings.html or settings.json or settings.corrupt):
        raise UserError(
            "--serve cannot be combined with --html, --json or --corrupt",
            got="--serve and at least one of them",
            fix="leave them out; the served page can corrupt texts too",
        )
    if not 0 <= settings.port < 1 << 16:
        raise UserError(
            "--port must be between 0 and 65535",
            got=f"{settings.port}",
            fix="use 0 to pick a free port",
        )
    if settings.html and not settings.html.absolute().parent.is_dir():
        raise UserError(
            f"{settings.html} cannot be written",
            got=f"no folder {settings.html.absolute().parent}",
            fix="create the folder, or choose another file",
        )


def _print(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> None:
    for note in notes_on(pair, text):
        print(f"note: {visible(note)}", file=sys.stderr)
    if not tokens:
        print('no tokens; give a text: electrify inspect MODEL "A text."', file=sys.stderr)
        return
    console = Console(soft_wrap=True, highlight=False)
    if not console.is_terminal or console.no_color:
        print("\n".join(token_rows(tokens)))
        print(pair.threshold, file=sys.stderr)
        return
    console.print(coloured(tokens))
    console.print()
    for line in [*summary(tokens), Text(str(pair.threshold), "dim")]:
        console.print(line)


def token_rows(tokens: Sequence[Token]) -> list[str]:
    """Return tab-separated lines of probability, token, original and verdict."""
    rows = [
        (
            f"{token.probability:.4f}",
            on_one_line(token.text),
            on_one_line(token.original),
            verdict_on(token).text,
        )
        for token in tokens
    ]
    return ["\t".join(row) for row in [("probability", "token", "original", "verdict"), *rows]]


PALE, HOT = (255, 243, 230), (255, 132, 51)  # black text is readable on both
FAINT = 0.05  # tokens below this probability are not coloured


def coloured(tokens: Sequence[Token]) -> Text:
    """Return the text with probabilities as background colours, and a sign per verdict."""
    text = Text()
    for token in tokens:
        text.append(visible(token.before))
        p = token.probability
        red, green, blue = (round(a + (b - a) * p) for a, b in zip(PALE, HOT, strict=True))
        style = f"rgb(20,20,20) on rgb({red},{green},{blue})" if p >= FAINT else ""
        text.append(visible(token.text), f"{style} underline" if token.replaced else style)
        text.append(verdict_on(token).sign, "bold")
    return text


def summary(tokens: Sequence[Token]) -> list[Text]:
    """Return a line per token that was replaced or flagged, then the counts."""
    notable = [token for token in tokens if verdict_on(token).sign]
    width = min(30, max([0, *(len(on_one_line(token.text)) for token in notable)]))
    lines = []
    for token in notable:
        verdict, shown = verdict_on(token), on_one_line(token.text)
        was = f"  was “{on_one_line(token.original)}”" if token.original else ""
        line = f"{shown:<{width}}  {as_percent(token.probability):>5}  {verdict.text}"
        lines.append(Text.assemble((f"  {verdict.sign} ", "bold"), line, (was, "dim")))
    return [*lines, Text(counts_text(tokens), "dim")]


def page(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> str:
    """Return a self-contained page without scripts."""
    notable = "".join(_row(token) for token in tokens if verdict_on(token).sign)
    return Template(asset("page.html")).substitute(
        style=asset("inspector.css") + asset("heat.css"),
        model=escape(visible(pair.name)),
        heat=heat_html(tokens),
        counts=escape(f"{counts_text(tokens)}; {pair.threshold}"),
        notable=f'<ul class="notable">{notable}</ul>' if notable else "",
        notes="".join(
            f'<p class="note">{escape(visible(note))}</p>' for note in notes_on(pair, text)
        ),
    )


def _row(token: Token) -> str:
    verdict = verdict_on(token)
    was = f"<del>{escape(on_one_line(token.original.strip()))}</del> → " if token.original else ""
    change = was + escape(on_one_line(token.text))
    cells = (verdict.sign, change, as_percent(token.probability), verdict.text)
    return f"<li>{''.join(f'<span>{cell}</span>' for cell in cells)}</li>"
