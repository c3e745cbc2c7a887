"""How tokens are written for people: ids as pieces of text, and text that fits a cell."""

from collections.abc import Callable
from typing import NamedTuple

from electrify.tokens.show import visible
from electrify.tokens.tokenizer import LoadedTokenizer

MARKS = ("##", "▁", "Ġ")
"""Of the inside of a word (WordPiece), or of its beginning (SentencePiece, byte-level BPE)."""


class Piece(NamedTuple):
    """A token of the vocabulary as text."""

    text: str
    begins_word: bool


def speller(tokenizer: LoadedTokenizer) -> Callable[[int], Piece]:
    """From the ids of a tokenizer to pieces of text."""
    backend, special = tokenizer.backend, set(tokenizer.names.values())
    names = backend.get_vocab()
    mark = next((mark for mark in MARKS if any(name.startswith(mark) for name in names)), "")

    def spell(token: int) -> Piece:
        name = backend.id_to_token(token) or f"<{token}>"
        if name in special or not mark:
            return Piece(name, True)
        if mark == "##":
            return Piece(name.removeprefix("##"), not name.startswith("##"))
        text = backend.decode([token], skip_special_tokens=False).strip()
        half_a_character = "\ufffd" in text
        return Piece(name if half_a_character or not text else text, name.startswith(mark))

    return spell


def on_one_line(text: str) -> str:
    r"""Text for a cell of a table: no control characters, and line ends and tabs as signs.

    >>> on_one_line("a\n\x1b[31mb")
    'a↵�[31mb'
    """
    return visible(text).translate({ord("\n"): "↵", ord("\t"): "⇥"})


def encodable(text: str) -> str:
    r"""Text in which halves of characters, as broken input has them, are replacement characters.

    >>> encodable("a\ud83d")
    'a�'
    """
    return "".join("\ufffd" if "\ud800" <= sign <= "\udfff" else sign for sign in text)
