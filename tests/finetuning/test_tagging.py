"""Tagged words, as files and as tokens."""

import sys

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from electrify.errors import UserError
from electrify.finetuning.encoder import encode, new_network, open_encoder
from electrify.finetuning.heads import Examples
from electrify.finetuning.own.data import Columns
from electrify.finetuning.own.iob import from_iob1
from electrify.finetuning.own.sentences import (
    Sentences,
    find_tags,
    is_tagged,
    read_for_tagging,
    read_sentences,
)
from electrify.finetuning.own.tagging import (
    IGNORE_INDEX,
    Tagger,
    entity_scores,
    find_word_starts,
    tag_indices,
)
from electrify.finetuning.own.target import Target, config_fields, prepare_rows, read_training

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP B-ORG
rejects VBZ I-VP O

Peter NNP I-NP B-PER
Blackburn NNP I-NP I-PER
"""


def read(tmp_path, name, content, requested=None):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return read_sentences(path, content, requested or Columns())


def test_conll_files_are_read(tmp_path):
    found = read(tmp_path, "a.txt", CONLL)
    assert found.words == [["EU", "rejects"], ["Peter", "Blackburn"]]
    assert found.tags == [["B-ORG", "O"], ["B-PER", "I-PER"]]
    assert [found.line(1, word) for word in (0, 1)] == [6, 7]
    assert find_tags(found) == ("B-ORG", "B-PER", "I-PER", "O")
    assert [indices.tolist() for indices in tag_indices(found, find_tags(found))] == [
        [0, 3],
        [1, 2],
    ]


def test_tabs_spaces_and_chosen_columns(tmp_path):
    tabs = read(tmp_path, "a.tsv", "New York\tB-LOC\r\n  \r\nis\tO\r\n\r\n\r\n")
    assert (tabs.words, tabs.tags) == ([["New York"], ["is"]], [["B-LOC"], ["O"]])
    chosen = read(tmp_path, "a.txt", CONLL, Columns("1", "", "2"))
    assert chosen.tags == [["NNP", "VBZ"], ["NNP", "NNP"]]
    assert read(tmp_path, "a.txt", "only\nwords\n\nhere\n").tags is None


def test_json_lines_are_read(tmp_path):
    content = (
        '{"id": 1, "tokens": ["a", "b"], "tags": ["O", "B-X"]}\n{"tokens": ["c"], "tags": ["O"]}\n'
    )
    found = read(tmp_path, "a.jsonl", content)
    assert (found.words, found.tags) == ([["a", "b"], ["c"]], [["O", "B-X"], ["O"]])
    numbers = read(tmp_path, "a.jsonl", '{"words": ["a", 7], "ner_tags": [0, 3]}\n')
    assert (numbers.words, numbers.tags) == ([["a", "7"]], [["0", "3"]])
    assert read(tmp_path, "a.jsonl", '{"tokens": ["a"]}\n').tags is None


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.conll", "a O\n", True),
        ("a.tsv", "a\tO\n\nb\tO\n", True),
        ("a.tsv", "text\tlabel\na\t1\n\n", False),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}', True),
        ("a.jsonl", '{"tokens": "a", "label": "O"}', False),
        ("a.csv", "tokens,tags\na,O\n", False),
        ("a.txt", "a O\n\nb O\n", True),
        ("a.txt", "a\tX\tO\nb\tX\tO\n", True),
        ("a.txt", "a film\tgood\nno film\tbad\n", False),
        ("a.conllu", "# text = a\n1\ta\n", True),
    ],
)
def test_tagged_files_are_distinguished_from_tables(name, content, expected, tmp_path):
    assert is_tagged(tmp_path / name, content) is expected


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.txt", "a O\nb\n", "line 2: the line must have 2 columns"),
        ("a.txt", "a\tO\nb\t\n", "line 2: the line must have 2 columns"),
        ("a.jsonl", '{"tokens": ["a"], "tags": []}', "line 1: 'tags' must be a non-empty list"),
        (
            "a.jsonl",
            '{"tokens": ["a"], "tags": ["O", "O"]}',
            "line 1: words and tags differ in number",
        ),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n{"tokens": "b", "tags": ["O"]}', "line 2: "),
        ("a.jsonl", '{"tokens": ["a"], "tags": [null]}', "line 1: 'tags' must be a non-empty list"),
        ("a.jsonl", '{"text": "a"}', "line 1: no key 'tokens'"),
        ("a.txt", f"a O\n{'x' * 1_000_000} O\n", "line 2: a cell has more than"),
        ("a.txt", "-DOCSTART- O\n", "no sentences"),
        ("a.conllu", "# newdoc\n", "no sentences"),
        ("a.txt", "a\tO\n" * 5_003, "line 1: a sentence has more than 1,000 words"),
        ("a.conll", "a film\tgood\nno film\tbad\n", "line 1: most words contain spaces"),
        ("a.txt", "".join(f"a T{n}\n\n" for n in range(200)), "too many distinct tags"),
    ],
)
def test_bad_files_are_refused_with_their_line(name, content, what, tmp_path):
    with pytest.raises(UserError) as error:
        read(tmp_path, name, content)
    assert what in error.value.what


@pytest.mark.parametrize("name", ["a.conll", "a.txt"])
def test_the_fix_for_a_table_read_as_tags_works(name, tmp_path):
    path = tmp_path / name
    path.write_text("a film\tgood\nno film\tbad\na movie\tgood\n")
    with pytest.raises(UserError) as error:
        read_training(path, "tags", Columns())
    assert error.value.fix.endswith("electrify finetune --kind classes")
    if "rename the file to end in .tsv" in error.value.fix:
        path = path.rename(tmp_path / "a.tsv")
    assert read_training(path, "classes", Columns()).target.labels == ("bad", "good")


CONLLU = """# newdoc id = 1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\t_\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\t_\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_
3.1\tx\tx\tX\t_\t_\t_\t_\t_\t_

# text = Stop
1\tStop\tstop\tVERB\t_\t_\t0\troot\t_\t_
"""


def test_universal_dependencies_are_read(tmp_path):
    """Words and universal parts of speech; comments and lines that are not words are skipped."""
    found = read(tmp_path, "a.conllu", CONLLU)
    assert found.words == [["Do", "n't", "go"], ["Stop"]]
    assert found.tags == [["AUX", "PART", "VERB"], ["VERB"]]
    assert found.word_lines == [[4, 5, 6], [10]]
    assert read(tmp_path, "a.conllu", CONLLU, Columns("3", "", "8")).words[0][1] == "not"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Anna met Bert in Rome.\n", [["Anna", "met", "Bert", "in", "Rome", "."]]),
        ("Anna met Bert\n\nBert slept here\n", [["Anna", "met", "Bert"], ["Bert", "slept", "here"]]),
        ("Anna sees Rome .\n" * 4, [["Anna", "sees", "Rome", "."]] * 4),
        ("go home\nsit down\nlie down\ncome home\ngo down\nrun home\n", [["go", "home"], ["sit", "down"], ["lie", "down"], ["come", "home"], ["go", "down"], ["run", "home"]]),
        ("GO HOME\nSIT DOWN\nLIE DOWN\nRUN HOME\n", [["GO", "HOME"], ["SIT", "DOWN"], ["LIE", "DOWN"], ["RUN", "HOME"]]),
        ("Is it O\nVitamin O\n", [["Is", "it", "O"], ["Vitamin", "O"]]),
        ("Is it O\nVitamin O\nTake vitamin O\n", [["Is", "it", "O"], ["Vitamin", "O"], ["Take", "vitamin", "O"]]),
        ("Anna O\nmet O\n\nBert O\n", [["Anna", "met"], ["Bert"]]),
        ("Anna B-PER\nmet O\n\nBert B-PER\n", [["Anna", "met"], ["Bert"]]),
        ("Anna X B-PER\nmet Y O\nBert X I-PER\nHere Y\n", None),  # a line without the last column
        ("Anna NNP\nmet VB\nBert NNP\nwent VB\n", [["Anna", "met", "Bert", "went"]]),
        ("Anna\nmet\n\nBert\n", [["Anna", "met"], ["Bert"]]),
    ],
)  # fmt: skip
def test_plain_text_is_distinguished_from_words_in_columns(content, words, tmp_path):
    """Lines of columns end in known tags, or in recurring upper-case ones at the same width."""
    known = ("B-PER", "I-PER", "O")
    if words is None:
        with pytest.raises(UserError, match="line 4: the line must have 3 columns"):
            read_for_tagging(tmp_path / "a.txt", content, Columns(), known)
        return
    assert read_for_tagging(tmp_path / "a.txt", content, Columns(), known).words == words


def test_columns_of_conll_files_are_numbers(tmp_path):
    for requested in (Columns("token"), Columns("", "", "5"), Columns("0")):
        with pytest.raises(UserError, match="are given by number"):
            read(tmp_path, "a.txt", CONLL, requested)


def test_tags_that_cannot_be_learned_are_refused(tmp_path):
    with pytest.raises(UserError, match="line 1: words have no tags"):
        find_tags(read(tmp_path, "a.txt", "a\nb\n"))
    with pytest.raises(UserError, match="the same tag"):
        find_tags(read(tmp_path, "a.txt", "a O\nb O\n"))
    with pytest.raises(UserError, match="line 4: the label is not in the training file"):
        tag_indices(read(tmp_path, "a.txt", "a O\n\na O\nb B-X\n"), ("O",))


def subword_tokenizers():
    """Yield byte-level BPE, with and without a prefix space, and SentencePiece's Metaspace."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    for before, letters in (
        (pre_tokenizers.ByteLevel(add_prefix_space=False), alphabet),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), alphabet),
        (pre_tokenizers.Metaspace(), []),
    ):
        tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
        tokenizer.pre_tokenizer = before
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], initial_alphabet=letters, show_progress=False)  # fmt: skip
        tokenizer.train_from_iterator(["the cat sat on the mat"] * 9, trainer)
        yield tokenizer


@pytest.mark.parametrize(
    "tokenizer", list(subword_tokenizers()), ids=["bytes", "prefixed", "metaspace"]
)
def test_word_starts_are_where_words_begin(tokenizer):
    """The text from the first token of a word to that of the next one is the word."""
    words = ["the", "cat", "satmat", "en", "thé", "e", "cat"]
    encoding = tokenizer.encode(" ".join(words))
    word_starts = find_word_starts(encoding, words)
    assert (np.diff(word_starts) > 0).all()
    ends = [*word_starts[1:], len(encoding.ids)]
    for word, start, stop in zip(words, word_starts, ends, strict=True):
        begin, end = encoding.offsets[start][0], encoding.offsets[stop - 1][1]
        assert " ".join(words)[begin:end].strip() == word


def test_word_starts_with_wordpieces_and_truncation(encoder_folder):
    encoder = open_encoder(str(encoder_folder))
    words = ["kata", "\u200b", "kaso", "loso", "kata"]  # the second has no token, the third has two
    (full,) = encode(encoder, [" ".join(words)], None, 64)
    assert full.tokens == ["[CLS]", "kata", "ka", "##so", "lo", "##so", "kata", "[SEP]"]
    assert find_word_starts(full, words).tolist() == [1, -1, 2, 4, 6]
    (truncated,) = encode(encoder, [" ".join(words)], None, 6)
    assert find_word_starts(truncated, words).tolist() == [1, -1, 2, 4, -1]


def test_the_loss_covers_first_tokens_only(encoder_folder, tmp_path):
    """Compare with the loss of transformers, with the labels set by hand."""
    encoder = open_encoder(str(encoder_folder))
    target = Target("tags", ("B-X", "O"))
    data = Sentences(tmp_path, [["kaso", "loso"], ["kata"]], [["B-X", "O"], ["O"]], [1, 4])
    rows = prepare_rows(target, data, encoder, 64)
    batch = rows.collate(np.array([0, 1]))
    expected = [
        [IGNORE_INDEX, 0, IGNORE_INDEX, 1, IGNORE_INDEX, IGNORE_INDEX],
        [IGNORE_INDEX, 1] + [IGNORE_INDEX] * 4,
    ]
    assert batch.labels_BL.tolist() == expected
    from transformers import AutoModelForTokenClassification

    network = new_network(AutoModelForTokenClassification, str(encoder_folder), **config_fields(target)).eval()  # fmt: skip
    loss, sums = Tagger(network)(batch, Examples(2.0))
    reference = network(
        batch.ids_BL, attention_mask=batch.attention_BL, labels=batch.labels_BL
    ).loss
    torch.testing.assert_close(loss, reference)
    assert sums["loss"] == loss.detach()
    assert prepare_rows(target, data, encoder, 5).truncated == 0
    assert prepare_rows(target, data, encoder, 4).truncated == 1


def test_entities_are_scored_by_seqeval():
    seqeval = pytest.importorskip("seqeval.metrics")
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "O"], ["B-LOC", "B-ORG"]]
    found = entity_scores(gold, predicted)
    assert found == pytest.approx({"f1": 2 / 3, "precision": 2 / 3, "recall": 2 / 3})
    assert found["f1"] == pytest.approx(seqeval.f1_score(gold, predicted))


def test_mixed_tagging_schemes_are_accepted():
    """IOB1 starts entities with I-, BILOU ends them with L-; a tag of no scheme is outside."""
    pytest.importorskip("seqeval.metrics")
    mixed = [["I-PER", "I-PER", "O", "U-LOC"], ["B-ORG", "L-ORG", "NOUN"]]
    plain = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "I-ORG", "O"]]
    assert entity_scores(mixed, plain)["f1"] == 1
    assert entity_scores(plain, mixed)["f1"] == 1
    assert entity_scores([["O"]], [["O"]])["f1"] == 0


def test_a_missing_seqeval_is_an_error(monkeypatch):
    for name in ("seqeval", "seqeval.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match="needs seqeval, which is not installed") as error:
        entity_scores([["O"]], [["O"]])
    assert 'pip install "electrify[finetune]"' in error.value.fix


IOB1 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Anna NNP I-NP B-PER
"""


def test_iob1_becomes_iob2_and_keeps_its_entities(tmp_path):
    found = read(tmp_path, "eng.train", IOB1)
    assert is_tagged(tmp_path / "eng.train", IOB1)
    assert found.tags == [["B-ORG", "O"], ["B-PER", "I-PER", "B-PER"]]
    seqeval = pytest.importorskip("seqeval.metrics")
    original = [["I-ORG", "O"], ["I-PER", "I-PER", "B-PER"]]
    assert seqeval.f1_score(original, found.tags) == 1.0
    for guess in ([["I-ORG", "O"], ["I-PER", "I-PER", "I-PER"]], [["O", "O"], ["I-PER"] * 3]):
        ours = entity_scores(found.tags, guess)
        assert ours["f1"] == pytest.approx(seqeval.f1_score(original, guess))


@pytest.mark.parametrize(
    "tags",
    [["B-PER", "I-PER", "I-LOC"], ["NN", "I-NP"], ["E-PER", "I-PER"], ["O", "O"], ["NOUN", "VERB"]],
)
def test_tags_of_other_schemes_stay_as_they_are(tags):
    assert from_iob1([tags]) == [tags]


@pytest.mark.parametrize(
    ("name", "content", "label", "expected"),
    [
        ("a.conllu", CONLLU, "deprel", [["aux", "advmod", "root"], ["root"]]),
        ("a.conllu", CONLLU, "XPOS", [["_", "_", "_"], ["_"]]),
        ("a.conllu", CONLLU, "8", [["aux", "advmod", "root"], ["root"]]),
        ("eng.testa", IOB1, "pos", [["NNP", "VBZ"], ["NNP", "NNP", "NNP"]]),
    ],
)
def test_columns_are_chosen_by_name_or_number(name, content, label, expected, tmp_path):
    assert read(tmp_path, name, content, Columns("", "", label)).tags == expected


def test_an_unknown_column_is_refused_with_the_names(tmp_path):
    with pytest.raises(UserError, match="no column 'pos'") as error:
        read(tmp_path, "a.conllu", CONLLU, Columns("", "", "pos"))
    assert "upos, xpos" in error.value.fix
