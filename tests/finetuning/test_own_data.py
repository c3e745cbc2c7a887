"""Columns, kinds and labels of one's own tables."""

from pathlib import Path

import numpy as np
import pytest

from electrify.errors import UserError
from electrify.finetuning.own.data import (
    Columns,
    centre_and_spread,
    class_numbers,
    classes_of,
    find_columns,
    kind_of,
    label_order,
    need_labels,
    scores_of,
    texts_of,
)
from electrify.finetuning.own.files import DataTable


def table(header, *rows):
    return DataTable(Path("a.tsv"), header.split(), [list(row) for row in rows], [*range(2, len(rows) + 2)])  # fmt: skip


def texts(*labels):
    return texts_of(table("text label", *(("x", label) for label in labels)), Columns("text", "", "label"))  # fmt: skip


@pytest.mark.parametrize(
    ("header", "wanted"),
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
def test_columns_are_found(header, wanted):
    assert find_columns(table(header), Columns()) == wanted


def test_named_columns_come_first():
    found = find_columns(table("text label a b c"), Columns("A", "b", "c"))
    assert found == ("a", "b", "c")
    assert find_columns(table("text other label"), Columns(label="other")) == ("text", "", "other")


@pytest.mark.parametrize(
    ("header", "named", "what"),
    [
        ("text label", Columns("txet"), "line 1: no column 'txet'"),
        ("text label", Columns(label="lable"), "line 1: no column 'lable'"),
        ("a b c", Columns(), "line 1: no column whose name says"),
    ],
)
def test_missing_columns_are_named(header, named, what):
    with pytest.raises(UserError) as error:
        find_columns(table(header), named)
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
def test_kinds_are_found(labels, kind):
    assert kind_of(labels)[0] == kind


def test_classes_are_numbered_in_order():
    assert label_order(["10", "2", "-1", "2"]) == ("-1", "2", "10")
    assert label_order(["b", "a", "10", "9"]) == ("10", "9", "a", "b")
    found = texts("no", "yes", "no")
    assert classes_of(found) == ("no", "yes")
    assert class_numbers(found, ("no", "yes")).tolist() == [0, 1, 0]


def test_scores_are_numbers():
    found = texts("1", "2.5", "1e1")
    assert scores_of(found).tolist() == [1, 2.5, 10]
    centre, spread = centre_and_spread(found)
    assert (centre, spread) == pytest.approx((4.5, np.std([1, 2.5, 10])))


@pytest.mark.parametrize(
    "label", ["nan", "NaN", "inf", "-Infinity", "", "x", "1,5", "1e400", "1e31"]
)
def test_a_score_that_is_none_is_refused_with_its_line(label):
    with pytest.raises(UserError, match=r"a.tsv, line 3: "):
        scores_of(texts("1", label))


def test_labels_that_teach_nothing_are_refused():
    with pytest.raises(UserError, match="the same label"):
        classes_of(texts("a", "a"))
    with pytest.raises(UserError, match="the same score"):
        centre_and_spread(texts("1", "1.0"))
    with pytest.raises(UserError, match="line 3: a label that the training file does not have"):
        class_numbers(texts("a", "c"), ("a", "b"))
    with pytest.raises(UserError, match="line 3: no label"):
        need_labels(texts("a", None))
    with pytest.raises(UserError, match="no column with labels"):
        need_labels(texts_of(table("text", ("x",)), Columns("text")))


@pytest.mark.parametrize("cell", ["", "  ", None, ["a"], {"a": 1}])
def test_a_text_that_is_none_is_refused_with_its_line(cell):
    with pytest.raises(UserError, match=r"a.tsv, line 3: "):
        texts_of(table("text label", ("x", "1"), (cell, "1")), Columns("text", "", "label"))
