"""Figures are drawn from the records they claim to show."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
from docs import figures


@pytest.mark.parametrize("name", figures.DRAWN)
def test_a_figure_is_not_older_than_its_data(name):
    figure = figures.FIGURES / f"{name}.svg"
    assert figures.stamp_of(figure) == figures.fingerprint(name), "run: make figures"
    ElementTree.parse(figure)


def test_a_changed_record_is_noticed(tmp_path, monkeypatch):
    before = figures.fingerprint("speed")
    record = json.loads((figures.RECORDS / "speed.json").read_text())
    record["bars"][0]["ratio"] += 0.01
    (tmp_path / "speed.json").write_text(json.dumps(record))
    monkeypatch.setattr(figures, "RECORDS", tmp_path)
    assert figures.fingerprint("speed") != before
