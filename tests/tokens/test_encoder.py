"""Caching words must never change an id."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from electrify.tokens.encoder import LineEncoder
from electrify.tokens.tokenizer import from_vocabulary

TEXT = """The quick brown fox, jumping; over "lazy" dogs' tails (in 1999) -- résumé naïve coöperation.
Ünïcödé and 東京 and 한국어; don't they're we've I'll  two spaces   three\ttab $3.50 #tag @you e.g."""


def trained(kind: str) -> Tokenizer:
    backend = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "bpe":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    else:
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
        )
        trainer = trainers.UnigramTrainer(
            vocab_size=150, special_tokens=special, unk_token="[UNK]", show_progress=False
        )
    backend.train_from_iterator([TEXT] * 3, trainer)
    return backend


def wordpiece() -> Tokenizer:
    characters = sorted({c for c in TEXT.lower() if not c.isspace()})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##ing", *characters]
    return from_vocabulary([*words, *(f"##{c}" for c in characters)]).backend


BACKENDS = {"wordpiece": wordpiece(), "bpe": trained("bpe"), "unigram": trained("unigram")}
unusual_text = st.text(
    st.sampled_from(list("aBé ,.'\t\x1c\x85\xa0\u2028\u3000\u0301\u200b東한ΣÅ[]0"))
    | st.characters(exclude_characters="\n", exclude_categories=["Cs"]),
    max_size=40,
)


@pytest.mark.parametrize("kind", BACKENDS)
@settings(max_examples=300)
@given(text=unusual_text)
def test_ids_equal_those_of_the_tokenizer(kind, text):
    encoder = LineEncoder(BACKENDS[kind])
    assert encoder._word_prefix is not None  # words are cached
    lines = [line for line in (TEXT + "\n" + text).split("\n") if line and not line.isspace()]
    direct = [BACKENDS[kind].encode(line, add_special_tokens=False).ids for line in lines]
    assert encoder.lines(TEXT + "\n" + text) == direct
    assert encoder.lines(TEXT + "\n\n" + text) == direct  # now from the cache


def test_a_tokenizer_that_looks_across_spaces_encodes_whole_lines():
    backend = Tokenizer(models.Unigram([("▁", -1.0), ("a", -2.0), ("a▁a", -1.5)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    encoder = LineEncoder(backend)
    assert encoder._word_prefix is None
    assert encoder.lines("a a") == [backend.encode("a a").ids]


def test_added_tokens_match_across_spaces_and_punctuation():
    backend = wordpiece()
    backend.add_tokens(["fox jumping", "e.g."])
    encoder = LineEncoder(backend)
    assert encoder._word_prefix is None
    assert encoder.lines(TEXT) == [
        backend.encode(line, add_special_tokens=False).ids for line in TEXT.split("\n")
    ]


def test_long_words_are_not_cached():
    encoder = LineEncoder(BACKENDS["wordpiece"])
    encoder.lines("a" * 33 + " fox")
    assert list(encoder._words) == ["fox"]


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr("electrify.tokens.encoder.MOST_CACHED_WORDS", 10)
    encoder = LineEncoder(BACKENDS["wordpiece"])
    for start in range(0, 200, 5):
        text = " ".join(f"w{number}" for number in range(start, start + 5))
        assert encoder.lines(text) == [
            BACKENDS["wordpiece"].encode(text, add_special_tokens=False).ids
        ]
        assert len(encoder._words) <= 15
