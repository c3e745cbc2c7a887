"""The same text before one or more models: each one's tokens, whatever its tokenizer."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from electrify.reports.heat import Token, corrupt_text, detect
from electrify.reports.pair import LoadedPair


class Judged(NamedTuple):
    """A model's predictions for a text."""

    pair: LoadedPair
    text: str
    tokens: Sequence[Token]


class Corruption(NamedTuple):
    """How a generator replaces tokens."""

    rate: float = 0.15  # as in pre-training
    """Fraction of tokens to mask."""
    seed: int = 0


def judge(
    pairs: Sequence[LoadedPair], index: int, text: str, corruption: Corruption | None
) -> list[Token]:
    """Return the predictions of one of the models for a text, or for the text corrupted.

    All models see the same corrupted text, by the first generator among them.
    """
    pair = pairs[index]
    if corruption is None:
        return detect(pair, text)
    author = next((one for one in pairs if one.generator is not None), pairs[0])
    tokens = corrupt_text(author, text, *corruption)
    return tokens if pair is author else detect_replaced(pair, tokens)


def detect_replaced(pair: LoadedPair, tokens: Sequence[Token]) -> list[Token]:
    """Return a model's own tokens and predictions for a text that another model corrupted.

    A token counts as replaced if it overlaps a replacement.
    """
    replacements = [placed for placed in _placed(tokens) if placed[2].replaced]
    found = []
    own = detect(pair, "".join(token.before + token.text for token in tokens))
    for start, stop, token in _placed(own):
        originals = [was.original for a, b, was in replacements if a < stop and start < b]
        found.append(token._replace(replaced=bool(originals), original=" ".join(originals)))
    return found


def _placed(tokens: Sequence[Token]) -> Iterator[tuple[int, int, Token]]:
    """Yield tokens with the characters of the text at which each starts and stops."""
    stop = 0
    for token in tokens:
        start = stop + len(token.before)
        stop = start + len(token.text)
        yield start, stop, token
