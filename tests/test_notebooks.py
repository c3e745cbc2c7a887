"""Notebooks: their outputs are stored, belong to their code, and can be made again."""

import json
import re
import shutil

import pytest
from notebooks.execute import FOLDER, code_cells, execute, fingerprint, main

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MACHINE_PATH = re.compile(r"/(?:tmp|root|home|Users|work|opt|usr|var)/")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def of_cells(*cells: str) -> dict:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return {"cells": code, "metadata": {}}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_the_code(path):
    notebook = read(path)
    again = "run: python -m notebooks.execute"
    assert notebook["metadata"].get("source_sha256") == fingerprint(notebook), again
    cells = code_cells(notebook)
    assert len(cells) > 3
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) / 2
    assert not MACHINE_PATH.search(json.dumps([cell["outputs"] for cell in cells]))
    assert path.stat().st_size < 200_000


def test_the_notebooks_show_how_to_train_on_your_own_text():
    assert len(NOTEBOOKS) == 4
    assert any("electrify.train(" in path.read_text(encoding="utf-8") for path in NOTEBOOKS)


def test_what_a_cell_prints_returns_and_draws_is_stored(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    notebook = of_cells(
        "import sys\nprint('one')\nprint('two', file=sys.stderr)\nprint('three')\nx = 6",
        "x * 7",
        "print('0 %', end='\\r100 %\\n')\nx * 7;",
        "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])\nplt.show()",
    )
    execute(notebook)
    first, second, silent, third = (cell["outputs"] for cell in notebook["cells"])
    assert [(o["name"], o["text"]) for o in first] == [
        ("stdout", ["one\n"]),
        ("stderr", ["two\n"]),
        ("stdout", ["three\n"]),
    ]
    assert second[0]["data"] == {"text/plain": ["42"]}
    assert second[0]["execution_count"] == 2
    assert [output["text"] for output in silent] == [["100 %\n"]]
    assert third[-1]["data"]["image/png"].startswith("iVBOR")
    before = notebook["metadata"]["source_sha256"]
    notebook["cells"][1]["source"] = ["x * 8"]
    assert fingerprint(notebook) != before


def test_a_failing_cell_fails_and_stores_nothing(tmp_path, capfd):
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(of_cells("1 / 0")))
    before = path.read_bytes()
    assert main([str(path)]) != 0
    assert "ZeroDivisionError" in capfd.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    copy = shutil.copy(path, tmp_path)
    assert main([copy]) == 0
    assert read(tmp_path / path.name)["metadata"] == read(path)["metadata"]
