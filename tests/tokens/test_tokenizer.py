"""Loading, saving and training tokenizers."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from electrify.errors import UserError
from electrify.tokens import tokenizer
from electrify.tokens.tokenizer import from_vocabulary

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/tokenizer_strings.json").read_text())
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Known differences between the `tokenizers` library and the official tokenizer (see the fidelity
# page): its Unicode tables are newer than 11.0, it keeps unassigned code points, and it lower-cases
# a Greek final sigma to σ. Everything else must be equal, token for token.
KNOWN_DIFFERENCES = {
    "nonchar\U0010ffffx": "unassigned",
    "ΟΔΥΣΣΕΥΣ Ὀδυσσεύς": "final sigma",
    "ΑΣ ΑΣ. ΣΑΣ Σ": "final sigma",
}


@pytest.mark.parametrize(
    ("column", "lowercase", "strip_accents"),
    [("tokens", True, True), ("tokens_keep_accents", True, False), ("tokens_cased", False, False)],
)
def test_agrees_with_the_official_tokenizer(column, lowercase, strip_accents):
    loaded = from_vocabulary(GOLDEN["vocabulary"], lowercase, strip_accents)
    differing = [
        row
        for row in GOLDEN["rows"]
        if loaded.backend.encode(row["text"], add_special_tokens=False).tokens != row[column]
    ]
    unexplained = [
        row["text"]
        for row in differing
        if not row["unicode_dependent"]
        and row["text"] not in KNOWN_DIFFERENCES
        and not any(_unassigned(character) for character in row["text"])
    ]
    assert unexplained == []
    assert len(differing) <= 14


def _unassigned(character: str) -> bool:
    import unicodedata

    return unicodedata.category(character) == "Cn"


def test_words_of_up_to_200_characters_are_tokenized_and_literal_special_tokens_are_text():
    loaded = from_vocabulary([*SPECIAL, "a", "##a", "[", "]", "mask"])
    tokens = lambda text: loaded.backend.encode(text, add_special_tokens=False).tokens  # noqa: E731
    assert tokens("a" * 200) == ["a"] + ["##a"] * 199
    assert tokens("a" * 201) == ["[UNK]"]
    assert tokens("[MASK]") == ["[", "mask", "]"]


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (["hello"], "Hello", ["hello"]),  # no capitals in the vocabulary: uncased
        (["Hello", "hello"], "Hello", ["Hello"]),
        (["resume"], "Résumé", ["resume"]),
        (["résumé"], "Résumé", ["résumé"]),  # accents in the vocabulary: kept
    ],
)
def test_casing_and_accents_are_inferred_from_the_vocabulary(tmp_path, words, text, expected):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *words]) + "\n", encoding="utf-8")
    loaded = tokenizer.load_tokenizer(path)
    assert loaded.backend.encode(text, add_special_tokens=False).tokens == expected


def test_special_ids_come_from_the_tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("x\ny\n[MASK]\n[SEP]\n[UNK]\n[PAD]\n[CLS]\n")
    special = tokenizer.load_tokenizer(path).special
    assert (special.pad, special.cls, special.sep, special.mask, special.unk) == (5, 6, 3, 2, 4)


def test_a_saved_folder_loads_in_transformers_and_round_trips(tmp_path):
    loaded = from_vocabulary(GOLDEN["vocabulary"])
    tokenizer.save_tokenizer(loaded, tmp_path / "t")
    again = tokenizer.load_tokenizer(tmp_path / "t")
    assert again.fingerprint == loaded.fingerprint
    assert again.special == loaded.special
    auto = AutoTokenizer.from_pretrained(tmp_path / "t")
    encoded, ours = auto("the cat", "a dog"), again.backend.encode("the cat", "a dog")
    assert encoded["input_ids"] == ours.ids
    assert encoded["token_type_ids"] == ours.type_ids
    found = (auto.mask_token_id, auto.pad_token_id, len(auto))
    assert found == (again.special.mask, again.special.pad, again.vocab_size)


def test_roberta_names_of_special_tokens_are_found(tmp_path):
    words = {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"])}
    from tokenizers import models

    Tokenizer(models.WordLevel(words, unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.load_tokenizer(tmp_path).special == tokenizer.SpecialIds(1, 0, 2, 4, 3)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n", "lacks special tokens"),
        ("[PAD]\nx\nx\n", "twice"),
        (b"\xff\xfe\xff", "not a vocabulary"),
    ],
)
def test_an_invalid_vocabulary_is_refused(tmp_path, content, what):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=what):
        tokenizer.load_tokenizer(path)


def test_a_folder_without_tokenizer_and_an_unknown_name_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no tokenizer in"):
        tokenizer.load_tokenizer(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in (tmp_path / "missing", "nobody/nothing"):
        with pytest.raises(UserError, match="no tokenizer at"):
            tokenizer.load_tokenizer(name)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not a tokenizer"):
        tokenizer.load_tokenizer(tmp_path)
