"""Wrapped lines of books and docstrings are joined; verse, tables, lists and headings are not."""

import pytest

from electrify.corpora.doctext import strip_inline_markup, unwrap
from electrify.corpora.wrapping import unwrap_prose

VERSE = ["The woods are lovely, dark and deep,", "But I have promises to keep,",
         "And miles to go before I sleep,", "And miles to go before I sleep."]  # fmt: skip
PROSE = ["It was the best of times, it was the worst of times, it was the age of",
         "wisdom, it was the age of foolishness, it was the epoch of belief, it was",
         "the epoch of incredulity, it was the well-", "known season of Light."]  # fmt: skip


def test_wrapped_prose_becomes_one_line_and_verse_does_not():
    assert unwrap_prose(PROSE, 75).count("\n") == 0
    assert "the well-known season" in unwrap_prose(PROSE, 75)
    assert unwrap_prose(VERSE, 75) == "\n".join(VERSE)
    assert unwrap_prose(["  " + line for line in VERSE], 75) == "\n".join(VERSE)


@pytest.mark.parametrize(
    "block",
    [
        ["Wheat      12.50      1891", "Barley      8.25      1892", "Oats        6.00      1893"],
        ["- one thing that fills the line quite well indeed, up to the end", "- another"],
        ["CHAPTER I", "The Beginning"],
    ],
)
def test_tables_lists_and_headings_keep_their_lines(block):
    assert unwrap_prose(block, 70) == "\n".join(block)


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (PROSE, 1),
        (["  " + line for line in PROSE], 1),
        (["x : int", "    A number that has a very long description, so long that it is", "    wrapped."], 2),
        (["x (int): A number that has a very long description, so long it is", "    wrapped.", "y: no"], 2),
        ([":param rows: a list of two item tuples for the terms and values.", ":param n: x"], 2),
        (["- one thing that fills the line quite well indeed, up to its very", "  end", "- two"], 2),
    ],
)  # fmt: skip
def test_parameters_and_items_become_one_line_each(block, lines):
    assert len(unwrap(block, 70).split("\n")) == lines


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("a :class:`X` and :py:meth:`~a.b.C.d`", "a X and d"),
        ("see :ref:`the guide <guide>` or `here <http://a.b>`_", "see the guide or here"),
        (r"``lr``\s, \*args, **bold** and *thin*", "lrs, *args, bold and thin"),
        ("as shown [1]_, a [0]_x", "as shown [1], a [0]_x"),
        ("2**n and 3**m, *args, **kwargs", "2**n and 3**m, *args, **kwargs"),
        (
            ":param int x: a number\n:raises KeyError: if not",
            "x: a number\nraises KeyError: if not",
        ),
    ],
)
def test_inline_markup_is_removed(marked, plain):
    assert strip_inline_markup(marked) == plain
