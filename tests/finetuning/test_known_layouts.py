"""Layouts of public data sets that are read as they are: TREC, SuperGLUE's JSON lines, KorSTS."""

import json
import lzma

import pytest

from electrify.errors import UserError
from electrify.finetuning.own.data import Columns
from electrify.finetuning.own.target import read_matching, read_training

QUESTIONS = "NUM:date When was she born ?\nLOC:other Where is El Ni\xf1o ?\nNUM:other How many ?\n"


def written(folder, name, text, encoding="utf-8"):
    path = folder / name
    content = text.encode(encoding)
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)
    return path


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize("name", ["TREC.train.xz", "train_5500.label"])
def test_question_types_are_read_in_either_encoding(name, encoding, tmp_path):
    path = written(tmp_path, name, QUESTIONS, encoding)
    coarse = read_training(path, "auto", Columns())
    assert coarse.target.labels == ("LOC", "NUM")
    assert coarse.data.first[1] == "Where is El Ni\xf1o ?"
    fine = read_training(path, "auto", Columns(label="fine"))
    assert fine.target.labels == ("LOC:other", "NUM:date", "NUM:other")


def test_other_latin_1_text_is_still_refused_with_its_line(tmp_path):
    path = written(tmp_path, "a.csv", "text,label\nok,1\nni\xf1o,2\n", "latin-1")
    with pytest.raises(UserError, match="line 3: not valid UTF-8"):
        read_training(path, "auto", Columns())


@pytest.mark.parametrize(
    ("rows", "first", "second", "labels"),
    [
        (
            [
                {"question": "is it", "passage": "It is.", "idx": 0, "label": True},
                {"question": "was it", "passage": "No.", "idx": 1, "label": False},
            ],
            "is it",
            "It is.",
            ("false", "true"),
        ),
        (
            [
                {"premise": "A.", "hypothesis": "B", "label": "neutral", "idx": 0},
                {"premise": "C.", "hypothesis": "D", "label": "entailment", "idx": 1},
            ],
            "A.",
            "B",
            ("entailment", "neutral"),
        ),
    ],
    ids=["BoolQ", "CB and RTE"],
)
def test_super_glue_pairs(rows, first, second, labels, tmp_path):
    training = read_training(written(tmp_path, "train.jsonl.xz", lines(*rows)), "auto", Columns())
    assert training.target.labels == labels
    assert (training.data.first[0], training.data.second[0]) == (first, second)


WIC = {
    "word": "place",
    "sentence1": " Do you want to come over to my place later?",
    "sentence2": "A political system with no place for it.",
    "start1": 32,
    "end1": 37,
    "start2": 27,
    "end2": 32,
    "label": False,
    "version": 1.1,
}


def test_the_word_is_marked_in_both_contexts(tmp_path):
    other = {**WIC, "label": True}
    path = written(tmp_path, "train.jsonl", lines(WIC, other))
    training = read_training(path, "auto", Columns())
    expected = "Do you want to come over to my * place * later?"
    assert training.data.first == [expected] * 2
    dev = read_matching(path, training.target, training.columns)
    assert dev.second == ["A political system with no * place * for it."] * 2


@pytest.mark.parametrize("change", [{"end1": 99}, {"start1": None}, {"start2": 40}, {"end2": "x"}])
def test_offsets_that_mark_no_word_are_refused_with_their_line(change, tmp_path):
    path = written(tmp_path, "train.jsonl", lines(WIC, {**WIC, "label": True, **change}))
    with pytest.raises(UserError, match="line 2: the offsets mark no word"):
        read_training(path, "auto", Columns())


def test_korean_sentence_similarity(tmp_path):
    header = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
    rows = 'a\tb\t2012\t1\t5.000\t한 "남자"가\t춤을\na\tb\t2012\t2\t4.750\t아이가\t말을\n'
    training = read_training(written(tmp_path, "sts-dev.tsv", header + rows), "auto", Columns())
    assert training.target.kind == "score"
    assert training.data.first[0] == '한 "남자"가'
