"""Tokens as readable text."""

from collections.abc import Callable
from typing import NamedTuple

from electrify.errors import visible
from electrify.tokens.tokenizer import LoadedTokenizer

MARKS = ("##", "▁", "Ġ")
"""Prefixes inside a word (WordPiece), or at its start (SentencePiece, byte-level BPE)."""


class TokenText(NamedTuple):
    """A vocabulary entry as text."""

    text: str
    starts_word: bool


def speller(tokenizer: LoadedTokenizer) -> Callable[[int], TokenText]:
    """Return a function from the ids of a tokenizer to text."""
    backend, special = tokenizer.backend, set(tokenizer.names.values())
    names = backend.get_vocab()
    mark = next((mark for mark in MARKS if any(name.startswith(mark) for name in names)), "")

    def spell(token: int) -> TokenText:
        name = backend.id_to_token(token) or f"<{token}>"
        if name in special or not mark:
            return TokenText(name, True)
        if mark == "##":
            return TokenText(name.removeprefix("##"), not name.startswith("##"))
        text = backend.decode([token], skip_special_tokens=False).strip()
        partial_character = "\ufffd" in text
        return TokenText(name if partial_character or not text else text, name.startswith(mark))

    return spell


def on_one_line(text: str) -> str:
    r"""Return text for a table cell, without control characters, newlines and tabs.

    >>> on_one_line("a\n\x1b[31mb")
    'a↵�[31mb'
    """
    return visible(text).translate({ord("\n"): "↵", ord("\t"): "⇥"})


def encodable(text: str) -> str:
    r"""Return text with lone surrogates replaced by U+FFFD, so that it can be encoded.

    >>> encodable("a\ud83d")
    'a�'
    """
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
