"""`electrify inspect MODEL "text"`: show which tokens a discriminator flags as replaced."""

import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from rich.console import Console
from rich.text import Text

from electrify.errors import UserError, visible
from electrify.reports.heat import (
    Token,
    as_json,
    as_percent,
    counts_text,
    heat_html,
    notes_on,
    verdict_on,
)
from electrify.reports.judged import Corruption, Judged, judge
from electrify.reports.options import Inspect
from electrify.reports.page import asset, check_page
from electrify.reports.pair import LoadedPair, load_pair
from electrify.reports.serve import serve
from electrify.reports.spelling import on_one_line
from electrify.storage.commit import committed

DEMO = Path(__file__).parents[1] / "demo"
"""A small model, made by docs/demo.py."""


def inspect(settings: Inspect) -> None:
    """Run the model on a text, and show its predictions in the requested format."""
    _check(settings)
    given = [argument for argument in (settings.model, *settings.more) if argument]
    if settings.demo:
        given.insert(0, str(DEMO))
    if not given:
        raise UserError(
            "no model was given",
            got="electrify inspect without a model",
            fix="name one, or use --demo for the small English model that comes with electrify",
        )
    models, text = models_and_text(*given)
    pairs = [load_pair(model) for model in models]
    if settings.serve:
        serve(pairs, text, settings.host, settings.port)
        return
    corruption = Corruption(settings.rate, settings.seed) if settings.corrupt else None
    judged = [
        Judged(pair, text, judge(pairs, index, text, corruption))
        for index, pair in enumerate(pairs)
    ]
    if settings.html:
        with committed(settings.html) as temporary:
            temporary.write_text(page(judged), encoding="utf-8")
        print(settings.html, file=sys.stderr)
    if settings.json:
        found = [as_json(*one) for one in judged]
        print(json.dumps(found if found[1:] else found[0], ensure_ascii=False, indent=1))
    elif not settings.html:
        for one in judged:
            if len(judged) > 1:
                print(f"{visible(one.pair.name)}:")
            _print(*one)


def models_and_text(model: str, *more: str) -> tuple[list[str], str]:
    """Return the models and the text among the arguments; a folder is a model, not a text.

    >>> models_and_text("run", "A text."), models_and_text("run", "google/electra", "A text.")
    ((['run'], 'A text.'), (['run', 'google/electra'], 'A text.'))
    """
    *others, last = more or ("",)
    if _is_folder(last):
        others, last = [*others, last], ""
    if len(others) > 1 or not all(_is_folder(name) or "/" in name for name in others):
        raise UserError(
            "give one or two models, and then at most one text",
            got=" ".join(more),
            fix='put the text in quotes: electrify inspect MODEL [MODEL] "A text."',
        )
    return [model, *others], last


def _is_folder(name: str) -> bool:
    try:
        return bool(name) and Path(name).is_dir()
    except OSError:  # a text too long for a name
        return False


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
    if settings.html:
        check_page(settings.html)


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


def page(judged: Sequence[Judged]) -> str:
    """Return a self-contained page without scripts, with a card for each model."""
    return Template(asset("page.html")).substitute(
        style=asset("inspector.css") + asset("heat.css"),
        kind=' class="compared"' if len(judged) > 1 else "",
        cards="".join(map(_card, judged)),
    )


def _card(judged: Judged) -> str:
    pair, text, tokens = judged
    notes = (f'<p class="note">{escape(visible(note))}</p>' for note in notes_on(pair, text))
    notable = "".join(_row(token) for token in tokens if verdict_on(token).sign)
    parts = [
        f"<h2>{escape(visible(pair.name))}</h2>",
        *notes,
        heat_html(tokens),
        f'<p class="quiet">{escape(f"{counts_text(tokens)}; {pair.threshold}")}</p>',
        f'<ul class="notable">{notable}</ul>' if notable else "",
    ]
    return f'<section class="card">{"".join(parts)}</section>'


def _row(token: Token) -> str:
    verdict = verdict_on(token)
    was = f"<del>{escape(on_one_line(token.original.strip()))}</del> → " if token.original else ""
    change = was + escape(on_one_line(token.text))
    cells = (verdict.sign, change, as_percent(token.probability), verdict.text)
    return f"<li>{''.join(f'<span>{cell}</span>' for cell in cells)}</li>"
