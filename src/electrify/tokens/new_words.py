"""Add words to a tokenizer such that text without these words keeps its tokens.

What guarantees this depends on the tokenizer's model:

    WordPiece   Words are added tokens (`single_word`, `normalized`), which are matched before the
                model runs. As vocabulary entries they would change longer words: the greedy longest
                match of "flexboxes" would start with "flexbox".
    BPE         Words are vocabulary entries without merges, and `ignore_merges` is set: a word of
                the pre-tokenizer that is an entry becomes that token; all others are merged as
                before. New merges would also apply inside longer words.
    Unigram     Words are vocabulary entries that score just above their old tokens. Only text that
                starts with a new word can change, so words that would change the start of a longer
                word of the documents are left out (`extend.py`). Other text may have more.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from electrify.errors import UserError
from electrify.tokens.tokenizer import LoadedTokenizer, with_special_tokens
from electrify.tokens.trainers import SCORE_DIGITS

RULES = {
    "WordPiece": "a new token stands for a whole word, between characters that are neither "
    "letters nor digits nor _",
    "BPE": "a new token stands for a whole word of the pre-tokenizer",
    "Unigram": "other text may have longer words that start with a new token, and change",
}
# Pre-tokenizers that split at every character that ends a `single_word` token, but "_".
SPLIT_AT_PUNCTUATION = {"BertPreTokenizer", "Whitespace"}
MARGIN = 1e-3  # of the score of a new word over that of its old tokens; above rounding errors


class Found(NamedTuple):
    """A word as it would be in the vocabulary ("Ġflexbox"), and as text ("flexbox")."""

    entry: str
    text: str


class WordFinder:
    """Finds the words of text that could become tokens of a tokenizer."""

    def __init__(self, base: LoadedTokenizer) -> None:
        self.base = base
        self.description: dict[str, Any] = json.loads(base.backend.to_str())
        self.kind: str = self.description["model"]["type"]
        _check_base(self.kind, self.description, base)
        steps = _inner(self.description["pre_tokenizer"])
        self.splits_before_spaces = any(step["type"] == "ByteLevel" for step in steps)
        """Whether a word includes the space before it."""
        marks = [step["replacement"] for step in steps if step["type"] == "Metaspace"]
        self._mark = marks[0] if marks else ""

    def words(self, chunk: str) -> list[Found]:
        """Return the words of text without spaces, apart from one at its start."""
        backend = self.base.backend
        text = backend.normalizer.normalize_str(chunk) if backend.normalizer else chunk
        if self.kind == "WordPiece":
            return [Found(run, run) for run in _runs(text) if self._is_one_word(run)]
        split = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        if self.kind == "Unigram":
            found = [_start(word, self._mark) for word in split]
            return [one for one in found if one is not None]
        decoded = ((word, self._decode(word)) for word in split)
        return [Found(word, text) for word, text in decoded if text and all(map(_in_word, text))]

    def tokens(self, entry: str) -> list[str]:
        """Return the tokens that stand for a word now."""
        return [token.value for token in self.base.backend.model.tokenize(entry)]

    @cached_property
    def scores(self) -> dict[str, float]:
        """The scores of a Unigram vocabulary."""
        return dict(self.description["model"]["vocab"])

    def can_become_token(self, entry: str, text: str) -> bool:
        """Return whether a word can be added: it is new, and its characters are known."""
        if self.base.backend.token_to_id(entry) is not None:
            return False
        normalizer = self.base.backend.normalizer
        if self.kind == "WordPiece" and normalizer and normalizer.normalize_str(text) != text:
            return False  # it would be matched as what it is normalized to
        unknown = self.base.names.get("unk")
        known = self.scores if self.kind == "Unigram" else None
        tokens = self.tokens(entry)
        return unknown not in tokens and (known is None or all(t in known for t in tokens))

    def _is_one_word(self, run: str) -> bool:
        if not all(map(_in_word, run)):
            return False
        split = self.base.backend.pre_tokenizer.pre_tokenize_str(run)
        return len(split) == 1

    def _decode(self, word: str) -> str:
        decoder = self.base.backend.decoder
        text: str = decoder.decode([word]) if decoder else word
        return text.strip(" ")


def with_new_words(finder: WordFinder, entries: Sequence[str]) -> LoadedTokenizer:
    """Return a tokenizer with more words; all tokens that it had keep their ids."""
    base = finder.base
    description = json.loads(json.dumps(finder.description))
    _ADD[finder.kind](description, entries, finder)
    backend = Tokenizer.from_str(json.dumps(description))
    extended = with_special_tokens(backend, base.names)
    vocabulary = extended.backend.get_vocab(with_added_tokens=True)
    expected = base.backend.get_vocab(with_added_tokens=True)
    expected |= {entry: base.vocab_size + number for number, entry in enumerate(entries)}
    if vocabulary != expected:
        moved = next(t for t in {**expected, **vocabulary} if expected.get(t) != vocabulary.get(t))
        raise UserError(
            "words cannot be added to this tokenizer without moving the ids of others",
            got=f"{moved!r}: {expected.get(moved)} before, {vocabulary.get(moved)} after",
            fix="use a tokenizer whose ids are 0, 1, 2, … without gaps",
        )
    return extended


def _add_to_wordpiece(
    description: dict[str, Any], entries: Sequence[str], finder: WordFinder
) -> None:
    first = finder.base.vocab_size
    flags = {"single_word": True, "lstrip": False, "rstrip": False}
    description["added_tokens"] += [
        {"id": first + number, "content": entry, **flags, "normalized": True, "special": False}
        for number, entry in enumerate(entries)
    ]


def _add_to_bpe(description: dict[str, Any], entries: Sequence[str], finder: WordFinder) -> None:
    model = description["model"]
    # The library numbers added tokens from the size of the vocabulary, unless they are in it.
    model["vocab"] |= {token["content"]: token["id"] for token in description["added_tokens"]}
    if not model["ignore_merges"]:
        _check_merges(model["vocab"], finder)
    first = finder.base.vocab_size
    model["vocab"] |= {entry: first + number for number, entry in enumerate(entries)}
    model["ignore_merges"] = True


def _add_to_unigram(
    description: dict[str, Any], entries: Sequence[str], finder: WordFinder
) -> None:
    vocabulary = description["model"]["vocab"]
    lowest = min(score for _, score in vocabulary)  # unknown characters score below the lowest
    for entry in entries:
        score = sum(finder.scores[token] for token in finder.tokens(entry)) + MARGIN
        vocabulary.append([entry, max(lowest, round(score, SCORE_DIGITS))])


_ADD = {"WordPiece": _add_to_wordpiece, "BPE": _add_to_bpe, "Unigram": _add_to_unigram}


def _check_base(kind: str, description: dict[str, Any], base: LoadedTokenizer) -> None:
    """Refuse tokenizers for which adding words would change other text."""
    steps = {step["type"] for step in _inner(description["pre_tokenizer"])}
    if kind not in RULES:
        raise UserError(
            "words cannot be added to this kind of tokenizer",
            got=f"a {kind} model",
            fix=f"use one of {', '.join(RULES)}",
        )
    if not steps:
        raise UserError(
            "the tokenizer does not split text into words, so a new word would change longer ones",
            got=f"a {kind} model without a pre-tokenizer",
            fix="use a tokenizer with a pre-tokenizer, or train one: electrify tokenizer DOCS",
        )
    if kind == "WordPiece" and not steps & SPLIT_AT_PUNCTUATION:
        raise UserError(
            "the tokenizer does not split words from punctuation, whose tokens would change",
            got=f"WordPiece with {', '.join(sorted(steps))}",
            fix=f"use a tokenizer with {' or '.join(sorted(SPLIT_AT_PUNCTUATION))}",
        )
    size = len(description["model"]["vocab"])
    if kind == "Unigram" and base.vocab_size > size:
        late = [t["content"] for t in description["added_tokens"] if t["id"] >= size]
        raise UserError(
            "the ids of new words would be those of added tokens",
            got=f"{', '.join(late[:3])} after a Unigram vocabulary of {size:,} tokens",
            fix="use a tokenizer that has its added tokens in its vocabulary",
        )


def _check_merges(vocabulary: dict[str, int], finder: WordFinder) -> None:
    """Refuse entries that merges do not produce and that `ignore_merges` would."""
    backend = finder.base.backend
    for entry in vocabulary:
        if finder.tokens(entry) == [entry]:
            continue
        text = backend.decoder.decode([entry]) if backend.decoder else entry
        if entry in [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]:
            raise UserError(
                "the vocabulary has a word that its merges do not produce, so text would change",
                got=f"{entry!r} is tokenized as {' '.join(finder.tokens(entry))}",
                fix="remove this entry from the tokenizer, or use another tokenizer",
            )


def _inner(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    if step is None:
        return []
    return step["pretokenizers"] if step["type"] == "Sequence" else [step]


def _start(word: str, mark: str) -> Found | None:
    """Return the letters and digits at the start of a word with its mark."""
    if not word.startswith(mark):
        return None
    text = word[len(mark) :]
    end = next((n for n, character in enumerate(text) if not _in_word(character)), len(text))
    if not end or (end < len(text) and _in_run(text[end])):
        return None
    return Found(mark + text[:end], text[:end])


def _runs(text: str) -> Iterator[str]:
    """Yield the longest runs of characters that a `single_word` token must not touch."""
    run = ""
    for character in text:
        if _in_run(character):
            run += character
        elif run:
            yield run
            run = ""
    if run:
        yield run


@lru_cache(maxsize=1 << 16)
def _in_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LM" or category == "Nd"


@lru_cache(maxsize=1 << 16)
def _in_run(character: str) -> bool:
    r"""Return whether a character is in \w of the library's regular expressions."""
    return _in_word(character) or unicodedata.category(character) in ("Pc", "Nl")
