"""Exact match and F1 of answers, as the evaluation scripts of SQuAD 1.1 and 2.0 define them.

Answers are compared in lower case, without ASCII punctuation, articles and extra spaces; the best
of several gold answers counts. The scripts differ on answers of which nothing is left: in 2.0 two
such agree, and stand for "no answer"; in 1.1 they have F1 0 although they match.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from electrify.finetuning.squad.data import Question, Version

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(a|an|the)\b")


def normalised(text: str) -> str:
    """An answer as it is compared.

    >>> normalised("The  U.S. Army’s"), normalised("an A-B"), normalised("the")
    ('us army’s', 'ab', '')
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(prediction: str, gold: str) -> float:
    """1 if both are the same, else 0."""
    return float(normalised(prediction) == normalised(gold))


def word_f1(prediction: str, gold: str, version: Version) -> float:
    """The harmonic mean of precision and recall of the words, repeated ones included."""
    said, wanted = normalised(prediction).split(), normalised(gold).split()
    if version == "2.0" and not (said and wanted):
        return float(said == wanted)
    same = (Counter(said) & Counter(wanted)).total()
    if not same:
        return 0.0
    precision, recall = same / len(said), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


class Scores(NamedTuple):
    """Of every question."""

    exact: list[float]
    f1: list[float]


def question_scores(
    questions: Sequence[Question], answers: Mapping[str, str], version: Version
) -> Scores:
    """How well each question is answered."""

    def best(question: Question, measure: Callable[[str, str], float]) -> float:
        return max(measure(answers[question.id], gold) for gold in _golds(question, version))

    return Scores(
        [best(question, exact) for question in questions],
        [best(question, lambda said, gold: word_f1(said, gold, version)) for question in questions],
    )


def _golds(question: Question, version: Version) -> list[str]:
    golds = [gold.text for gold in question.answers]
    if version == "1.1":
        return golds
    return [gold for gold in golds if normalised(gold)] or [""]


def with_threshold(
    values: Sequence[float], questions: Sequence[Question], odds: Mapping[str, float], most: float
) -> list[float]:
    """Scores where a question with odds above `most` is taken for one without an answer."""
    return [
        float(question.impossible) if odds[question.id] > most else value
        for value, question in zip(values, questions, strict=True)
    ]


class Best(NamedTuple):
    """The best mean score over all thresholds, in per cent, and the threshold."""

    score: float
    threshold: float


def best_threshold(
    values: Sequence[float],
    questions: Sequence[Question],
    answers: Mapping[str, str],
    odds: Mapping[str, float],
) -> Best:
    """The threshold that would have been best: from "none has an answer" up, one by one.

    Answers are the best ones that are not "no answer"; `values` are their scores.
    """
    running = highest = float(sum(question.impossible for question in questions))
    threshold = 0.0
    pairs = sorted(zip(questions, values, strict=True), key=lambda pair: odds[pair[0].id])
    for question, value in pairs:
        running += -float(bool(answers[question.id])) if question.impossible else value
        if running > highest:
            highest, threshold = running, odds[question.id]
    return Best(100 * highest / len(questions), threshold)


def evaluate_answers(
    questions: Sequence[Question],
    answers: Mapping[str, str],
    version: Version,
    odds: Mapping[str, float] | None = None,
    threshold: float = 0.0,
) -> dict[str, float]:
    """All that the script of a version prints, by its names, in per cent.

    For 2.0, `answers` are the best ones that are not "no answer", which odds above the threshold
    put in their place.
    """
    raw = question_scores(questions, answers, version)
    if odds is None:
        return _means(raw, "")
    cut = Scores(*(with_threshold(values, questions, odds, threshold) for values in raw))
    found = _means(cut, "")
    for name, impossible in (("HasAns_", False), ("NoAns_", True)):
        rows = [i for i, q in enumerate(questions) if q.impossible == impossible]
        if rows:
            found |= _means(Scores(*([values[i] for i in rows] for values in cut)), name)
    for name, values in zip(raw._fields, raw, strict=True):
        best = best_threshold(values, questions, answers, odds)
        found |= {f"best_{name}": best.score, f"best_{name}_thresh": best.threshold}
    return found


def _means(values: Scores, prefix: str) -> dict[str, float]:
    total = len(values.exact)
    means = {
        f"{prefix}{name}": 100 * sum(column) / total
        for name, column in zip(values._fields, values, strict=True)
    }
    return {**means, f"{prefix}total": total}
