"""Results survive a round trip, and damaged ones are detected."""

import json
import math

import pytest

from electrify.errors import DamagedError
from electrify.finetuning.glue.command import drop_models
from electrify.finetuning.glue.results import best_jobs, main_score, read_results
from electrify.finetuning.results import Result, read_result, write_result

RESULT = Result("stsb", 3, "paper", {"dev": {"spearman": 0.8, "pearson": math.nan}}, steps=7)


def written(folder, result):
    job = folder / "jobs" / f"{result.task}-{result.seed}"
    job.mkdir(parents=True)
    write_result(job, result, {"lr": 1e-4})
    return job / "result.json"


def test_a_result_is_read_back_from_plain_json(tmp_path):
    path = written(tmp_path, RESULT)

    def no_constant(name):
        raise AssertionError(name)

    json.loads(path.read_text(), parse_constant=no_constant)  # NaN is not JSON
    again = read_result(path)
    assert again._replace(scores={}) == RESULT._replace(scores={})
    assert again.scores["dev"]["spearman"] == 0.8
    assert math.isnan(again.scores["dev"]["pearson"])


def test_results_are_sorted_and_exclude_unfinished_jobs(tmp_path):
    for task, seed in (("rte", 0), ("cola", 10), ("cola", 9)):
        written(tmp_path, Result(task, seed, "paper", failed="why"))
    (tmp_path / "jobs" / "mrpc-0").mkdir()
    assert [(r.task, r.seed) for r in read_results(tmp_path)] == [
        ("cola", 9),
        ("cola", 10),
        ("rte", 0),
    ]
    assert read_results(tmp_path / "nothing") == []


@pytest.mark.parametrize(
    "change",
    [
        {"task": "nonsense"},
        {"seed": 4},
        {"seed": "3"},
        {"steps": True},
        {"scores": {}},
        {"scores": {"dev": 0.8}},
        {"scores": {"dev": {"spearman": "0.8"}}},
        {"preset": None},
        {"more": 1},
        {"identity": []},
    ],
)
def test_a_damaged_result_is_detected(tmp_path, change):
    path = written(tmp_path, RESULT)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DamagedError, match=r"result\.json is damaged"):
        read_results(tmp_path)


def test_a_truncated_result_is_detected(tmp_path):
    path = written(tmp_path, RESULT)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DamagedError):
        read_results(tmp_path)


def halves(seed, matched, mismatched, preset):
    scores = {"dev": {"accuracy": matched}, "dev_mismatched": {"accuracy": mismatched}}
    return Result("mnli", seed, preset, scores)


@pytest.mark.parametrize(
    ("preset", "score", "best"),
    [("paper", 0.80, 0), ("seed-004", 0.80, 0), ("seed-003", 0.75, 1)],
)
def test_the_preset_defines_the_score_of_mnli(preset, score, best):
    label = f"{preset}, epochs 1.0"  # overridden options follow the preset's name
    runs = [halves(0, 0.80, 0.70, label), halves(1, 0.79, 0.75, label)]
    assert main_score(runs[0]) == pytest.approx(score)
    assert best_jobs(runs)["mnli"].seed == best


def test_a_run_without_a_score_that_its_preset_needs_is_never_the_best():
    complete = halves(1, 0.5, 0.5, "seed-003")
    half = Result("mnli", 0, "seed-003", {"dev": {"accuracy": 0.9}})
    assert main_score(half) == -math.inf
    assert best_jobs([half, complete])["mnli"] is complete


def test_the_weights_of_the_best_run_by_its_preset_are_kept(tmp_path):
    identity = {"plan": {"starts_from": ""}}
    for result in (halves(0, 0.80, 0.70, "seed-003"), halves(1, 0.79, 0.75, "seed-003")):
        folder = tmp_path / "jobs" / f"mnli-{result.seed}"
        folder.mkdir(parents=True)
        write_result(folder, result, identity)
        (folder / "model.safetensors").touch()
    drop_models(tmp_path, keep=set())
    assert [path.parent.name for path in tmp_path.glob("jobs/*/model.safetensors")] == ["mnli-1"]


def test_an_undefined_score_is_never_the_best():
    undefined = RESULT._replace(scores={"dev": {"spearman": math.nan}})
    assert max([undefined, RESULT], key=main_score) is RESULT
