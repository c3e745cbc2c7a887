"""Scores of each class, tag or entity type on the development file, and what is confused with what.

`result.json` of a fine-tuned model has them for the best seed; folders of earlier versions do not.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from electrify.finetuning.own.data import require_labels
from electrify.finetuning.own.sentences import OUTSIDE, Sentences, require_tags
from electrify.finetuning.own.tagging import entity_spans, entity_type, has_entities
from electrify.finetuning.own.target import Data, OwnAnswer, Target
from electrify.finetuning.table import Cell, Table, percent

MOST_LABELS = 20
"""With more labels than this, tables have the most frequent and the worst ones."""
MOST_CONFUSIONS = 15
MATRIX_LABELS = 12
"""A confusion matrix with more labels than this does not fit on a terminal."""
NAMES_WIDTH = 48
"""Column titles that are longer in total are replaced by numbers."""


def by_label(target: Target, data: Data, predictions: Sequence[OwnAnswer]) -> dict[str, Any]:
    """Return the scores of each label and the confusions; empty for regression.

    For entities, scores count complete entities, and confusions count words.
    """
    predicted = [answer.prediction for answer in predictions]
    if target.kind == "score":
        return {}
    if not isinstance(data, Sentences):
        return _of_labels("class", "rows", target.labels, require_labels(data), predicted)
    gold = require_tags(data)
    words, found = ([*chain.from_iterable(tags)] for tags in (gold, predicted))
    if not has_entities(target.labels):
        return _of_labels("tag", "words", target.labels, words, found)
    spans, guessed = entity_spans(gold), entity_spans(predicted)
    counts = [Counter(kind for kind, *_ in some) for some in (spans, guessed, spans & guessed)]
    types = sorted({entity_type(tag) for tag in target.labels} - {OUTSIDE})
    return {
        "unit": "entity type",
        "counted": "entities",
        "labels": label_scores(types, *counts),
        "confusion": confusion(map(entity_type, words), map(entity_type, found)),
    }


def _of_labels(
    unit: str, counted: str, labels: Sequence[str], gold: Sequence[str], predicted: Sequence[str]
) -> dict[str, Any]:
    correct = Counter(true for true, guess in zip(gold, predicted, strict=True) if true == guess)
    scores = label_scores(labels, Counter(gold), Counter(predicted), correct)
    confused = confusion(gold, predicted)
    return {"unit": unit, "counted": counted, "labels": scores, "confusion": confused}


def label_scores(
    labels: Iterable[str], gold: Counter[str], predicted: Counter[str], correct: Counter[str]
) -> dict[str, dict[str, float]]:
    """Return precision, recall and F1 of each label; 0 if there is nothing to divide by.

    >>> label_scores("a", Counter(a=4), Counter(a=2), Counter(a=1))
    {'a': {'count': 4, 'predicted': 2, 'precision': 0.5, 'recall': 0.25, 'f1': 0.3333333333333333}}
    """
    return {
        label: {
            "count": gold[label],
            "predicted": predicted[label],
            "precision": correct[label] / max(1, predicted[label]),
            "recall": correct[label] / max(1, gold[label]),
            "f1": 2 * correct[label] / max(1, gold[label] + predicted[label]),
        }
        for label in labels
    }


def confusion(gold: Iterable[str], predicted: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return how often each true label is predicted as which label; zeros are left out.

    >>> confusion("aab", "aba")
    {'a': {'a': 1, 'b': 1}, 'b': {'a': 1}}
    """
    counts: dict[str, dict[str, int]] = {}
    for (true, guess), count in sorted(Counter(zip(gold, predicted, strict=True)).items()):
        counts.setdefault(true, {})[guess] = count
    return counts


def label_table(result: dict[str, Any]) -> Table | None:
    """Return the scores of each label as a table; None if the result has none."""
    if not (stored := result.get("by_label")):
        return None
    scores, unit = stored["labels"], stored["unit"]
    shown = [label for label, row in scores.items() if row["count"] or row["predicted"]]
    title = f"By {unit}, on the development file, in percent"
    if len(shown) > MOST_LABELS:
        half, count = MOST_LABELS // 2, len(shown)
        shown.sort(key=lambda label: -scores[label]["count"])
        rest = sorted(shown[half:], key=lambda label: scores[label]["f1"])
        shown = shown[:half] + rest[:half]
        title += f": the {half} most frequent of {count}, then the {half} others with the lowest F1"
    rows = [
        [
            Cell(shortened(label)),
            Cell(f"{scores[label]['count']:,}"),
            Cell(f"{scores[label]['predicted']:,}"),
            *(percent(scores[label][metric]) for metric in ("precision", "recall", "f1")),
        ]
        for label in shown
    ]
    columns = (unit, stored["counted"], "predicted", "precision", "recall", "F1")
    return Table(title, columns, rows, [])


def matrix_labels(result: dict[str, Any]) -> list[str]:
    """Return the labels of the confusion matrix that occur or are predicted."""
    counts = result["by_label"]["confusion"]
    found = {*counts, *chain.from_iterable(counts.values())}
    known = [label for label in result["by_label"]["labels"] if label in found]
    return known + sorted(found.difference(known))


def confusion_table(result: dict[str, Any]) -> Table:
    """Return the confusion matrix for a terminal; if it is large, the most frequent confusions."""
    labels, counts = matrix_labels(result), result["by_label"]["confusion"]
    if len(labels) > MATRIX_LABELS:
        return confusions_table(result)
    columns = [shortened(label) for label in labels]
    rows = list(columns)
    if sum(map(len, columns)) > NAMES_WIDTH:
        columns = [str(number) for number in range(1, len(labels) + 1)]
        rows = [f"{number} {label}" for number, label in zip(columns, rows, strict=True)]
    cells = [
        [Cell(name), *(Cell(f"{counts.get(true, {}).get(guess, 0):,}") for guess in labels)]
        for name, true in zip(rows, labels, strict=True)
    ]
    return Table(matrix_title(result), ("true", *columns), cells, [])


def matrix_title(result: dict[str, Any]) -> str:
    """Return the title of a confusion matrix."""
    words = result["by_label"]["unit"] != "class"
    return f"Confusion matrix{' of words' * words}: true labels in rows, predicted ones in columns"


def confusions_table(result: dict[str, Any]) -> Table:
    """Return the most frequent confusions as a table."""
    stored = result["by_label"]
    pairs = [
        (count, true, guess)
        for true, guesses in stored["confusion"].items()
        for guess, count in guesses.items()
        if true != guess
    ]
    pairs.sort(key=lambda pair: (-pair[0], pair[1:]))
    title = f"Most frequent confusions ({min(len(pairs), MOST_CONFUSIONS)} of {len(pairs):,} pairs)"
    cells = [
        [Cell(shortened(true)), Cell(shortened(guess)), Cell(f"{count:,}")]
        for count, true, guess in pairs[:MOST_CONFUSIONS]
    ]
    counted = "rows" if stored["unit"] == "class" else "words"
    return Table(title, ("true", "predicted", counted), cells, [])


def shortened(label: str) -> str:
    """Return a label for a table; at most 24 characters.

    >>> shortened("a" * 30)
    'aaaaaaaaaaaaaaaaaaaaaaa…'
    """
    return label if len(label) <= 24 else f"{label[:23]}…"
