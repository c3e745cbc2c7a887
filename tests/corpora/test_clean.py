import sys
import time
from collections import Counter

import pytest

from electrify.corpora import clean
from electrify.corpora.clean import (
    Filters,
    reason_to_drop,
    repair_unicode,
    tidy,
)
from electrify.corpora.troubles import NOTE, REPAIRED
from electrify.errors import UserError


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


def test_tidy_is_fast_for_unusual_texts():
    start = time.perf_counter()
    for text in (" " * 3_000_000 + "x", "\n" * 3_000_000 + "x", (" " * 10_000 + "x") * 300):
        assert tidy(text).endswith("x")
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


def test_invalid_filters_are_refused():
    for invalid, option in (
        ({"min_letters": 2.0}, "--min-letters must be between 0 and 1"),
        ({"min_chars": 9, "max_chars": 8}, "--min-chars"),
        ({"limit": 0}, "--limit must be at least 1"),
        ({"max_chars": 10_000_001}, "--max-chars is too large"),
    ):
        with pytest.raises(UserError, match=option):
            Filters(**invalid)


def test_repair_fixes_mojibake_and_leaves_the_rest():
    import ftfy  # noqa: F401

    assert repair_unicode("cafÃ© “fine”\nplain") == "café “fine”\nplain"


def test_repair_without_ftfy_names_the_extra(monkeypatch):
    clean._ftfy_line.cache_clear()
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(UserError, match="electrify\\[data\\]"):
        repair_unicode("é")
    clean._ftfy_line.cache_clear()


def test_invalid_bytes_and_surrogates_are_repaired_and_counted():
    tally = Counter()
    assert clean.decode_utf8(b"a\xffb", tally) == "a\ufffdb"
    assert clean.replace_surrogates("a\ud800b", tally) == "a\ufffdb"
    assert clean.replace_surrogates("fine", tally) == "fine"
    assert tally == {REPAIRED: 2}
    assert REPAIRED.startswith(NOTE)
