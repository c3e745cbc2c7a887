"""Encode text to token ids quickly: most words repeat, so the ids of each word are cached.

Words can be encoded separately only if the tokenizer never looks across spaces. A table lists the
steps for which this holds; with any other, whole lines are encoded. The ids are the same.
"""

import json
import re
from itertools import chain
from operator import methodcaller
from typing import Any

from tokenizers import Tokenizer

MOST_CACHED_WORDS = 1 << 20  # about 200 MB; then the cache is cleared
LONGEST_CACHED_WORD = 32  # longer words, such as a line of Chinese, rarely repeat

# These split at spaces or more often, and treat each word independently of its neighbours.
SPLIT_AT_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
SPLIT_WITHIN_WORDS = {"Punctuation", "Digits"}
# None of these looks across a space; they lower-case by character.
NORMALIZERS = {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"}

_RUNS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


class LineEncoder:
    """Encodes lines without special tokens."""

    def __init__(self, backend: Tokenizer) -> None:
        description = json.loads(backend.to_str())
        self._backend = backend
        self._word_prefix = _word_prefix(description)
        self._words = _Words(backend, description)

    def lines(self, text: str) -> list[list[int]]:
        """Return the ids of each line of a text, without blank lines."""
        lines = [line for line in text.split("\n") if line and not line.isspace()]
        # If words include the space before them, runs of spaces are separate tokens.
        if self._word_prefix is None or (self._word_prefix and any("  " in x for x in lines)):
            encodings = self._backend.encode_batch_fast(lines, add_special_tokens=False)
            return [encoding.ids for encoding in encodings]
        if len(self._words) > MOST_CACHED_WORDS:
            self._words.clear()
        ids_of, split = self._words.__getitem__, spaced if self._word_prefix else at_spaces
        # Twice as fast as a Python loop: no byte code runs for a cached word.
        return [list(chain.from_iterable(map(ids_of, split(line)))) for line in lines]


class _Words(dict[str, tuple[int, ...]]):
    """A cache of the ids of words; a new word is encoded by the tokenizer."""

    def __init__(self, backend: Tokenizer, description: dict[str, Any]) -> None:
        super().__init__()
        self._backend = backend
        steps = _steps(description["pre_tokenizer"], "pretokenizers")
        self._splits = _is_bert(steps)
        # Words that were added as tokens do not match next to "_", though it is punctuation.
        added = any(not token["special"] for token in description["added_tokens"])
        self._keeps = "_" if added else None
        normalizer = description["normalizer"] or {}
        self._lowercases = normalizer.get("type") == "BertNormalizer" and normalizer["lowercase"]

    def __missing__(self, word: str) -> tuple[int, ...]:
        plain = self._splits and word.isascii() and word.isprintable()
        plain = plain and (self._keeps is None or self._keeps not in word)
        runs = _RUNS.findall(word) if plain and not word.isalnum() else []
        if len(runs) > 1:  # "(word)," costs three lookups instead of a call of the tokenizer
            ids = tuple([id for run in runs for id in self[run]])
        elif plain and self._lowercases and not word.islower() and word != word.lower():
            ids = self[word.lower()]
        else:
            ids = tuple(self._backend.encode(word, add_special_tokens=False).ids)
        if len(word) <= LONGEST_CACHED_WORD:
            self[word] = ids
        return ids


at_spaces = methodcaller("split", " ")
"""Split a line into words that do not include the space before them."""


def spaced(line: str) -> list[str]:
    """Split a line into words that include the space before them."""
    first, *others = line.split(" ")
    return [first, *(" " + word for word in others)]


def _word_prefix(tokenizer: dict[str, Any]) -> str | None:
    """Return the prefix of a word that is encoded alone, "" or " "; None if lines must be."""
    steps = _steps(tokenizer["pre_tokenizer"], "pretokenizers")
    added = [token for token in tokenizer["added_tokens"] if not token["special"]]
    if added and not (_is_bert(steps) and all(map(_is_word, added))):
        return None  # they are matched before words, and may contain spaces or punctuation
    normalizers = {step["type"] for step in _steps(tokenizer["normalizer"], "normalizers")}
    if not normalizers <= NORMALIZERS:
        return None
    marks_every_word = {"type": "Metaspace", "prepend_scheme": "always"}.items()
    types = [step["type"] for step in steps if not marks_every_word <= step.items()]
    if types and types[0] in SPLIT_AT_SPACES and set(types) <= SPLIT_AT_SPACES | SPLIT_WITHIN_WORDS:
        return ""
    if types == ["ByteLevel"] and steps[0]["use_regex"]:
        return " "  # byte-level words include the space before them
    return None


def _is_bert(steps: list[dict[str, Any]]) -> bool:
    return [step["type"] for step in steps] == ["BertPreTokenizer"]


def _is_word(token: dict[str, Any]) -> bool:
    """Return whether an added token can only match between spaces or punctuation."""
    whole = token["single_word"] and token["normalized"]
    return whole and not (token["lstrip"] or token["rstrip"]) and token["content"].isalnum()


def _steps(step: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if step is None:
        return []
    return step[inner] if step["type"] == "Sequence" else [step]
