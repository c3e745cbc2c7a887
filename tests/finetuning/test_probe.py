"""`electrify probe`: scores of the checkpoints of a run."""

import csv
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.training.conftest import RECIPE

from electrify.errors import UserError
from electrify.finetuning.glue.probe import probe
from electrify.finetuning.options import Probe
from electrify.reports.options import Report
from electrify.reports.report import report


@pytest.fixture(scope="module")
def run(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    recipe = folder / "small.toml"
    recipe.write_text(RECIPE.replace("steps = 60", "steps = 6\nkeep_percent = [50.0]"))
    command = [sys.executable, "-m", "electrify", "pretrain", recipe, "--data", shards]
    command += ["--out", folder / "run", "--run.keep-last", 1]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return folder / "run"


@pytest.mark.slow
def test_every_kept_checkpoint_gets_scores(run, glue_folder, tmp_path, capsys):
    chosen = Probe(
        run=run,
        data=glue_folder,
        out=tmp_path / "probe",
        tasks="cola,stsb",
        seeds=2,
        epochs=1.0,
        train_limit=32,
        length=32,
    )
    probe(chosen)
    assert "CoLA mcc" in capsys.readouterr().out
    with (tmp_path / "probe/curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {"3", "6"}
    assert len(rows) == 2 * 2 * (1 + 2)  # steps × seeds × metrics
    before = (tmp_path / "probe/curve.csv").read_bytes()
    probe(chosen)  # a rerun trains nothing and prints the same
    assert "fine-tuning" not in capsys.readouterr().err
    assert (tmp_path / "probe/curve.csv").read_bytes() == before


def test_a_folder_without_a_run_is_refused(glue_folder, tmp_path):
    with pytest.raises(UserError):
        probe(Probe(run=tmp_path / "nothing", data=glue_folder, out=tmp_path / "out"))


def test_an_unknown_task_is_refused(run, glue_folder, tmp_path):
    chosen = Probe(run=run, data=glue_folder, out=tmp_path / "out")
    with pytest.raises(UserError, match="task nothing"):
        probe(replace(chosen, tasks="nothing"))


def test_minimal_pairs_along_a_run(run, tmp_path, capsys):
    """Without GLUE, and with a curve in the report."""
    data = tmp_path / "pairs"
    data.mkdir()
    pair = '{"sentence_good": "kata lodi", "sentence_bad": "lodi kata nuso", '
    pair += '"linguistics_term": "order", "field": "syntax", "UID": "swap"}\n'
    (data / "swap.jsonl").write_text(2 * pair)
    found = probe(Probe(run=run, data=data, out=tmp_path / "probe", tasks="blimp"))
    assert "BLiMP accuracy" in capsys.readouterr().out
    assert {step: [one["task"] for one in runs] for step, runs in found.items()} == {
        step: ["blimp"] for step in (3, 6)
    }
    with (tmp_path / "probe/curve.csv").open() as file:
        rows = [(row["step"], row["task"], row["split"]) for row in csv.DictReader(file)]
    assert rows == [(s, "blimp", split) for s in ("3", "6") for split in ("all", "order")]
    folders = (tmp_path / "probe", tmp_path / "probe/step-00000003/blimp")
    page = report(Report(folders=folders, out=tmp_path / "report.html"))
    assert "Accuracy on minimal pairs over steps" in page.read_text()
    with pytest.raises(UserError, match="no minimal pairs"):
        probe(Probe(run=run, data=tmp_path, out=tmp_path / "out", tasks="cola,blimp"))
