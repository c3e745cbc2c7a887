"""Runs and results that were started with an older version can be resumed.

`fixtures/0.1.0-folders.tar.gz` was written by commit 47fc1d9: two runs stopped at step 8 of 16, the
GLUE results of the first of two seeds, the commands, and the results of uninterrupted runs.
"""

import json
import tarfile
from pathlib import Path

import pytest

from electrify import cli
from electrify.finetuning.glue.results import read_results
from electrify.objectives.objective import objective_class
from electrify.training.journal import read_metrics, renamed

FOLDERS = Path(__file__).parent / "fixtures" / "0.1.0-folders.tar.gz"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(FOLDERS) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def recorded(folders):
    return json.loads((folders / "expected.json").read_text())


@pytest.mark.parametrize("objective", ["rtd", "mlm"])
def test_a_resumed_run_equals_an_uninterrupted_one(objective, folders, recorded, monkeypatch):
    monkeypatch.chdir(folders)
    assert cli.main(recorded["commands"][objective]) == 0
    expected, found = recorded["expected"][objective], read_metrics(folders / f"{objective}-run")
    assert [(r["step"], r["split"]) for r in found] == [(r["step"], r["split"]) for r in expected]
    for now, before in zip(found, expected, strict=True):
        before = renamed(before, objective_class(objective).former_names)
        assert now.keys() >= before.keys()
        for name in {"generator_loss", "discriminator_loss", "mlm_loss", "learning_rate"} & {*now}:
            assert now[name] == pytest.approx(before[name], rel=1e-4), (name, before, now)


def test_a_run_is_resumed_and_extended_from_its_folder_alone(tmp_path, monkeypatch):
    with tarfile.open(FOLDERS) as archive:
        archive.extractall(tmp_path / "moved", filter="data")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["pretrain", "--resume", "moved/mlm-run", "--steps", "18"]) == 0
    assert read_metrics(Path("moved/mlm-run"))[-1]["step"] == 18


def test_a_glue_folder_keeps_its_results_and_adds_seeds(folders, recorded, monkeypatch):
    monkeypatch.chdir(folders)
    first = folders / "glue/jobs/sst2-0/result.json"
    written = first.stat().st_mtime_ns
    assert cli.main(recorded["commands"]["glue"]) == 0
    assert first.stat().st_mtime_ns == written
    scores = {f"{r.task}-{r.seed}": r.scores["dev"]["accuracy"] for r in read_results(Path("glue"))}
    expected = recorded["expected"]["glue"]
    assert scores == {
        name: pytest.approx(tasks["dev"]["accuracy"], abs=1 / 8) for name, tasks in expected.items()
    }
