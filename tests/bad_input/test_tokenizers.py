"""Invalid tokenizers, and settings out of range."""

import json
import time

import pytest

from electrify.batches.loader import begins_word
from electrify.tokens import tokenizer
from tests.bad_input.sources import checked


def test_a_vocabulary_with_windows_line_ends(tmp_path, run, docs, vocab):
    windows = tmp_path / "vocab.txt"
    windows.write_bytes(b"\xef\xbb\xbf" + vocab.read_bytes().replace(b"\n", b"\r\n"))
    for name, path in (("unix", vocab), ("windows", windows)):
        run("prepare", docs, "--tokenizer", path, "--out", name)
    one, other = (checked(tmp_path / name) for name in ("unix", "windows"))
    assert one["files"] == other["files"]


VOCABULARIES = {
    "empty": b"",
    "no special tokens": b"a\nb\nc\n",
    "no [MASK]": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n",
    "a token twice": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\n",
    "invalid UTF-8": b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n\xff\xfe\n",
    "nested JSON": b"[" * 100_000,
    "no [UNK]": b"[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n",
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_invalid_vocabularies(tmp_path, refused, docs, name):
    (tmp_path / "vocab.txt").write_bytes(VOCABULARIES[name])
    refused("prepare", docs, "--tokenizer", "vocab.txt", "--out", "shards")
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b'{"version": "1.0", "model": {}}'])
def test_invalid_tokenizer_folders(tmp_path, refused, content):
    (tmp_path / "tok").mkdir()
    if content is not None:
        (tmp_path / "tok" / "tokenizer.json").write_bytes(content)
    refused("tokenizer", "--load", "tok", "--out", "tokenizer")
    assert not (tmp_path / "tokenizer").exists()


def unparseable(description: dict) -> None:
    description["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def large_ids(description: dict) -> None:
    vocabulary = description["model"]["vocab"]
    description["model"]["vocab"] = {word: 100 * id for word, id in vocabulary.items()}
    description["added_tokens"] = [
        {**token, "id": 100 * token["id"]} for token in description["added_tokens"]
    ]


def equal_ids(description: dict) -> None:
    description["model"]["vocab"] = dict.fromkeys(description["model"]["vocab"], 0)
    description["added_tokens"] = []


def no_unknown(description: dict) -> None:
    description["model"]["unk_token"] = "[NOPE]"


@pytest.mark.parametrize("edit", [unparseable, large_ids, equal_ids, no_unknown])
def test_unusable_tokenizers(tmp_path, refused, docs, vocab, edit):
    description = json.loads(tokenizer.load_tokenizer(vocab).backend.to_str())
    edit(description)
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "tokenizer.json").write_text(json.dumps(description))
    error = refused("prepare", docs, "--tokenizer", "tok", "--out", "shards")
    assert "tokenizer" in error
    assert not (tmp_path / "shards").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--length", 65536),
        ("--length", 10**12),
        ("--length", -1),
        ("--length", "x"),
        ("--validation", "nan"),
        ("--validation", -0.1),
        ("--validation", 0.6, "--test", 0.6),
        ("--workers", -1),
        ("--seed", "x"),
        ("--tokenizer", ""),
    ],
    ids=lambda options: " ".join(map(str, options)),
)
def test_prepare_settings_out_of_range(tmp_path, run, docs, vocab, options):
    error = run("prepare", docs, "--tokenizer", vocab, "--out", "shards", *options, code=2).stderr
    assert options[0].strip("-") in error
    assert not (tmp_path / "shards" / "manifest.json").exists()


@pytest.mark.parametrize("size", [0, -5, 10, "x", 10**30])
def test_vocabulary_sizes_out_of_range(tmp_path, run, docs, size):
    error = run("tokenizer", docs, "--vocab-size", size, "--out", "tok", code=2).stderr
    assert "vocab-size" in error
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_a_text_that_yields_fewer_tokens_than_requested(tmp_path, run, docs, vocab, kind):
    """The tokenizer works, and its actual size is reported."""
    output = run("tokenizer", docs, "--kind", kind, "--vocab-size", 60_000, "--out", "tok").stdout
    tokens = json.loads((tmp_path / "tok" / "tokenizer.json").read_text())["model"]["vocab"]
    assert 5 < len(tokens) < 60_000
    assert f"{len(tokens):,}" in output or str(len(tokens)) in output
    run("prepare", docs, "--tokenizer", "tok", "--out", "shards")
    checked(tmp_path / "shards")


def test_ids_without_a_token_get_an_embedding(tmp_path, run, docs, vocab):
    """The size of a vocabulary is its largest id + 1, as for the model's embeddings."""
    description = json.loads(tokenizer.load_tokenizer(vocab).backend.to_str())
    words = description["model"]["vocab"]
    last = max(words, key=words.__getitem__)
    words[last] += 3
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "tokenizer.json").write_text(json.dumps(description))
    loaded = tokenizer.load_tokenizer(tmp_path / "tok")
    assert loaded.vocab_size == words[last] + 1 == len(words) + 3
    assert begins_word(loaded)[words[last]] == (not last.startswith("##"))
    run("prepare", docs, "--tokenizer", "tok", "--out", "shards")
    assert checked(tmp_path / "shards")["identity"]["tokenizer"]["vocab_size"] == loaded.vocab_size


def test_many_unknown_tokens_draw_a_warning(tmp_path, run, docs, vocab):
    (tmp_path / "vocab.txt").write_text("\n".join([*tokenizer.OUR_NAMES.values(), "kata"]))
    warning = "of the tokens are unknown"
    output = run("prepare", docs, "--tokenizer", "vocab.txt", "--out", "shards").stdout
    assert output.count(warning) == 1
    assert warning in run("show", "shards").stdout
    assert warning not in run("prepare", docs, "--tokenizer", vocab, "--out", "shards2").stdout


def test_a_repeated_word_is_found_soon(tmp_path, refused, docs):
    words = [*tokenizer.OUR_NAMES.values(), *map(str, range(100_000)), "99999"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    began = time.monotonic()
    assert "'99999'" in refused("prepare", docs, "--tokenizer", "vocab.txt", "--out", "shards")
    assert time.monotonic() - began < 10
