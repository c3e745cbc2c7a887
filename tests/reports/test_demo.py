"""The model that comes with electrify."""

import json

import pytest

from electrify.cli import main
from electrify.reports.heat import detect
from electrify.reports.inspection import DEMO
from electrify.reports.pair import load_pair
from electrify.reports.served import ENGLISH

MEGABYTE = 1e6


@pytest.fixture(scope="module")
def demo():
    return load_pair(str(DEMO))


def test_it_is_small_and_says_what_it_was_trained_on():
    files = [path for path in DEMO.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8 * MEGABYTE
    card = (DEMO / "README.md").read_text()
    for word in ("CC BY-SA", "Wikipedia", "enwik8", "public domain", "steps"):
        assert word in card


def test_words_that_do_not_belong_are_more_suspicious_than_others(demo):
    """How often a wrong word gets a higher probability than another token is the AUC."""
    higher = []
    for sentence, _, wrong in ENGLISH:
        tokens = detect(demo, sentence.format(wrong))
        parts = [token.probability for token in tokens if token.text in wrong]
        others = [token.probability for token in tokens if token.text not in wrong]
        higher += [max(parts) > other for other in others]
    assert sum(higher) / len(higher) > 0.75


def test_it_is_one_option_away(capsys):
    assert main(["inspect", "--demo", "The doctor examined the guitar.", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [token["text"] for token in found["tokens"]][:2] == ["The", "doctor"]
    assert main(["inspect"]) == 2
    assert "use --demo" in capsys.readouterr().err
