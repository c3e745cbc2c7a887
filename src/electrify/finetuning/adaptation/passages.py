"""Choose words of validation pages to mask, the same for all models that are compared.

Models with different tokenizers cut text into different tokens, so losses per token cannot be
compared. Words can: a word is a run of letters and digits of the text, whatever the tokenizer. Left
out are words whose boundaries are not those of tokens in every tokenizer, or that have an unknown
token in one of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, Encoding, encode
from electrify.tokens.splits import hash_text

MASKED = 0.15
"""Fraction of the words of a passage that are masked, as in pre-training."""
CHARACTERS_PER_TOKEN = 3.5
"""Length of a passage in characters for each token that the models were trained to read."""
# Scripts without spaces between words: each character counts as a word.
UNSPACED_CHARACTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
)
WORD = re.compile(f"[{UNSPACED_CHARACTERS}]|[^\\W_{UNSPACED_CHARACTERS}]+")


class Span(NamedTuple):
    """A word: where it starts and ends in its passage, in characters."""

    start: int
    end: int


class Passage(NamedTuple):
    """A piece of a page, and the words of it to mask."""

    page: int
    text: str
    words: tuple[Span, ...]


def cut(text: str, characters: int) -> Iterator[str]:
    r"""Yield a text in passages of at most so many characters, which end at spaces where possible.

    >>> list(cut("one two\nthree four", 9))
    ['one two', 'three', 'four']
    """
    for line in text.split("\n"):
        rest = line.strip()
        while len(rest) > characters:
            at = rest.rfind(" ", 0, characters + 1)
            at = at if at > 0 else characters
            yield rest[:at].strip()
            rest = rest[at:].strip()
        if rest:
            yield rest


def choose_passages(
    pages: Iterable[str], encoders: Sequence[Encoder], length: int, words: int
) -> list[Passage]:
    """Return passages of pages with about so many words to mask, spread over all pages.

    A passage has at most `length` tokens with every tokenizer. The choice depends on the text and
    the tokenizers only.
    """
    size = int(CHARACTERS_PER_TOKEN * length)
    found = {(page, text): None for page, whole in enumerate(pages) for text in cut(whole, size)}
    ordered = sorted(found, key=lambda passage: hash_text(passage[1], "passage"))
    chosen, count = list[Passage](), 0
    for start in range(0, len(ordered), 256):
        part = ordered[start : start + 256]
        texts = [text for _, text in part]
        encoded = [encode(encoder, texts, None, encoder.longest) for encoder in encoders]
        for (page, text), *encodings in zip(part, *encoded, strict=True):
            if any(len(e) > length or e.overflowing for e in encodings) or count >= words:
                continue
            if picked := _pick(text, encodings, encoders):
                chosen.append(Passage(page, text, picked))
                count += len(picked)
        if count >= words:
            break
    if not chosen:
        raise UserError(
            "the validation pages have no words that can be compared",
            got=f"{len(ordered):,} passages",
            fix="give more text, so that some of it is set aside for validation",
        )
    return chosen


def _pick(
    text: str, encodings: Sequence[Encoding], encoders: Sequence[Encoder]
) -> tuple[Span, ...]:
    """Return some of the words of a passage, drawn by a hash of its text."""
    words = [Span(*match.span()) for match in WORD.finditer(text)]
    pairs = list(zip(encodings, encoders, strict=True))
    possible = [word for word in words if all(_is_aligned(text, word, *p) for p in pairs)]
    count = round(MASKED * len(words)) or (1 if len(words) > 1 else 0)
    rng = Random(hash_text(text, "masked words"))
    return tuple(sorted(rng.sample(possible, min(count, len(possible)))))


def _is_aligned(text: str, word: Span, encoding: Encoding, encoder: Encoder) -> bool:
    """Return whether a word is a number of complete tokens, all of them known."""
    positions = positions_of(word, encoding)
    if not positions or encoder.tokenizer.unk_token_id in (encoding.ids[p] for p in positions):
        return False
    start, end = encoding.offsets[positions[0]][0], encoding.offsets[positions[-1]][1]
    return end == word.end and not text[start : word.start].strip()  # it may include a space


def positions_of(word: Span, encoding: Encoding) -> list[int]:
    """Return the positions of the tokens that have characters of a word."""
    return [
        position
        for position, (start, end) in enumerate(encoding.offsets)
        if start < word.end and end > word.start and not encoding.special_tokens_mask[position]
    ]
