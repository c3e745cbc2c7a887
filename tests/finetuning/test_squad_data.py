"""Reading SQuAD: which files, what is in them, wrong places repaired, bad files refused."""

import pytest
from tests.finetuning.squad_files import paragraphs, question, write_squad

from electrify.errors import UserError
from electrify.finetuning.squad.data import (
    Gold,
    Placed,
    Question,
    find_files,
    placed,
    read_questions,
    some_of,
)


def test_files_are_found_plain_or_packed_and_the_version_by_their_names(tmp_path):
    train = write_squad(tmp_path / "train-v2.0.rebuilt.json.xz", paragraphs(2, unanswerable=True))
    dev = write_squad(tmp_path / "dev-v2.0.json", paragraphs(2, unanswerable=True))
    write_squad(tmp_path / "dev-v1.1.json", paragraphs(2))
    assert find_files(tmp_path, "auto") == ("2.0", train, dev)
    first, second = read_questions(train, "2.0")[:2]
    assert (first.impossible, second.impossible) == (False, True)
    assert first.context[first.answers[0].start :].startswith(first.answers[0].text)
    with pytest.raises(UserError, match="not both a training and a development file"):
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
    ("content", "said"),
    [
        (changed(answers={"text": "x"}), r'data\[0\].paragraphs\[0\].qas\[1\]: "answers" is dict'),
        (changed(answers=[{"text": "x"}]), r'answers\[0\] has no "answer_start"'),
        (changed(answers=[{"text": "x", "answer_start": "3"}]), '"answer_start" is str, not int'),
        (changed(answers=[{"text": "x", "answer_start": True}]), '"answer_start" is bool'),
        (changed(id="0-0"), "a question twice"),
        (changed(question=None), '"question" is NoneType'),
        (changed(answers=[]), "without an answer, which version 1.1 has not"),
        ([{"qas": []}], 'has no "context"'),
        ([], "has no questions"),
        (["text"], 'has no "context"'),
    ],
)
def test_a_wrong_layout_is_named_with_its_place(tmp_path, content, said):
    path = write_squad(tmp_path / "train-v1.1.json", content)
    with pytest.raises(UserError, match=said):
        read_questions(path, "1.1")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"{", "not JSON"),
        ("a.json", b"\xff\xfe", "not JSON"),
        ("a.json", b"[]", 'has no "data"'),
        ("a.json", b'{"data": {}}', '"data" is dict'),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.json.xz", b"no xz at all", "no whole .xz"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_questions(tmp_path / name, "1.1")


def test_a_cut_xz_file_is_refused(tmp_path):
    path = write_squad(tmp_path / "a.json.xz", paragraphs(50))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=r"no whole \.xz"):
        read_questions(path, "1.1")


def test_2_0_wants_answers_where_it_says_there_are(tmp_path):
    path = write_squad(tmp_path / "a.json", changed(answers=[], is_impossible=False))
    with pytest.raises(UserError, match="no answers, but is_impossible is false"):
        read_questions(path, "2.0")


CONTEXT = "The fourth of four cats, and four dogs in 1990s Rome."


@pytest.mark.parametrize(
    ("text", "said", "found", "moved"),
    [
        ("four", 14, 14, False),
        ("four", 4, 14, True),  # inside "fourth": the nearest whole word
        ("four", 31, 29, True),  # off by two
        ("four", -5, 14, True),
        ("dogs", 10_000, 34, True),
        ("1990", 42, 42, False),  # inside a word, but nowhere else
        ("1990", 40, 42, True),
        ("Rome.", 48, 48, False),
    ],
)
def test_wrong_places_of_answers_are_repaired(text, said, found, moved):
    asked = Question("q", "how many?", CONTEXT, (Gold(text, said),))
    assert placed(asked) == Placed(found, found + len(text), moved)


@pytest.mark.parametrize("text", ["horses", "", "  "])
def test_an_answer_that_is_nowhere_has_no_place(text):
    assert placed(Question("q", "what?", CONTEXT, (Gold(text, 3),))) is None


def test_scripts_without_spaces_are_left_alone():
    asked = question("東京は北京の東。北京。", "北京")
    assert placed(asked) == Placed(3, 5, False)


def test_a_share_is_always_the_same_in_the_order_of_the_file():
    asked = [question("loso kata", "loso", str(number)) for number in range(100)]
    some = some_of(asked, 0.1)
    assert len(some) == 10
    assert some == some_of(asked, 0.1)
    assert some == sorted(some, key=lambda q: int(q.id))
    assert set(some) < set(some_of(asked, 0.3))
    assert some_of(asked, 1.0) == asked
    with pytest.raises(UserError, match="no share"):
        some_of(asked, 0.0)
