"""Training tokenizers."""

from collections import Counter

import pytest
from tests.conftest import make_documents, write_documents
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from electrify.corpora.document import Document
from electrify.errors import UserError
from electrify.tokens import tokenizer
from electrify.tokens.trainers import frequent_letters, train_wordpiece
from electrify.tokens.vocabulary import MakeTokenizer, make_tokenizer, share_with_accents

LINES = [line for document in make_documents(300) for line in document.text.split("\n")]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_every_kind_loads_in_transformers_and_decodes_its_ids(docs, tmp_path, kind):
    size = 60 if kind == "unigram" else 300
    made = make_tokenizer(MakeTokenizer((docs,), tmp_path / "t", kind, max(100, size)))
    text = "kata loso midi nufu"
    ids = made.backend.encode(text, add_special_tokens=False).ids
    assert made.backend.decode(ids).strip() == text
    auto = AutoTokenizer.from_pretrained(tmp_path / "t")
    assert auto(text, add_special_tokens=False)["input_ids"] == ids
    assert tokenizer.load_tokenizer(tmp_path / "t").fingerprint == made.fingerprint


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_training_again_gives_the_same_file(docs, tmp_path, kind, electrify):
    """In separate processes, which break ties and order sets by different hashes."""
    for number in "123":
        out = ("--out", tmp_path / number)
        electrify("tokenizer", docs, "--kind", kind, "--vocab-size", 300, *out, fresh=True)
    contents = {(tmp_path / number / "tokenizer.json").read_bytes() for number in "123"}
    assert len(contents) == 1


def test_wordpiece_matches_the_librarys_trainer():
    """Nearly all tokens are equal; the library breaks ties differently in every run."""
    ours = train_wordpiece([LINES], 200, 2, lowercase=True, strip_accents=True)
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = list(tokenizer.OUR_NAMES.values())
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, min_frequency=2, special_tokens=special, show_progress=False
    )
    backend.train_from_iterator(LINES, trainer)
    expected = set(backend.get_vocab())
    assert len(expected & set(ours.backend.get_vocab())) / len(expected) > 0.9


def test_stray_letters_do_not_fill_the_vocabulary():
    strays = "".join(chr(0x4E00 + number) for number in range(500))
    made = train_wordpiece([LINES * 40, [strays]], 300, 2, lowercase=True, strip_accents=True)
    assert made.vocab_size <= 300
    assert not any(stray in made.backend.get_vocab() for stray in strays)
    assert frequent_letters(Counter({"ab": 10, "c": 1}), most=2) == {"a", "b"}


def test_cased_and_accents(tmp_path):
    documents = [Document(str(i), "Café Ünder Étude café ünder étude", "x") for i in range(50)]
    docs = write_documents(tmp_path / "docs", documents)
    tokens = {}
    for name, options in {
        "plain": {},
        "accents": {"keep_accents": True},
        "cased": {"cased": True},
    }.items():
        made = make_tokenizer(MakeTokenizer((docs,), tmp_path / name, vocab_size=100, **options))
        tokens[name] = made.backend.encode("Café", add_special_tokens=False).tokens
    assert tokens == {"plain": ["cafe"], "accents": ["café"], "cased": ["Café"]}


def test_stripping_accents_prints_a_note(tmp_path, capsys):
    docs = write_documents(tmp_path / "docs", [Document("1", "tiếng Việt có dấu " * 50, "x")])
    make_tokenizer(MakeTokenizer((docs,), tmp_path / "t", vocab_size=100))
    assert "--keep-accents" in capsys.readouterr().out
    assert share_with_accents("plain") == 0


def test_a_tokenizer_is_converted_and_invalid_settings_are_refused(tmp_path, vocab, docs):
    made = make_tokenizer(MakeTokenizer((), tmp_path / "t", load=str(vocab)))
    assert made.fingerprint == tokenizer.load_tokenizer(vocab).fingerprint
    for settings in (
        MakeTokenizer((), tmp_path / "u"),
        MakeTokenizer((docs,), tmp_path / "u", load="x"),
    ):
        with pytest.raises(UserError, match="give documents"):
            make_tokenizer(settings)
    with pytest.raises(UserError, match="too small"):
        make_tokenizer(MakeTokenizer((docs,), tmp_path / "u", vocab_size=5))
    assert not (tmp_path / "u").exists()


def test_a_large_corpus_is_sampled(docs, tmp_path, monkeypatch):
    seen = []
    from electrify.tokens import vocabulary as module

    original = module.train_wordpiece
    monkeypatch.setattr(
        module, "train_wordpiece", lambda b, *a: original([seen.extend(x) or x for x in b], *a)
    )
    make_tokenizer(MakeTokenizer((docs,), tmp_path / "t", vocab_size=100, max_chars=100_000))
    assert 60_000 < sum(map(len, seen)) < 140_000
