"""The spread over pre-training seeds, from the function and the command, checked by hand."""

import json

import pytest

from electrify import cli
from electrify.errors import UserError
from electrify.finetuning.glue.results import averaged
from electrify.finetuning.glue.stability import over_models
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result, write_result

ALL = [task.name for task in TASKS.values() if task.averaged]


def results(tasks, *values, preset="seed-004"):
    """Return a run per value, the same for all tasks; MNLI mismatched is 0.2 lower."""
    found = []
    for task in tasks:
        for seed, value in enumerate(values):
            scores = {"dev": dict.fromkeys(TASKS[task].metrics, value)}
            if task == "mnli":
                scores["dev_mismatched"] = {"accuracy": value - 0.2}
            found.append(Result(task, seed, preset, scores, train_rows=TASKS[task].train_rows))
    return found


def written(folder, found, encoder="", dev="same", lr=1e-4):
    for result in found:
        job = folder / "jobs" / f"{result.task}-{result.seed}"
        job.mkdir(parents=True)
        identity = {"model": encoder or folder.name, "data": {"dev": dev}, "plan": {"lr": lr}}
        write_result(job, result, identity)
    return str(folder)


def test_the_average_of_the_best_of_each_task_and_its_spread():
    # by hand: best of a: 0.6 and 0.8, average 0.7; of b 0.8 and 0.8; of c 0.9 and 0.9
    found = over_models(
        {
            "a": results(["cola"], 0.6, 0.1) + results(["rte"], 0.7, 0.8),
            "b": results(["cola", "rte"], 0.2, 0.8),
            "c": results(["cola", "rte"], 0.9, 0.3),
        }
    )
    assert [model.average for model in found.models] == pytest.approx([0.7, 0.8, 0.9])
    assert found.average == pytest.approx((0.8, 0.1, 0.9, 0.7))  # mean, deviation, highest, lowest
    assert found.tasks["cola"] == pytest.approx((2.3 / 3, 0.152753, 0.9, 0.6), abs=1e-6)
    assert found.tasks["rte"].highest == 0.9
    assert found.notes == []


def test_it_equals_the_average_of_best_that_glue_shows():
    eight = results(ALL, 0.5, 0.9)
    found = over_models({"a": eight, "b": eight})
    assert averaged(eight, "average", "best").value == pytest.approx(0.9)
    assert found.models[0].average == pytest.approx(0.9)
    lmtuners = results(ALL, 0.5, 0.9, preset="seed-003")  # which averages both MNLI dev sets
    assert over_models({"a": lmtuners, "b": lmtuners}).models[0].average == pytest.approx(
        (7 * 0.9 + 0.8) / 8
    )


def test_wnli_is_excluded():
    without = results(["cola"], 0.5)
    found = over_models({"a": without, "b": without + results(["wnli"], 0.9)})
    assert found.average.deviation == 0
    with pytest.raises(UserError, match="no averaged task has a score"):
        over_models({"a": results(["wnli"], 0.9), "b": results(["wnli"], 0.8)})


def test_models_with_different_tasks_are_refused_and_the_tasks_listed():
    both = results(["cola", "rte"], 0.5)
    with pytest.raises(UserError, match="same tasks") as caught:
        over_models({"a": both, "b": results(["cola"], 0.5)})
    assert caught.value.got == "b: no score for RTE"
    failed = Result("rte", 0, "seed-004", failed="loss is not a number")
    with pytest.raises(UserError, match="same tasks"):
        over_models({"a": both, "b": [failed, *results(["cola"], 0.5)]})


def test_different_numbers_of_runs_are_noted():
    found = over_models({"a": results(["cola"], 0.5, 0.6), "b": results(["cola"], 0.5)})
    (note,) = found.notes
    assert note.startswith("CoLA: different numbers of runs (a 2, b 1)")


def test_the_command(tmp_path, capsys):
    names = [
        written(tmp_path / f"glue-{n}", results(ALL, 0.1, best))
        for n, best in enumerate((0.8, 0.82))
    ]
    assert cli.main(["glue", "stability", *names, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["average"] == pytest.approx(
        {"mean": 0.81, "deviation": 0.0141421, "highest": 0.82, "lowest": 0.8}, abs=1e-6
    )
    assert [model["name"] for model in found["models"]] == names
    assert found["notes"] == []
    assert cli.main(["glue", "stability", *names]) == 0
    out = " ".join(capsys.readouterr().out.split())
    line = "average of best: mean 81.00, standard deviation 1.41, highest 82.00, lowest 80.00"
    assert f"{line}, 2 models" in out
    assert "mean 81.38, standard deviation 0.57" in out  # the published spread


def test_different_settings_and_equal_encoders_are_noted(tmp_path, capsys):
    one = written(tmp_path / "a", results(["cola"], 0.5), encoder="x")
    two = written(tmp_path / "b", results(["cola"], 0.6), encoder="x", lr=3e-4)
    assert cli.main(["glue", "stability", one, two]) == 0
    out = capsys.readouterr().out
    assert "contain results of the same encoder" in out
    assert "plan.lr: 0.0001 vs 0.0003" in out
    assert "81.38" not in out  # one task is not comparable with eight


@pytest.mark.parametrize(
    ("folders", "word"),
    [
        ([], "two or more different folders"),
        (["a"], "two or more different folders"),
        (["a", "a"], "two or more different folders"),
        (["a", "a/../a", "b"], "two or more different folders"),
        (["a", "nothing"], "nothing contains no results"),
        (["a", "rte"], "same tasks"),
        (["a", "other"], "the development files are different"),
    ],
)
def test_invalid_input_is_refused(tmp_path, capsys, monkeypatch, folders, word):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "a", results(["cola"], 0.5))
    written(tmp_path / "b", results(["cola"], 0.5))
    written(tmp_path / "rte", results(["rte"], 0.5))
    written(tmp_path / "other", results(["cola"], 0.5), dev="another")
    assert cli.main(["glue", "stability", *folders]) == 2
    error = capsys.readouterr().err
    assert word in error
    assert "fix:" in error
