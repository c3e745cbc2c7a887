"""Exact match and F1 of answers, as defined by the evaluation scripts of SQuAD 1.1 and 2.0.

Answers are compared in lower case, without ASCII punctuation, articles and extra spaces; the best
score over all gold answers counts. The scripts differ on answers that normalize to nothing: in 2.0
two of them match and mean "no answer"; in 1.1 they have F1 0 although they match exactly.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from electrify.finetuning.squad.data import Question, Version

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def normalize_answer(text: str) -> str:
    """Return an answer in the form in which answers are compared.

    >>> normalize_answer("The  U.S. Army’s"), normalize_answer("an A-B"), normalize_answer("the")
    ('us army’s', 'ab', '')
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 if both answers are the same after normalization, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def word_f1(prediction: str, gold: str, version: Version) -> float:
    """Return the F1 of the words, counting repetitions."""
    predicted, expected = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if version == "2.0" and not (predicted and expected):
        return float(predicted == expected)
    common = (Counter(predicted) & Counter(expected)).total()
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)


class QuestionScores(NamedTuple):
    """The scores of every question."""

    exact: list[float]
    f1: list[float]


def question_scores(
    questions: Sequence[Question], answers: Mapping[str, str], version: Version
) -> QuestionScores:
    """Return the scores of each question."""

    def best(question: Question, measure: Callable[[str, str], float]) -> float:
        return max(measure(answers[question.id], gold) for gold in _golds(question, version))

    return QuestionScores(
        [best(question, exact_match) for question in questions],
        [best(question, partial(word_f1, version=version)) for question in questions],
    )


def _golds(question: Question, version: Version) -> list[str]:
    golds = [gold.text for gold in question.answers]
    if version == "1.1":
        return golds
    return [gold for gold in golds if normalize_answer(gold)] or [""]


def apply_threshold(
    values: Sequence[float],
    questions: Sequence[Question],
    odds: Mapping[str, float],
    threshold: float,
) -> list[float]:
    """Return the scores if questions with odds above `threshold` are left unanswered."""
    return [
        float(question.impossible) if odds[question.id] > threshold else value
        for value, question in zip(values, questions, strict=True)
    ]


class BestThreshold(NamedTuple):
    """The best mean score over all thresholds, in percent, and its threshold."""

    score: float
    threshold: float


def best_threshold(
    values: Sequence[float],
    questions: Sequence[Question],
    answers: Mapping[str, str],
    odds: Mapping[str, float],
) -> BestThreshold:
    """Return the best threshold in hindsight, starting from one that answers no question.

    `answers` are the best ones other than "no answer"; `values` are their scores.
    """
    running = highest = float(sum(question.impossible for question in questions))
    threshold = 0.0
    pairs = sorted(zip(questions, values, strict=True), key=lambda pair: odds[pair[0].id])
    for question, value in pairs:
        running += -float(bool(answers[question.id])) if question.impossible else value
        if running > highest:
            highest, threshold = running, odds[question.id]
    return BestThreshold(100 * highest / len(questions), threshold)


def evaluate_answers(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    version: Version,
    odds: Mapping[str, float] | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """Return what the script of a version prints, under its names, in percent.

    For 2.0, `answers` are the best ones other than "no answer"; those with odds above the threshold
    are replaced by "no answer".
    """
    raw = question_scores(questions, answers, version)
    if odds is None:
        return _means(raw, "")
    final = QuestionScores(*(apply_threshold(values, questions, odds, threshold) for values in raw))
    metrics = _means(final, "")
    for name, impossible in (("HasAns_", False), ("NoAns_", True)):
        rows = [i for i, q in enumerate(questions) if q.impossible == impossible]
        if rows:
            part = QuestionScores(*([values[i] for i in rows] for values in final))
            metrics |= _means(part, name)
    for name, values in zip(raw._fields, raw, strict=True):
        best = best_threshold(values, questions, answers, odds)
        metrics |= {f"best_{name}": best.score, f"best_{name}_thresh": best.threshold}
    return metrics


def _means(scores: QuestionScores, prefix: str) -> dict[str, float]:
    total = len(scores.exact)
    means = {
        f"{prefix}{name}": 100 * sum(column) / total
        for name, column in zip(scores._fields, scores, strict=True)
    }
    return {**means, f"{prefix}total": total}
