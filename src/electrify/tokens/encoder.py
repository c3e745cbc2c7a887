"""Text to token ids, fast: most words repeat, so each is cut into pieces once and remembered.

A tokenizer may be asked word by word only where spaces separate what it looks at. Which tokenizers
those are is a table; all others are asked line by line. The ids are the same either way.
"""

import json
import re
from itertools import chain
from typing import Any

from tokenizers import Tokenizer

MOST_REMEMBERED = 1 << 20  # about 200 MB; then the memory starts afresh
LONGEST_REMEMBERED = 32  # longer words, such as a line of Chinese, do not come again

# Each cuts at spaces at least, and what it does to a word does not depend on the words beside it.
CUTS_AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
WITHIN_WORDS = {"Punctuation", "Digits"}
# None of these looks across a space; their lower-casing is by character.
NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"}

_RUNS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


class LineEncoder:
    """Encodes lines without special tokens."""

    def __init__(self, backend: Tokenizer) -> None:
        description = json.loads(backend.to_str())
        self._backend = backend
        self._glue = _glue(description)
        self._words = _Words(backend, description)

    def lines(self, text: str) -> list[list[int]]:
        """The ids of each line of a text, blank lines left out."""
        lines = [line for line in text.split("\n") if line and not line.isspace()]
        # Where words carry the space before them, runs of spaces are tokens of their own.
        if self._glue is None or (self._glue and any("  " in line for line in lines)):
            encodings = self._backend.encode_batch_fast(lines, add_special_tokens=False)
            return [encoding.ids for encoding in encodings]
        if len(self._words) > MOST_REMEMBERED:
            self._words.clear()
        ids_of, cut = self._words.__getitem__, _spaced if self._glue else _at_spaces
        # Twice as fast as the same loop in Python: nothing below runs byte code for a known word.
        return [list(chain.from_iterable(map(ids_of, cut(line)))) for line in lines]


class _Words(dict[str, tuple[int, ...]]):
    """The ids of every word met so far; a new word is asked of the tokenizer."""

    def __init__(self, backend: Tokenizer, description: dict[str, Any]) -> None:
        super().__init__()
        self._backend = backend
        steps = _steps(description["pre_tokenizer"], "pretokenizers")
        self._cuts = [step["type"] for step in steps] == ["BertPreTokenizer"]
        normalizer = description["normalizer"] or {}
        self._lowers = normalizer.get("type") == "BertNormalizer" and normalizer["lowercase"]

    def __missing__(self, word: str) -> tuple[int, ...]:
        plain = self._cuts and word.isascii() and word.isprintable()
        runs = _RUNS.findall(word) if plain and not word.isalnum() else []
        if len(runs) > 1:  # "(word)," costs three look-ups instead of a question
            ids = tuple([id for run in runs for id in self[run]])
        elif plain and self._lowers and not word.islower() and word != word.lower():
            ids = self[word.lower()]
        else:
            ids = tuple(self._backend.encode(word, add_special_tokens=False).ids)
        if len(word) <= LONGEST_REMEMBERED:
            self[word] = ids
        return ids


def _at_spaces(line: str) -> list[str]:
    return line.split(" ")


def _spaced(line: str) -> list[str]:
    first, *others = line.split(" ")
    return [first, *(" " + word for word in others)]


def _glue(tokenizer: dict[str, Any]) -> str | None:
    """What stands before a word when it is asked for alone: "" or " "; None: ask line by line."""
    if any(not token["special"] for token in tokenizer["added_tokens"]):
        return None  # they are found before words are, and may hold spaces or punctuation
    steps = _steps(tokenizer["pre_tokenizer"], "pretokenizers")
    normalizers = {step["type"] for step in _steps(tokenizer["normalizer"], "normalizers")}
    if not normalizers <= NORMALIZERS:
        return None
    types = [step["type"] for step in steps if not _marks_every_word(step)]
    if types and types[0] in CUTS_AT_SPACES and set(types) <= CUTS_AT_SPACES | WITHIN_WORDS:
        return ""
    if types == ["ByteLevel"] and steps[0]["use_regex"]:
        return " "  # byte-level words carry the space before them
    return None


def _marks_every_word(step: dict[str, Any]) -> bool:
    return bool(step["type"] == "Metaspace" and step["prepend_scheme"] == "always")


def _steps(step: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if step is None:
        return []
    return step[inner] if step["type"] == "Sequence" else [step]
