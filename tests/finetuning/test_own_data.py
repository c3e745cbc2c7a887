"""Columns, kinds and labels of your tables."""

from pathlib import Path

import numpy as np
import pytest

from electrify.errors import UserError
from electrify.finetuning.own.data import (
    Columns,
    class_indices,
    extract_texts,
    find_classes,
    find_columns,
    infer_kind,
    mean_and_std,
    parse_scores,
    require_labels,
    sorted_labels,
)
from electrify.finetuning.own.files import DataTable


def table(header, *rows):
    return DataTable(Path("a.tsv"), header.split(), [list(row) for row in rows], [*range(2, len(rows) + 2)])  # fmt: skip


def texts(*labels):
    return extract_texts(table("text label", *(("x", label) for label in labels)), Columns("text", "", "label"))  # fmt: skip


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("genre filename year id score sentence1 sentence2", ("sentence1", "sentence2", "score")),
        ("Sentence Label", ("Sentence", "", "Label")),
        ("index premise hypothesis label1 gold_label", ("premise", "hypothesis", "gold_label")),
        ("question sentence label", ("question", "sentence", "label")),
        ("id text class", ("text", "", "class")),
        ("reviewText stars", ("reviewText", "", "stars")),
        ("text", ("text", "", "")),
    ],
)
def test_columns_are_found(header, expected):
    assert find_columns(table(header), Columns()) == expected


def test_requested_columns_take_precedence():
    found = find_columns(table("text label a b c"), Columns("A", "b", "c"))
    assert found == ("a", "b", "c")
    assert find_columns(table("text other label"), Columns(label="other")) == ("text", "", "other")


@pytest.mark.parametrize(
    ("header", "requested", "what"),
    [
        ("text label", Columns("txet"), "line 1: no column 'txet'"),
        ("text label", Columns(label="lable"), "line 1: no column 'lable'"),  # codespell:ignore
        ("a b c", Columns(), "line 1: cannot tell which column contains the text"),
    ],
)
def test_missing_columns_are_named(header, requested, what):
    with pytest.raises(UserError) as error:
        find_columns(table(header), requested)
    assert what in error.value.what
    assert header.replace(" ", ", ") in error.value.got


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["0", "1", "1"], "classes"),
        (["1.0", "0.0"], "classes"),
        (["good", "bad", "1"], "classes"),
        (["5.000", "3.800"], "score"),
        (["3.8", "nan", "2.5"], "score"),
        (["3.8", "oops", "2.5"], "score"),
        ([str(n) for n in range(30)], "score"),
    ],
)
def test_kinds_are_inferred(labels, kind):
    assert infer_kind(labels)[0] == kind


def test_classes_are_numbered_in_order():
    assert sorted_labels(["10", "2", "-1", "2"]) == ("-1", "2", "10")
    assert sorted_labels(["b", "a", "10", "9"]) == ("10", "9", "a", "b")
    found = texts("no", "yes", "no")
    assert find_classes(found) == ("no", "yes")
    assert class_indices(found, ("no", "yes")).tolist() == [0, 1, 0]


def test_scores_are_numbers():
    found = texts("1", "2.5", "1e1")
    assert parse_scores(found).tolist() == [1, 2.5, 10]
    mean, std = mean_and_std(found)
    assert (mean, std) == pytest.approx((4.5, np.std([1, 2.5, 10])))


@pytest.mark.parametrize(
    "label", ["nan", "NaN", "inf", "-Infinity", "", "x", "1,5", "1e400", "1e31"]
)
def test_invalid_scores_are_refused_with_their_line(label):
    with pytest.raises(UserError, match=r"a.tsv, line 3: (the score must|no label)"):
        parse_scores(texts("1", label))


def test_labels_that_cannot_be_learned_are_refused():
    with pytest.raises(UserError, match="the same label"):
        find_classes(texts("a", "a"))
    with pytest.raises(UserError, match="the same score"):
        mean_and_std(texts("1", "1.0"))
    with pytest.raises(UserError, match="line 3: the label is not in the training file"):
        class_indices(texts("a", "c"), ("a", "b"))
    with pytest.raises(UserError, match="line 3: no label"):
        require_labels(texts("a", None))
    with pytest.raises(UserError, match="no label column"):
        require_labels(extract_texts(table("text", ("x",)), Columns("text")))


@pytest.mark.parametrize("cell", ["", "  ", None, ["a"], {"a": 1}])
def test_invalid_texts_are_refused_with_their_line(cell):
    with pytest.raises(UserError, match=r"a.tsv, line 3: "):
        extract_texts(table("text label", ("x", "1"), (cell, "1")), Columns("text", "", "label"))
