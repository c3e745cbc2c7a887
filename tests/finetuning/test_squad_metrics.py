"""Exact match and F1 on hard cases, and thresholds against trying every one."""

from random import Random

import pytest
from tests.finetuning.squad_files import question

from electrify.finetuning.squad.data import Gold, Question
from electrify.finetuning.squad.metrics import (
    best_threshold,
    evaluate_answers,
    exact,
    normalised,
    question_scores,
    with_threshold,
    word_f1,
)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("The Beatles", "beatles"),
        ("a an the A An THE", ""),
        ("theatre", "theatre"),  # no article in a word
        ("U.S.A.", "usa"),
        ("A.B.", "ab"),  # punctuation goes first: no article is left
        ("rock-and-roll", "rockandroll"),
        ("the-end", "theend"),
        ("don't", "dont"),
        ("don’t", "don’t"),  # punctuation that is not ASCII stays
        ("the ’70s", "’70s"),
        ("“the” end", "“ ” end"),  # and still ends a word
        ("5–10%", "5–10"),
        ("  two\u00a0\t\nspaces ", "two spaces"),
        ("ÉCOLE Ω", "école ω"),
        ("İ", "i̇"),
        ("é a", "é"),
        ("eé", "eé"),
        ("$", ""),
        ("", ""),
    ],
)
def test_answers_are_compared_without_case_punctuation_articles_and_spaces(text, same):
    assert normalised(text) == same


@pytest.mark.parametrize(
    ("said", "gold", "value"),
    [
        ("the cat sat", "cat sat down", 2 * (1 * 2 / 3) / (1 + 2 / 3)),
        ("cat cat cat", "cat dog", 2 * (1 / 3 * 1 / 2) / (1 / 3 + 1 / 2)),  # counted once
        ("cat cat", "cat cat", 1.0),
        ("dog", "cat", 0.0),
        ("well-known", "well known", 0.0),
        ("cat", "", 0.0),
    ],
)
def test_f1_counts_words_as_often_as_both_have_them(said, gold, value):
    for version in ("1.1", "2.0"):
        assert word_f1(said, gold, version) == pytest.approx(value, abs=1e-12)
    assert exact(said, gold) == float(value == 1)


def test_the_versions_differ_where_nothing_is_left():
    assert exact("The", "a") == 1
    assert word_f1("The", "a", "1.1") == 0
    assert word_f1("The", "a", "2.0") == 1
    assert word_f1("", "the", "2.0") == 1


def test_the_best_of_several_gold_answers_counts_for_each_measure_by_itself():
    context = "the big red cat and cat"
    asked = Question("q", "?", context, (Gold("big red cat", 4), Gold("the cat", 0)))
    for version in ("1.1", "2.0"):
        found = question_scores([asked], {"q": "a red cat"}, version)
        assert found.exact == [0.0]
        assert found.f1 == [pytest.approx(0.8)]
        assert question_scores([asked], {"q": "Cat!"}, version) == ([1.0], [1.0])


def test_a_gold_answer_of_which_nothing_is_left_is_no_answer_in_2_0_only():
    asked = Question("q", "?", "$ the cat", (Gold("$", 0),))
    assert question_scores([asked], {"q": ""}, "2.0") == ([1.0], [1.0])
    assert question_scores([asked], {"q": ""}, "1.1") == ([1.0], [0.0])
    both = asked._replace(answers=(Gold("$", 0), Gold("cat", 6)))
    assert question_scores([both], {"q": "the"}, "2.0") == ([0.0], [0.0])
    assert question_scores([both], {"q": "the"}, "1.1") == ([1.0], [0.0])


def test_no_answer_is_right_where_there_is_none():
    asked = question("kata loso", None)
    assert question_scores([asked], {"q": ""}, "2.0") == ([1.0], [1.0])
    assert question_scores([asked], {"q": "loso"}, "2.0") == ([0.0], [0.0])


def some_answers(seed: int, count: int = 30):
    """Questions with and without answers, right, half right and wrong ones, and odds."""
    rng = Random(seed)
    asked = [
        question("kata loso mita", rng.choice(["kata loso", None]), str(n)) for n in range(count)
    ]
    said = {q.id: rng.choice(["kata loso", "kata", "mita", ""]) for q in asked}
    odds = {q.id: rng.gauss(-1.0 if q.impossible else 1.0, 2.0) for q in asked}
    return asked, said, odds


@pytest.mark.parametrize("seed", range(20))
def test_the_best_threshold_is_that_of_trying_all(seed):
    asked, said, odds = some_answers(seed)
    for values in question_scores(asked, said, "2.0"):
        found = best_threshold(values, asked, said, odds)

        def mean(threshold, values=values):
            return 100 * sum(with_threshold(values, asked, odds, threshold)) / len(asked)

        tried = max(mean(threshold) for threshold in [min(odds.values()) - 1, *odds.values()])
        assert found.score == pytest.approx(tried, abs=1e-9)
        none_answered = 100 * sum(q.impossible for q in asked) / len(asked)
        if found.score > none_answered:  # else none is answered, and the threshold says 0
            assert mean(found.threshold) == pytest.approx(tried, abs=1e-9)


def test_scores_with_odds_are_those_of_the_answers_that_are_written():
    asked, said, odds = some_answers(3)
    written = {name: "" if odds[name] > 0.5 else said[name] for name in said}
    found = evaluate_answers(asked, said, "2.0", odds, 0.5)
    plain = question_scores(asked, written, "2.0")
    assert found["exact"] == pytest.approx(100 * sum(plain.exact) / 30)
    assert found["f1"] == pytest.approx(100 * sum(plain.f1) / 30)
    assert found["HasAns_total"] + found["NoAns_total"] == found["total"] == 30
    weighted = sum(found[f"{k}_f1"] * found[f"{k}_total"] for k in ("HasAns", "NoAns")) / 30
    assert weighted == pytest.approx(found["f1"])
    assert found["best_f1"] >= found["f1"]
    assert evaluate_answers(asked[:1], {asked[0].id: "kata loso"}, "1.1").keys() == {
        "exact",
        "f1",
        "total",
    }
