"""`electrify inspect MODEL "text"`: which tokens a discriminator takes for replaced."""

import json
import sys
from collections.abc import Sequence
from html import escape
from string import Template

from rich.console import Console
from rich.text import Text

from electrify.errors import UserError
from electrify.reports.heat import (
    Token,
    as_json,
    as_percent,
    corrupt_text,
    counted,
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
from electrify.tokens.show import visible


def inspect(settings: Inspect) -> None:
    """Ask the model, and show what it says in the form that is wanted."""
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
            "--serve stands alone",
            got="--html, --json or --corrupt beside it",
            fix="leave them out: the page can corrupt, too",
        )
    if not 0 <= settings.port < 1 << 16:
        raise UserError("no such port", got=f"--port {settings.port}", fix="give 0 to 65535")
    if settings.html and not settings.html.absolute().parent.is_dir():
        raise UserError(
            f"{settings.html} cannot be written",
            got=f"no folder {settings.html.absolute().parent}",
            fix="make the folder, or give another",
        )


def _print(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> None:
    for note in notes_on(pair, text):
        print(f"note: {visible(note)}", file=sys.stderr)
    if not tokens:
        print('no tokens: give a text, as in: electrify inspect MODEL "A text."', file=sys.stderr)
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
    """Lines of probability, token, what stood there, and verdict, with tabs between them."""
    rows = [
        (
            f"{token.probability:.4f}",
            on_one_line(token.text),
            on_one_line(token.original),
            verdict_on(token).words,
        )
        for token in tokens
    ]
    return ["\t".join(row) for row in [("probability", "token", "original", "verdict"), *rows]]


PALE, HOT = (255, 243, 230), (255, 132, 51)  # black is easy to read on both
FAINT = 0.05  # from here on a token is coloured


def coloured(tokens: Sequence[Token]) -> Text:
    """The text, each token on a background as warm as it is suspected; signs say what became."""
    text = Text()
    for token in tokens:
        text.append(visible(token.before))
        warmth = token.probability
        blend = [round(pale + (hot - pale) * warmth) for pale, hot in zip(PALE, HOT, strict=True)]
        style = f"rgb(20,20,20) on rgb({blend[0]},{blend[1]},{blend[2]})" if warmth >= FAINT else ""
        text.append(visible(token.text), f"{style} underline" if token.replaced else style)
        text.append(verdict_on(token).sign, "bold")
    return text


def summary(tokens: Sequence[Token]) -> list[Text]:
    """What matters, in lines: the tokens that were replaced or suspected, then the counts."""
    notable = [token for token in tokens if verdict_on(token).sign]
    width = min(30, max([0, *(len(on_one_line(token.text)) for token in notable)]))
    lines = []
    for token in notable:
        kind, shown = verdict_on(token), on_one_line(token.text)
        was = f"  was “{on_one_line(token.original)}”" if token.original else ""
        said = f"{shown:<{width}}  {as_percent(token.probability):>5}  {kind.words}"
        lines.append(Text.assemble((f"  {kind.sign} ", "bold"), said, (was, "dim")))
    return [*lines, Text(counted(tokens), "dim")]


def page(pair: LoadedPair, text: str, tokens: Sequence[Token]) -> str:
    """One page that needs nothing else: no script, no network."""
    notable = "".join(_row(token) for token in tokens if verdict_on(token).sign)
    return Template(asset("page.html")).substitute(
        style=asset("inspector.css") + asset("heat.css"),
        model=escape(visible(pair.name)),
        heat=heat_html(tokens),
        counted=escape(f"{counted(tokens)}; {pair.threshold}"),
        notable=f'<ul class="notable">{notable}</ul>' if notable else "",
        notes="".join(
            f'<p class="note">{escape(visible(note))}</p>' for note in notes_on(pair, text)
        ),
    )


def _row(token: Token) -> str:
    kind = verdict_on(token)
    was = f"<del>{escape(on_one_line(token.original.strip()))}</del> → " if token.original else ""
    change = was + escape(on_one_line(token.text))
    cells = (kind.sign, change, as_percent(token.probability), kind.words)
    return f"<li>{''.join(f'<span>{cell}</span>' for cell in cells)}</li>"
