"""Exact match and F1 on hard cases, and the best threshold against an exhaustive search."""

from random import Random

import pytest
from tests.finetuning.squad_files import question

from electrify.finetuning.squad.data import Gold, Question
from electrify.finetuning.squad.metrics import (
    apply_threshold,
    best_threshold,
    evaluate_answers,
    exact_match,
    normalize_answer,
    question_scores,
    word_f1,
)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Beatles", "beatles"),
        ("a an the A An THE", ""),
        ("theatre", "theatre"),  # not an article inside a word
        ("U.S.A.", "usa"),
        ("A.B.", "ab"),  # punctuation is removed first, so no article remains
        ("rock-and-roll", "rockandroll"),
        ("the-end", "theend"),
        ("don't", "dont"),
        ("don’t", "don’t"),  # non-ASCII punctuation stays
        ("the ’70s", "’70s"),
        ("“the” end", "“ ” end"),  # and still separates words
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
def test_answers_are_compared_without_case_punctuation_articles_and_spaces(text, normalized):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("predicted", "gold", "value"),
    [
        ("the cat sat", "cat sat down", 2 * (1 * 2 / 3) / (1 + 2 / 3)),
        ("cat cat cat", "cat dog", 2 * (1 / 3 * 1 / 2) / (1 / 3 + 1 / 2)),  # counted once
        ("cat cat", "cat cat", 1.0),
        ("dog", "cat", 0.0),
        ("well-known", "well known", 0.0),
        ("cat", "", 0.0),
    ],
)
def test_f1_counts_words_as_often_as_both_answers_contain_them(predicted, gold, value):
    for version in ("1.1", "2.0"):
        assert word_f1(predicted, gold, version) == pytest.approx(value, abs=1e-12)
    assert exact_match(predicted, gold) == float(value == 1)


def test_the_versions_differ_for_answers_that_normalize_to_nothing():
    assert exact_match("The", "a") == 1
    assert word_f1("The", "a", "1.1") == 0
    assert word_f1("The", "a", "2.0") == 1
    assert word_f1("", "the", "2.0") == 1


def test_the_best_gold_answer_counts_for_each_metric_separately():
    context = "the big red cat and cat"
    asked = Question("q", "?", context, (Gold("big red cat", 4), Gold("the cat", 0)))
    for version in ("1.1", "2.0"):
        found = question_scores([asked], {"q": "a red cat"}, version)
        assert found.exact == [0.0]
        assert found.f1 == [pytest.approx(0.8)]
        assert question_scores([asked], {"q": "Cat!"}, version) == ([1.0], [1.0])


def test_a_gold_answer_that_normalizes_to_nothing_means_no_answer_only_in_2_0():
    asked = Question("q", "?", "$ the cat", (Gold("$", 0),))
    assert question_scores([asked], {"q": ""}, "2.0") == ([1.0], [1.0])
    assert question_scores([asked], {"q": ""}, "1.1") == ([1.0], [0.0])
    both = asked._replace(answers=(Gold("$", 0), Gold("cat", 6)))
    assert question_scores([both], {"q": "the"}, "2.0") == ([0.0], [0.0])
    assert question_scores([both], {"q": "the"}, "1.1") == ([1.0], [0.0])


def test_no_answer_is_correct_for_questions_without_one():
    asked = question("kata loso", None)
    assert question_scores([asked], {"q": ""}, "2.0") == ([1.0], [1.0])
    assert question_scores([asked], {"q": "loso"}, "2.0") == ([0.0], [0.0])


def random_answers(seed: int, count: int = 30):
    """Return questions, correct, partly correct and wrong answers, and odds."""
    rng = Random(seed)
    asked = [
        question("kata loso mita", rng.choice(["kata loso", None]), str(n)) for n in range(count)
    ]
    answers = {q.id: rng.choice(["kata loso", "kata", "mita", ""]) for q in asked}
    odds = {q.id: rng.gauss(-1.0 if q.impossible else 1.0, 2.0) for q in asked}
    return asked, answers, odds


@pytest.mark.parametrize("seed", range(20))
def test_the_best_threshold_matches_an_exhaustive_search(seed):
    asked, answers, odds = random_answers(seed)
    for values in question_scores(asked, answers, "2.0"):
        found = best_threshold(values, asked, answers, odds)

        def mean(threshold, values=values):
            return 100 * sum(apply_threshold(values, asked, odds, threshold)) / len(asked)

        tried = max(mean(threshold) for threshold in [min(odds.values()) - 1, *odds.values()])
        assert found.score == pytest.approx(tried, abs=1e-9)
        none_answered = 100 * sum(q.impossible for q in asked) / len(asked)
        if found.score > none_answered:  # otherwise no question is answered, and the threshold is 0
            assert mean(found.threshold) == pytest.approx(tried, abs=1e-9)


def test_scores_with_odds_match_the_written_answers():
    asked, answers, odds = random_answers(3)
    written = {name: "" if odds[name] > 0.5 else answers[name] for name in answers}
    found = evaluate_answers(asked, answers, "2.0", odds, 0.5)
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
