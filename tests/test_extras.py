"""Optional packages: each extra is described, and a command that misses one names it at its start."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from electrify.cli import main

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_readme_says_what_each_extra_brings():
    table = re.findall(r"^\| `(\w+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    named = {name for name, _ in table} | {"docs", "dev"}  # which share a row
    assert named == set(EXTRAS)


@pytest.mark.parametrize("missing", ["pyarrow", "matplotlib"])
@pytest.mark.parametrize("command", ["quickstart", "train texts --budget 1s"])
def test_a_pipeline_names_all_its_extras_before_its_first_stage(
    command, missing, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "--out", "out"]) == 2
    shown = capsys.readouterr().err
    assert f"needs {missing}, which is not installed" in shown
    assert 'fix: pip install "electrify[data,report]"' in shown
    assert not list(tmp_path.iterdir())


def test_a_corpus_without_pyarrow_is_refused_before_its_sources_are_read(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.chdir(tmp_path)
    assert main(["corpus", "docstrings", "--out", "docs"]) == 2
    assert 'fix: pip install "electrify[data]"' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
