"""New words shorten their documents, and text without them keeps its tokens."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer

from electrify.batches.loader import begins_word
from electrify.cli import main
from electrify.corpora.corpus import corpus, settings_type
from electrify.errors import UserError
from electrify.tokens.encoder import LineEncoder
from electrify.tokens.extend import ExtendTokenizer, extend_tokenizer
from electrify.tokens.new_words import WordFinder, with_new_words
from electrify.tokens.tokenizer import load_tokenizer, save_tokenizer, with_special_tokens
from electrify.tokens.trainers import train_bpe, train_unigram, train_wordpiece

# Real text: the pages of this project. The base tokenizers know the first page only.
PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
TEXTS = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
SYMBOL = re.compile(r"[^\W_][^\w\s\x00-\x7f]|[^\w\s\x00-\x7f][^\W_]")
KINDS = ("wordpiece", "bpe", "unigram")


@pytest.fixture(scope="module")
def docs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extend")
    (folder / "a.txt").write_text("\n\n".join(TEXTS[name] for name in ("training", "recipes")))
    out = folder / "docs"
    corpus(settings_type("text")(sources=(str(folder / "a.txt"),), out=out))
    return out


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict[str, Path]:
    lines = [TEXTS["glossary"].split("\n")]
    trained = {
        "wordpiece": train_wordpiece(lines, 900, 2, lowercase=True, strip_accents=True),
        "bpe": train_bpe(lines, 900, 2),
        "unigram": train_unigram(lines, 700, lowercase=False, strip_accents=False),
    }
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in trained}
    for kind, tokenizer in trained.items():
        save_tokenizer(tokenizer, folders[kind])
    return folders


@pytest.fixture(scope="module")
def made(docs, bases, tmp_path_factory) -> dict[str, tuple[Path, dict]]:
    found = {}
    for kind, base in bases.items():
        out = tmp_path_factory.mktemp("made") / kind
        chosen = ExtendTokenizer(str(base), docs=(docs,), out=out, add=60)
        found[kind] = (out, extend_tokenizer(chosen))
    return found


@pytest.fixture(scope="module")
def pairs(bases, made) -> dict:
    return {kind: (load_tokenizer(bases[kind]), load_tokenizer(made[kind][0])) for kind in KINDS}


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer.backend.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", KINDS)
def test_old_ids_stay_and_new_words_are_one_token(kind, pairs, made):
    base, extended = pairs[kind]
    old, new = base.backend.get_vocab(), extended.backend.get_vocab()
    assert old.items() <= new.items()
    added = [entry["token"] for entry in made[kind][1]["extension"]["new"]]
    assert len(added) == 60
    assert {token: new[token] for token in added} == {
        token: base.vocab_size + number for number, token in enumerate(added)
    }
    for entry in made[kind][1]["extension"]["new"]:
        text = " " + entry["word"] if entry["token"][0] in "Ġ▁" else entry["word"]
        if entry["token"][0] != "Ġ" and kind == "bpe":
            continue  # a byte-level word without a space before it stands after punctuation
        assert ids(extended, text) == [new[entry["token"]]]
        assert len(ids(base, text)) == entry["pieces"] > 1


@pytest.mark.parametrize("kind", KINDS)
def test_real_text_changes_only_where_new_words_are(kind, pairs, made):
    base, extended = pairs[kind]
    words = {entry["word"] for entry in made[kind][1]["extension"]["new"]}
    first, changed, kept = base.vocab_size, 0, 0
    for line in "\n".join(TEXTS.values()).split("\n"):
        before, after = ids(base, line), ids(extended, line)
        plain = line.lower() if kind == "wordpiece" else line
        found = re.findall(r"[^\W\d_]+|\d+" if kind == "bpe" else r"[^\W_]+", plain)
        if words.isdisjoint(found):
            kept += 1
            # Unigram has no whole words: text may start with a new word without being it.
            starts = kind == "unigram" and any(word in plain for word in words)
            assert before == after or starts, line
        elif before != after:
            changed += 1
            assert len(after) < len(before)
            assert max(after) >= first
        if before != after:  # the rest of the line is as it was
            unfolded = [base_id for i in after for base_id in _pieces(base, extended, i, first)]
            # BERT splits at punctuation, but not at symbols such as "→" and "²".
            joined = kind == "wordpiece" and SYMBOL.search(line)
            assert unfolded == before or kind == "unigram" or joined, line
    assert changed > 50
    assert kept > 50


def _pieces(base, extended, number: int, first: int) -> list[int]:
    if number < first:
        return [number]
    token = extended.backend.id_to_token(number)
    return [piece.id for piece in base.backend.model.tokenize(token)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_words_that_only_contain_a_new_word_keep_their_tokens(kind, pairs, made, data):
    base, extended = pairs[kind]
    words = [entry["word"] for entry in made[kind][1]["extension"]["new"]]
    letters = st.text("abcxyzéß9_", min_size=1, max_size=3)
    word, before, after = (data.draw(s) for s in (st.sampled_from(words), letters, letters))
    longer = [before + word, before + word + after]
    if kind != "unigram":  # here text that starts with a new word may start with its token
        longer.append(word + after)
    spoken = {part for one in longer for part in re.findall(r"[^\W\d_]+|\d+|[^\W_]+", one.lower())}
    if spoken & {one.lower() for one in words}:
        return  # byte-level words end at digits and "_"
    for text in longer:
        assert ids(base, f"the {text}, too") == ids(extended, f"the {text}, too")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_word_cache_gives_the_ids_of_the_backend(kind, pairs, made, data):
    extended = pairs[kind][1]
    words = st.sampled_from([entry["word"] for entry in made[kind][1]["extension"]["new"]])
    between = st.sampled_from(["", " ", "_", ",", "™", "s", "9", "-", "́", "  ", "(", "東"])
    parts = data.draw(st.lists(words | words.map(str.upper) | between, max_size=9))
    line = "".join(parts)
    encoder = LineEncoder(extended.backend)
    assert encoder._word_prefix is not None  # words are cached
    for _ in range(2):
        assert encoder.lines(line) == ([ids(extended, line)] if line.strip() else [])


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_gives_the_same_ids_and_text(kind, pairs, made):
    extended, theirs = pairs[kind][1], AutoTokenizer.from_pretrained(made[kind][0])
    text = "The discriminator predicts, for checkpoints (checkpoints), replaced tokens."
    assert theirs(text, add_special_tokens=False)["input_ids"] == ids(extended, text)
    assert len(theirs) == extended.vocab_size
    decoded = theirs.decode(ids(extended, text)).strip()
    spaces = lambda given: re.sub(r"\s", "", given).lower()  # noqa: E731
    assert spaces(decoded) == spaces(text)
    saved = made[kind][0] / "again"
    theirs.save_pretrained(saved)
    assert ids(load_tokenizer(saved), text) == ids(extended, text)


@pytest.mark.parametrize("kind", KINDS)
def test_new_words_begin_words_for_whole_word_masking(kind, pairs, made):
    base, extended = pairs[kind]
    flags = begins_word(extended)
    assert np.array_equal(flags[: base.vocab_size], begins_word(base))
    tokens = [entry["token"] for entry in made[kind][1]["extension"]["new"]]
    marked = [kind != "bpe" or token.startswith("Ġ") for token in tokens]
    assert flags[base.vocab_size :].tolist() == marked


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_most_useful_words_come_first_and_a_second_run_gives_the_same_bytes(
    kind, made, bases, docs, tmp_path, capsys
):
    extension = made[kind][1]["extension"]
    saved = [
        (-entry["count"] * (entry["pieces"] - 1), entry["token"]) for entry in extension["new"]
    ]
    assert saved == sorted(saved)
    tokens = extension["tokens"]
    assert tokens["after"] < tokens["before"]
    if kind == "wordpiece":  # every word is counted where its token matches
        assert tokens["before"] - tokens["after"] == -sum(value for value, _ in saved)
    assert all(any(c.isalpha() for c in entry["word"]) for entry in extension["new"])
    assert all(entry["count"] >= 5 for entry in extension["new"])
    command = ["tokenizer", "extend", str(bases[kind]), "--docs", str(docs), "--add", "60"]
    assert main([*command, "--out", str(tmp_path / "again")]) == 0
    assert "tokens per word of the documents" in capsys.readouterr().out
    files = [
        json.loads((f / "manifest.json").read_text()) for f in (made[kind][0], tmp_path / "again")
    ]
    assert files[0]["files"] == files[1]["files"]
    assert main([*command, "--out", str(tmp_path / "again")]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_prepare_uses_the_new_words(made, docs, tmp_path):
    command = ["prepare", str(docs), "--tokenizer", str(made["wordpiece"][0]), "--workers", "1"]
    assert main([*command, "--length", "32", "--out", str(tmp_path / "shards")]) == 0
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    counted = manifest["splits"]["train"]["text_tokens"]  # the words of no other split count
    assert counted == made["wordpiece"][1]["extension"]["tokens"]["after"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"add": 0}, "--add is too small"),
        ({"min_count": 0}, "--min-count is too small"),
        ({"min_count": 10**6}, "no words to add"),
        ({"docs": ()}, "no documents given"),
    ],
)
def test_settings_that_add_nothing_are_refused(change, what, bases, docs, tmp_path):
    options = {"base": str(bases["wordpiece"]), "docs": (docs,), "out": tmp_path / "out", **change}
    with pytest.raises(UserError, match=what):
        extend_tokenizer(ExtendTokenizer(**options))


def test_tokenizers_whose_other_text_would_change_are_refused(pairs):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    levels = models.WordLevel({token: n for n, token in enumerate(special)}, unk_token="[UNK]")
    loaded = with_special_tokens(Tokenizer(levels), pairs["wordpiece"][0].names)
    with pytest.raises(UserError, match="cannot be added to this kind"):
        WordFinder(loaded)
    description = json.loads(pairs["bpe"][0].backend.to_str())
    without = Tokenizer.from_str(json.dumps({**description, "pre_tokenizer": None}))
    with pytest.raises(UserError, match="does not split text into words"):
        WordFinder(with_special_tokens(without, pairs["bpe"][0].names))
    description["model"]["vocab"]["Ġzqxj"] = len(description["model"]["vocab"])
    unmerged = with_special_tokens(
        Tokenizer.from_str(json.dumps(description)), pairs["bpe"][0].names
    )
    with pytest.raises(UserError, match="merges do not produce"):
        with_new_words(WordFinder(unmerged), ["Ġnew"])
    description = json.loads(pairs["unigram"][0].backend.to_str())
    late = Tokenizer.from_str(json.dumps(description))
    late.add_special_tokens(["<late>"])
    with pytest.raises(UserError, match="would be those of added tokens"):
        WordFinder(with_special_tokens(late, pairs["unigram"][0].names))
