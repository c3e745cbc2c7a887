"""Read SQuAD: find the files, correct wrong answer positions, refuse invalid files."""

import json
import lzma

import pytest
from tests.finetuning.squad_files import paragraphs, question, write_squad

from electrify.errors import UserError
from electrify.finetuning.squad.data import (
    AnswerSpan,
    Gold,
    Question,
    find_files,
    locate_answer,
    read_questions,
    sample_questions,
)


def test_files_are_found_plain_or_compressed_and_the_version_by_their_names(tmp_path):
    train = write_squad(tmp_path / "train-v2.0.rebuilt.json.xz", paragraphs(2, unanswerable=True))
    dev = write_squad(tmp_path / "dev-v2.0.json", paragraphs(2, unanswerable=True))
    write_squad(tmp_path / "dev-v1.1.json", paragraphs(2))
    assert find_files(tmp_path, "auto") == ("2.0", train, dev)
    first, second = read_questions(train, "2.0")[:2]
    assert (first.impossible, second.impossible) == (False, True)
    assert first.context[first.answers[0].start :].startswith(first.answers[0].text)
    with pytest.raises(UserError, match="must contain both a training and a development file"):
        find_files(tmp_path, "1.1")
    write_squad(tmp_path / "train-v1.1.json", paragraphs(2))
    with pytest.raises(UserError, match="several versions"):
        find_files(tmp_path, "auto")
    assert find_files(tmp_path, "1.1").version == "1.1"
    write_squad(tmp_path / "train-v1.1-copy.json", paragraphs(2))
    with pytest.raises(UserError, match=r"several files train-v1\.1"):
        find_files(tmp_path, "1.1")


def changed(**fields):
    content = paragraphs(1)
    content[0]["qas"][1] |= fields
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(answers={"text": "x"}), r'data\[0\].paragraphs\[0\].qas\[1\]: "answers" is dict'),
        (changed(answers=[{"text": "x"}]), r'answers\[0\] has no "answer_start"'),
        (changed(answers=[{"text": "x", "answer_start": "3"}]), '"answer_start" is str, not int'),
        (changed(answers=[{"text": "x", "answer_start": True}]), '"answer_start" is bool'),
        (changed(id="0-0"), "a duplicate question"),
        (changed(question=None), '"question" is NoneType'),
        (changed(answers=[]), "a question has no answer, which SQuAD 1.1 does not allow"),
        ([{"qas": []}], 'has no "context"'),
        ([], "has no questions"),
        (["text"], 'has no "context"'),
    ],
)
def test_a_wrong_layout_is_reported_with_its_position(tmp_path, content, message):
    path = write_squad(tmp_path / "train-v1.1.json", content)
    with pytest.raises(UserError, match=message):
        read_questions(path, "1.1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "not valid JSON"),
        ("a.json", b"\xff\xfe", "not valid UTF-8"),
        ("a.json", b"[]", 'has no "data"'),
        ("a.json", b'{"data": {}}', '"data" is dict'),
        ("a.json", b"[" * 100_000, "not valid JSON"),
        ("a.json.xz", b"no xz at all", "cannot be read to the end"),
    ],
)
def test_invalid_json_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_questions(tmp_path / name, "1.1")


def test_a_truncated_xz_file_is_refused(tmp_path):
    path = write_squad(tmp_path / "a.json.xz", paragraphs(50))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match="cannot be read to the end"):
        read_questions(path, "1.1")


def test_a_bomb_is_refused_before_it_fills_the_memory(tmp_path):
    path = tmp_path / "a.json.xz"
    path.write_bytes(lzma.compress(b" " * (1 << 26)))
    with pytest.raises(UserError, match="far more than text"):
        read_questions(path, "1.1")


def test_answerable_questions_of_2_0_must_have_answers(tmp_path):
    path = write_squad(tmp_path / "a.json", changed(answers=[], is_impossible=False))
    with pytest.raises(UserError, match="no answers, but is_impossible is false"):
        read_questions(path, "2.0")


CONTEXT = "The fourth of four cats, and four dogs in 1990s Rome."


@pytest.mark.parametrize(
    ("text", "given", "found", "moved"),
    [
        ("four", 14, 14, False),
        ("four", 4, 14, True),  # inside "fourth": the nearest complete word
        ("four", 31, 29, True),  # off by two
        ("four", -5, 14, True),
        ("dogs", 10_000, 34, True),
        ("1990", 42, 42, False),  # inside a word, but nowhere else
        ("1990", 40, 42, True),
        ("Rome.", 48, 48, False),
    ],
)
def test_wrong_answer_positions_are_corrected(text, given, found, moved):
    asked = Question("q", "how many?", CONTEXT, (Gold(text, given),))
    assert locate_answer(asked) == AnswerSpan(found, found + len(text), moved)


@pytest.mark.parametrize("text", ["horses", "", "  "])
def test_an_answer_that_is_not_in_the_context_has_no_position(text):
    assert locate_answer(Question("q", "what?", CONTEXT, (Gold(text, 3),))) is None


def test_scripts_without_spaces_are_not_corrected():
    asked = question("東京は北京の東。北京。", "北京")
    assert locate_answer(asked) == AnswerSpan(3, 5, False)


def test_a_fraction_is_always_the_same_in_the_order_of_the_file():
    questions = [question("loso kata", "loso", str(number)) for number in range(100)]
    sample = sample_questions(questions, 0.1)
    assert len(sample) == 10
    assert sample == sample_questions(questions, 0.1)
    assert sample == sorted(sample, key=lambda q: int(q.id))
    assert set(sample) < set(sample_questions(questions, 0.3))
    assert sample_questions(questions, 1.0) == questions
    with pytest.raises(UserError, match="--train-share must be"):
        sample_questions(questions, 0.0)


def test_a_huge_context_is_refused(tmp_path):
    (paragraph,) = paragraphs(1)
    paragraph["context"] += " kata" * 92_000  # 460 KB
    path = write_squad(tmp_path / "dev.json", [paragraph])
    with pytest.raises(UserError, match="more than 100,000 characters"):
        read_questions(path, "1.1")


def test_lone_surrogates_are_replaced(tmp_path):
    (paragraph,) = paragraphs(1)
    paragraph["context"] += " \ud800 kata"
    paragraph["qas"][0]["question"] = "\udfff?"
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    first, _ = read_questions(path, "1.1")
    assert (first.text, first.context[-6:]) == ("\ufffd?", "\ufffd kata")
