import sys
import time
from collections import Counter

import pytest

from electrify.corpora import clean
from electrify.corpora.clean import (
    Filters,
    joined_prose,
    reason_to_drop,
    repaired,
    tidy,
    unwrapped,
    without_marks,
)
from electrify.corpora.troubles import NOTE, REPAIRED
from electrify.errors import UserError

VERSE = ["The woods are lovely, dark and deep,", "But I have promises to keep,",
         "And miles to go before I sleep,", "And miles to go before I sleep."]  # fmt: skip
PROSE = ["It was the best of times, it was the worst of times, it was the age of",
         "wisdom, it was the age of foolishness, it was the epoch of belief, it was",
         "the epoch of incredulity, it was the well-", "known season of Light."]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tidied"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("\ufeffa\0b", "ab"),
        ("a  \t\nb \n \n\t\n\n c", "a\nb\n\n c"),
        ("\n\n a\u3000\n\n", "a"),
        ("", ""),
    ],
)
def test_tidy(text, tidied):
    assert tidy(text) == tidied
    assert tidy(tidied) == tidied


def test_tidy_takes_no_longer_for_strange_texts():
    start = time.perf_counter()
    for strange in (" " * 3_000_000 + "x", "\n" * 3_000_000 + "x", (" " * 10_000 + "x") * 300):
        assert tidy(strange).endswith("x")
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("text", "filters", "reason"),
    [
        ("", Filters(), "empty"),
        (" \n\u3000", Filters(min_chars=100), "empty"),
        ("short", Filters(min_chars=6), "too short"),
        ("long text", Filters(max_chars=8), "too long"),
        ("1234 5678 a", Filters(min_letters=0.5), "too few letters"),
        ("a\nb\na\na", Filters(max_repeated_lines=0.4), "repeated lines"),
        ("a\nb\na\na", Filters(max_repeated_lines=0.5), None),
        ("हिन्दी में लिखा", Filters(min_letters=1.0), None),
        ("Tiếng Việt", Filters(min_letters=1.0), None),
        ("ok", Filters(), None),
    ],
)
def test_reason_to_drop(text, filters, reason):
    assert reason_to_drop(text, filters) == reason


def test_impossible_filters_are_refused():
    for wrong, option in (
        ({"min_letters": 2.0}, "--min-letters"),
        ({"min_chars": 9, "max_chars": 8}, "--min-chars"),
        ({"limit": 0}, "--limit"),
        ({"max_chars": 10_000_001}, "--max-chars is too large"),
    ):
        with pytest.raises(UserError, match=option):
            Filters(**wrong)


def test_repair_undoes_mojibake_and_leaves_the_rest():
    import ftfy  # noqa: F401

    assert repaired("cafÃ© “fine”\nplain") == "café “fine”\nplain"


def test_repair_without_ftfy_names_the_extra(monkeypatch):
    clean._ftfy_line.cache_clear()
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(UserError, match="electrify\\[data\\]"):
        repaired("é")
    clean._ftfy_line.cache_clear()


def test_bytes_and_surrogates_that_are_no_text_are_repaired_and_counted():
    tally = Counter()
    assert clean.decode_utf8(b"a\xffb", tally) == "a\ufffdb"
    assert clean.storable("a\ud800b", tally) == "a\ufffdb"
    assert clean.storable("fine", tally) == "fine"
    assert tally == {REPAIRED: 2}
    assert REPAIRED.startswith(NOTE)


def test_wrapped_prose_becomes_one_line_and_verse_does_not():
    assert joined_prose(PROSE, 75).count("\n") == 0
    assert "the well-known season" in joined_prose(PROSE, 75)
    assert joined_prose(VERSE, 75) == "\n".join(VERSE)
    assert joined_prose(["  " + line for line in VERSE], 75) == "\n".join(VERSE)


@pytest.mark.parametrize(
    "block",
    [
        ["Wheat      12.50      1891", "Barley      8.25      1892", "Oats        6.00      1893"],
        ["- one thing that fills the line quite well indeed, up to the end", "- another"],
        ["CHAPTER I", "The Beginning"],
    ],
)
def test_tables_lists_and_headings_keep_their_lines(block):
    assert joined_prose(block, 70) == "\n".join(block)


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
    assert len(unwrapped(block, 70).split("\n")) == lines


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
def test_marks_inside_lines_are_taken_off(marked, plain):
    assert without_marks(marked) == plain
