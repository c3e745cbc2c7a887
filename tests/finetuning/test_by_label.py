"""Scores of each label equal those of scikit-learn and seqeval; hints follow from the result."""

import numpy as np
import pytest

from electrify.finetuning.own.by_label import (
    MOST_LABELS,
    by_label,
    confusion_table,
    label_table,
    matrix_labels,
)
from electrify.finetuning.own.data import Texts
from electrify.finetuning.own.hints import hints
from electrify.finetuning.own.sentences import Sentences
from electrify.finetuning.own.tagging import entity_scores
from electrify.finetuning.own.target import OwnAnswer, Target
from electrify.finetuning.table import terminal


def classified(labels, gold, predicted):
    texts = Texts("dev", gold, None, gold, [*range(len(gold))])
    answers = [OwnAnswer(label, {}) for label in predicted]
    return {"by_label": by_label(Target("classes", tuple(labels)), texts, answers)}


def tagged(labels, gold, predicted):
    sentences = Sentences("dev", gold, gold, [*range(len(gold))])
    answers = [OwnAnswer(tags, {}) for tags in predicted]
    return {"by_label": by_label(Target("tags", tuple(labels)), sentences, answers)}


@pytest.mark.parametrize("count", [2, 5, 30])
def test_classes_equal_scikit_learn(count):
    metrics = pytest.importorskip("sklearn.metrics")
    rng, labels = np.random.default_rng(count), [f"c{n:02d}" for n in range(count)]
    for rows in (3, 200):  # with three rows, most classes never occur or are never predicted
        gold, guessed = rng.choice(labels, rows).tolist(), rng.choice(labels, rows).tolist()
        result = classified(labels, gold, guessed)
        wanted = metrics.precision_recall_fscore_support(
            gold, guessed, labels=labels, zero_division=0
        )
        found = result["by_label"]["labels"]
        for number, metric in enumerate(("precision", "recall", "f1", "count")):
            assert [found[label][metric] for label in labels] == pytest.approx(wanted[number])
        shown = matrix_labels(result)
        counts = result["by_label"]["confusion"]
        matrix = [[counts.get(true, {}).get(guess, 0) for guess in shown] for true in shown]
        assert matrix == metrics.confusion_matrix(gold, guessed, labels=shown).tolist()


def test_entity_types_equal_seqeval():
    """Any mixture of schemes, as `entity_scores` accepts it; words are confused by type."""
    seqeval = pytest.importorskip("seqeval.metrics")
    rng = np.random.default_rng(0)
    tags = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC", "S-ORG", "E-PER"]
    gold, guessed = (
        [rng.choice(tags, length).tolist() for length in rng.integers(1, 9, 60)] for _ in range(2)
    )
    guessed = [[*some, *["O"] * 9][: len(true)] for some, true in zip(guessed, gold, strict=True)]
    result = tagged(tags, gold, guessed)
    wanted = seqeval.classification_report(gold, guessed, output_dict=True, zero_division=0)
    found = result["by_label"]["labels"]
    assert list(found) == ["LOC", "ORG", "PER"]
    for kind, row in found.items():
        ours = [row[name] for name in ("precision", "recall", "f1", "count")]
        names = ("precision", "recall", "f1-score", "support")
        assert ours == pytest.approx([wanted[kind][name] for name in names])
    both = sum(row["count"] + row["predicted"] for row in found.values())
    correct = sum(row["recall"] * row["count"] for row in found.values())
    assert 2 * correct / both == pytest.approx(entity_scores(gold, guessed)["f1"])
    assert sum(map(sum, map(dict.values, result["by_label"]["confusion"].values()))) == sum(
        map(len, gold)
    )
    assert matrix_labels(result) == ["LOC", "ORG", "PER", "O"]


def test_tags_of_words_are_scored_each():
    result = tagged(["NOUN", "VERB"], [["NOUN", "VERB", "NOUN"]], [["NOUN", "NOUN", "NOUN"]])
    assert result["by_label"]["unit"] == "tag"
    assert result["by_label"]["labels"]["NOUN"]["precision"] == pytest.approx(2 / 3)
    assert result["by_label"]["confusion"] == {"NOUN": {"NOUN": 2}, "VERB": {"NOUN": 1}}


def test_many_classes_stay_readable():
    labels = [f"a rather long name of a class, number {number}" for number in range(60)]
    gold = [label for number, label in enumerate(labels) for _ in range(number + 1)]
    guessed = [labels[7] if label == labels[3] else label for label in gold]
    result = classified(labels, gold, guessed)
    table = label_table(result)
    assert len(table.rows) == MOST_LABELS
    assert "the 10 most frequent of 60, then the 10 others with the lowest F1" in table.title
    assert table.rows[0][1].text == "60"
    assert table.rows[10][-1].text == "0.0"  # class 3, which is never predicted
    confusions = confusion_table(result)
    assert [cell.text for cell in confusions.rows[0]][2] == "4"
    assert max(map(len, terminal(table, 80).splitlines())) <= 80
    few = confusion_table(classified(labels[:8], gold[:30], guessed[:30]))
    assert few.columns == ("true", *map(str, range(1, 9)))  # numbers in place of long names


GOOD = {
    "train": {"rows": 100, "cut": 0, "longest": 30, "labels": {"a": 60, "b": 40}},
    "length": 64, "max_length": 512, "pretrained_length": 64, "best_seed": 0,
    "seeds": [{"seed": 0, "scores": {"accuracy": 0.9}}],
    "baseline": {"metric": "accuracy", "value": 0.6, "answer": "a"},
    **classified("ab", "aabb", "aabb"),
}  # fmt: skip
HINTS = {
    "longer": ({"train": {**GOOD["train"], "longest": 65}}, "at most 64: compare with --length 64"),
    "cut": ({"train": {**GOOD["train"], "cut": 20}}, "20% of the training texts do not fit into 64 tokens: use a larger --length"),
    "words cut": ({"train": {"rows": 9, "words": 50, "cut": 5}}, "10% of the training words"),
    "cut at the maximum": ({"train": {**GOOD["train"], "cut": 20}, "length": 512}, "split long texts"),
    "unbalanced": ({"train": {**GOOD["train"], "labels": {"a": 95, "b": 5}}}, "a: 95 training rows, b: 5"),
    "one class": (classified("ab", "aabb", "aaaa"), "the model predicts only a"),
    "never": (classified("abc", "aabbc", "aabba"), "never predicted: c"),
    "no entity": (tagged(["O", "B-X"], [["B-X", "O"]], [["O", "O"]]), "no entity at all"),
    "majority": ({"baseline": {"metric": "accuracy", "value": 0.9, "answer": "a"}}, "accuracy 0.9 is no better than always predicting a (0.9)"),
    "mean": ({"baseline": {"metric": "mse", "value": 2.0, "answer": "the mean, 3"}, "seeds": [{"seed": 0, "scores": {"mse": 2.5}}], "by_label": {}}, "mse 2.5 is no better than always predicting the mean, 3 (2)"),
}  # fmt: skip


@pytest.mark.parametrize("changes", [pytest.param(c, id=n) for n, c in HINTS.items()])
def test_each_hint_is_given_alone(changes):
    assert hints(GOOD) == []
    (hint,) = hints({**GOOD, **changes[0]})
    assert changes[1] in hint


def test_results_of_earlier_versions_have_no_hints():
    assert hints({"seeds": [{"seed": 0, "scores": {"accuracy": 0.5}}], "best_seed": 0}) == []
    assert label_table({"seeds": []}) is None
