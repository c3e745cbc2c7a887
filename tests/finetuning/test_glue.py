"""`electrify glue` as users run it: tasks × seeds, killed, resumed, extended, compared."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tests.training.nursery import wait_for

from electrify import cli
from electrify.errors import DamagedError, UserError
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.experiment import new_model
from electrify.finetuning.glue import command as commands
from electrify.finetuning.glue import submission as submit
from electrify.finetuning.glue import submit as glue_submit_module
from electrify.finetuning.glue.command import glue, plan_jobs, run_job, short_name, task_names
from electrify.finetuning.glue.data import read_split
from electrify.finetuning.glue.problem import load_finetuned
from electrify.finetuning.glue.results import best_jobs, read_results
from electrify.finetuning.glue.submit import glue_submit
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.options import Glue, GlueSubmit, Search
from electrify.storage.commit import json_bytes

FAST = {"lr": 1e-3, "epochs": 6.0, "layer_decay": 1.0, "length": 32}


def settings(encoder_folder, glue_folder, out, **changes) -> Glue:
    chosen = {"tasks": "sst2", "seeds": 2, **FAST, **changes}
    return Glue(model=str(encoder_folder), data=glue_folder, out=out, **chosen)


@pytest.fixture(scope="module")
def done(encoder_folder, glue_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("done") / "glue"
    glue(settings(encoder_folder, glue_folder, out, tasks="sst2,stsb,mnli"))
    return out


def test_it_learns_and_writes_the_tables(done):
    results = read_results(done)
    assert [(r.task, r.seed) for r in results] == [
        (task, seed) for task in ("sst2", "stsb", "mnli") for seed in (0, 1)
    ]
    for result in results:
        first = TASKS[result.task].metrics[0]
        assert result.scores["dev"][first] > 0.6, result
        assert not result.degenerate
        assert result.train_rows == 256
    assert {"dev", "dev_mismatched"} == results[-1].scores.keys()
    for name in ("glue.md", "glue.tex", "glue.csv", "seeds.csv"):
        assert "SST-2" in (done / name).read_text()


def test_outputs_and_the_weights_of_the_best_runs_are_kept(done, encoder_folder, glue_folder):
    models = sorted(path.parent.name for path in (done / "jobs").glob("*/model.safetensors"))
    assert len(models) == 3
    best = best_jobs(read_results(done))
    assert models == sorted(f"{r.task}-{r.seed}" for r in best.values())
    job = next(
        job
        for job in plan_jobs(
            settings(encoder_folder, glue_folder, done), str(encoder_folder), ["sst2"], range(2)
        )
        if job.name in models
    )
    assert load_file(job.folder / "outputs.safetensors")["dev"].shape == (40, 2)
    encoder = open_encoder(str(encoder_folder))
    finetuned = load_finetuned(job.problem, encoder, job.seed, job.folder)
    fresh = new_model(job.problem, encoder, job.seed)
    names = dict(fresh.named_parameters())
    assert any((tensor != names[name]).any() for name, tensor in finetuned.named_parameters())


def test_finished_jobs_never_run_again_and_seeds_are_added(
    done, encoder_folder, glue_folder, tmp_path, monkeypatch, capsys
):
    import shutil

    out = Path(shutil.copytree(done, tmp_path / "glue"))
    before = {path: path.stat().st_mtime_ns for path in out.glob("jobs/*/result.json")}
    ran = []
    monkeypatch.setattr(
        commands,
        "run_job",
        lambda job, on_progress: (ran.append(job.name), run_job(job, on_progress))[1],
    )
    glue(settings(encoder_folder, glue_folder, out, seeds=3))
    assert ran == ["sst2-2"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "SST-2" in capsys.readouterr().out


def test_a_copied_result_of_another_seed_is_detected_before_training(
    done, encoder_folder, glue_folder, tmp_path, monkeypatch
):
    import shutil

    out = Path(shutil.copytree(done, tmp_path / "glue"))
    shutil.copytree(out / "jobs/sst2-0", out / "jobs/sst2-3")
    monkeypatch.setattr(commands, "run_job", lambda *_: 1 / 0)
    with pytest.raises(DamagedError, match=r"sst2-3/result\.json is damaged") as caught:
        glue(settings(encoder_folder, glue_folder, out, seeds=5))
    assert caught.value.got == "the result of task sst2, seed 0"


def test_different_settings_in_the_same_folder_are_refused(done, encoder_folder, glue_folder):
    with pytest.raises(UserError, match="different settings") as caught:
        glue(settings(encoder_folder, glue_folder, done, lr=2e-3))
    assert "plan.fit.lr: the folder has 0.001, the command says 0.002" in str(caught.value)


def test_an_unfinished_job_is_not_resumed_with_different_settings(
    encoder_folder, glue_folder, tmp_path, monkeypatch
):
    out = tmp_path / "glue"

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("electrify.finetuning.fit.train", killed)
    with pytest.raises(KeyboardInterrupt):
        glue(settings(encoder_folder, glue_folder, out, seeds=1))
    monkeypatch.undo()
    assert (
        out / "jobs/sst2-0/identity.json"
    ).is_file()  # the checkpoint is written in the background
    with pytest.raises(UserError, match="different settings"):
        glue(settings(encoder_folder, glue_folder, out, seeds=1, lr=5e-3))


def test_the_table_lists_the_options_that_override_the_preset(
    encoder_folder, glue_folder, tmp_path, capsys
):
    glue(settings(encoder_folder, glue_folder, tmp_path / "glue", seeds=1, epochs=1.0, head="own"))
    out = " ".join(capsys.readouterr().out.split())
    assert "preset paper, head own, lr 0.001, epochs 1.0, layer decay 1.0, length 32" in out
    assert "GPT" not in out  # which has only published test results


def test_a_model_that_others_start_from_is_kept_and_not_retrained(
    encoder_folder, glue_folder, tmp_path, monkeypatch
):
    out = tmp_path / "glue"
    few = {"seeds": 2, "epochs": 1.0, "train_limit": 32}
    chain = {"from_mnli": "rte", **few}
    glue(settings(encoder_folder, glue_folder, out, tasks="mnli,rte", **chain))
    glue(settings(encoder_folder, glue_folder, out, tasks="cola", **chain))
    assert (out / "jobs/mnli-0/model.safetensors").exists()
    ran = []
    monkeypatch.setattr(commands, "run_job", lambda job, on_progress: ran.append(job.name))
    glue(settings(encoder_folder, glue_folder, out, tasks="mnli,rte", **chain))
    assert ran == []


def test_jobs_that_start_from_a_failed_job_fail_too(
    encoder_folder, glue_folder, tmp_path, monkeypatch
):
    from electrify.errors import GuardError
    from electrify.finetuning import experiment

    def broken(*arguments):
        raise GuardError("it broke", got="nan", fix="nothing")

    monkeypatch.setattr(experiment, "fit", broken)
    out = tmp_path / "glue"
    chain = {"tasks": "rte", "from_mnli": "rte", "seeds": 1}
    glue(settings(encoder_folder, glue_folder, out, **chain))
    assert {r.task: r.failed for r in read_results(out)} == {
        "mnli": "it broke",
        "rte": "mnli-0, which it starts from, failed",
    }


@pytest.mark.slow
def test_two_workers_give_the_same_scores(done, encoder_folder, glue_folder, tmp_path):
    out = tmp_path / "glue"
    glue(settings(encoder_folder, glue_folder, out, tasks="sst2", workers=2))
    mine = [r.scores for r in read_results(out)]
    assert mine == [r.scores for r in read_results(done) if r.task == "sst2"]


def test_one_job_runs_on_each_gpu(encoder_folder, glue_folder, tmp_path, monkeypatch):
    """On a pretended machine with three GPUs, of which two may be used."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0, 2")
    seen = []
    monkeypatch.setattr(commands, "executor", lambda *how: seen.append(how) or 1 / 0)
    for number, (changes, workers, gpus) in enumerate(
        [({}, 2, ["0", "2"]), ({"workers": 5}, 5, ["0", "2"]), ({"device": "cpu"}, 1, [])]
    ):
        out = tmp_path / f"{number}"
        with pytest.raises(ZeroDivisionError):
            glue(settings(encoder_folder, glue_folder, out, **changes))
        assert seen.pop() == (workers, gpus)


def test_a_folder_keeps_the_precision_it_was_started_with(
    done, encoder_folder, glue_folder, monkeypatch, capsys
):
    """On a CPU that is float32; the folder is then continued on a pretended GPU with bfloat16."""
    [path, *_] = (done / "jobs").glob("*/result.json")
    assert json.loads(path.read_text())["identity"]["plan"]["fit"]["precision"] == "float32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    chosen = settings(encoder_folder, glue_folder, done)
    glue(chosen)
    assert "precision: float32, on a GPU\n" in capsys.readouterr().out
    with pytest.raises(UserError, match="the folder has float32, the command says bf16"):
        glue(replace(chosen, precision="bf16"))
    [job] = plan_jobs(chosen, chosen.model, ["sst2"], [9])
    assert job.problem.plan.fit.precision == "bf16"
    assert "precision bf16" in job.problem.preset


def test_killed_it_goes_on_and_ends_the_same(done, encoder_folder, glue_folder, tmp_path):
    out = tmp_path / "glue"
    command = [sys.executable, "-m", "electrify", "glue", encoder_folder, "--data", glue_folder]
    command += ["--out", out, "--tasks", "sst2", "--seeds", 2, "--lr", 1e-3, "--epochs", 6]
    command += ["--layer-decay", 1, "--length", 32]
    command = [str(part) for part in command]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(out / "jobs" / "sst2-0" / "result.json")
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run(command, check=True, capture_output=True)
    mine = [r.scores for r in read_results(out)]
    assert mine == [r.scores for r in read_results(done) if r.task == "sst2"]


def test_any_task_can_start_from_mnli(encoder_folder, glue_folder, tmp_path):
    out = tmp_path / "glue"
    changes = {"tasks": "mrpc", "seeds": 1, "epochs": 1.0, "train_limit": 32, "from_mnli": "mrpc"}
    chosen = settings(encoder_folder, glue_folder, out, **changes)
    glue(chosen)
    assert [r.task for r in read_results(out)] == ["mrpc", "mnli"]
    assert (out / "jobs/mnli-0/model.safetensors").exists()
    with pytest.raises(UserError, match="starts_from"):
        glue(replace(chosen, from_mnli=""))


@pytest.mark.parametrize("preset", ["official-code", "seed-004", "seed-003"])
def test_every_preset_runs_and_chains_start_from_mnli(
    preset, encoder_folder, glue_folder, tmp_path
):
    out = tmp_path / "glue"
    changes = {"tasks": "rte,mrpc", "seeds": 1, "preset": preset, "lr": None, "epochs": 1.0}
    glue(settings(encoder_folder, glue_folder, out, **changes))
    names = {f"{r.task}-{r.seed}" for r in read_results(out)}
    assert names == {"rte-0", "mrpc-0"} | ({"mnli-0"} if preset == "seed-003" else set())
    about = json.loads((out / "jobs/rte-0/result.json").read_text())["identity"]
    assert about["preset"] == f"{preset}, epochs 1.0, layer decay 1.0, length 32"
    if preset == "seed-003":
        assert about["plan"]["starts_from"] == "mnli"
        assert about["plan"]["fit"]["lr"] == 2e-5


def test_a_chained_job_has_the_other_tasks_encoder_and_a_new_head(
    encoder_folder, glue_folder, tmp_path
):
    chosen = settings(encoder_folder, glue_folder, tmp_path, preset="seed-003", lr=None, epochs=0.4)
    source, job = plan_jobs(chosen, str(encoder_folder), ["rte"], [1])
    assert (source.problem.name, job.problem.name) == ("mnli", "rte")
    run_job(source)
    encoder = open_encoder(str(encoder_folder))
    finetuned = load_finetuned(source.problem, encoder, source.seed, source.folder)
    source_parameters = dict(finetuned.named_parameters())
    for task in (
        "rte",
        "mnli",
    ):  # MNLI's head has the right shape for MNLI, so it could be copied by mistake
        problem = replace(job.problem, task=TASKS[task])
        alone = new_model(replace(problem, starts_from=None), encoder, job.seed)
        fresh = dict(alone.named_parameters())
        for name, tensor in new_model(problem, encoder, job.seed).named_parameters():
            is_head = not name.startswith("network.bert.")
            expected = fresh[name] if is_head else source_parameters[name]
            assert torch.equal(tensor, expected), name
            assert not is_head or not torch.equal(tensor, source_parameters[name]), name


def test_diverged_training_is_a_failed_or_degenerate_result(
    encoder_folder, glue_folder, tmp_path, capsys
):
    out = tmp_path / "glue"
    glue(settings(encoder_folder, glue_folder, out, seeds=1, lr=1e3, epochs=3.0))
    [result] = read_results(out)
    assert result.failed or result.degenerate
    assert "SST-2" in capsys.readouterr().out


def test_a_preset_that_uses_both_mnli_dev_sets_needs_both(
    encoder_folder, glue_folder, tmp_path, capsys
):
    import shutil

    data = Path(shutil.copytree(glue_folder, tmp_path / "data"))
    (data / "MNLI/dev_mismatched.tsv").unlink()
    where = [str(encoder_folder), "--data", str(data), "--out", str(tmp_path / "out")]
    assert cli.main(["glue", *where, "--tasks=mnli", "--preset=seed-003", "--length=32"]) == 2
    assert "dev_mismatched.tsv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("runs/long/model/discriminator", "long"),
        ("runs/long/model/model", "long"),
        ("runs/long", "long"),
        ("model/discriminator", "model/discriminator"),  # not the working directory's name
        ("google/electra-small-discriminator", "google/electra-small-discriminator"),
    ],
)
def test_the_short_name_of_a_model_distinguishes_it(model, name, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    (folder / "runs/long/model/discriminator").mkdir(parents=True)
    (folder / "runs/long/model/model").mkdir()
    (folder / "model/discriminator").mkdir(parents=True)
    monkeypatch.chdir(folder)
    assert short_name(model) == name


def test_a_single_task_shows_nothing_about_other_tasks(
    encoder_folder, glue_folder, tmp_path, capsys
):
    glue(settings(encoder_folder, glue_folder, tmp_path / "glue", seeds=1, epochs=0.2))
    out = capsys.readouterr().out
    for word in ("±", "95 %", "MNLI is", "on the test set", "14 models", "GPT"):
        assert word not in out
    assert short_name(str(encoder_folder)) in out
    assert sorted(p.name for p in (tmp_path / "glue").glob("*.md")) == ["glue.md", "seeds.md"]


def test_invalid_settings_are_refused(encoder_folder, glue_folder, tmp_path):
    chosen = settings(encoder_folder, glue_folder, tmp_path / "out")
    with pytest.raises(UserError, match="task cloa"):
        glue(replace(chosen, tasks="cloa"))
    with pytest.raises(UserError, match=r"GLUE folder .*nothing does not exist"):
        glue(replace(chosen, data=tmp_path / "nothing"))
    with pytest.raises(UserError, match="--length must be between 8 and 64"):
        glue(replace(chosen, length=4096))
    with pytest.raises(UserError, match="--epochs must be above 0"):
        glue(replace(chosen, epochs=-1.0))
    assert task_names("sts,sst-2") == ["stsb", "sst2"]


def test_the_best_runs_are_submitted(encoder_folder, glue_folder, tmp_path, monkeypatch, capsys):
    out, target = tmp_path / "glue", tmp_path / "submission.zip"
    chosen = {"seeds": 1, "epochs": 1.0, "train_limit": 64}
    glue(settings(encoder_folder, glue_folder, out, tasks="cola,mnli", **chosen))
    asked = GlueSubmit(results=out, data=glue_folder, out=target)
    with pytest.raises(UserError, match="no results of SST-2, MRPC") as caught:
        glue_submit(asked)
    assert "--out FOLDER" in caught.value.fix
    glue(settings(encoder_folder, glue_folder, out, tasks="all", **chosen))
    with pytest.raises(UserError, match="is not the official one"):
        glue_submit(asked)  # the real test files have more rows
    with pytest.raises(UserError, match="no folder"):
        glue_submit(replace(asked, out=tmp_path / "nowhere" / "x.zip"))
    assert not target.exists()
    tiny = {
        name: wanted._replace(rows=12 if name == "AX.tsv" else 20)
        for name, wanted in submit.SUBMISSION_FILES.items()
    }
    monkeypatch.setattr(submit, "SUBMISSION_FILES", tiny)
    monkeypatch.setattr(glue_submit_module, "SUBMISSION_FILES", tiny)
    glue_submit(asked)
    out = capsys.readouterr().out
    assert "complete" in out
    assert "WNLI.tsv: no predictions, filled" in out
    with zipfile.ZipFile(target) as archive:
        assert set(archive.namelist()) == set(tiny)
        lines = archive.read("MNLI-mm.tsv").decode().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 21
    assert {line.split("\t")[1] for line in lines[1:]} <= set(TASKS["mnli"].labels)


def test_test_predictions_of_single_tasks_can_be_written_to_a_folder(
    done, encoder_folder, glue_folder, tmp_path, monkeypatch, capsys
):
    import shutil

    tiny = {name: wanted._replace(rows=20) for name, wanted in submit.SUBMISSION_FILES.items()}
    monkeypatch.setattr(submit, "SUBMISSION_FILES", tiny)
    monkeypatch.setattr(glue_submit_module, "SUBMISSION_FILES", tiny)
    data = Path(shutil.copytree(glue_folder, tmp_path / "data"))
    shutil.rmtree(data / "diagnostic")
    where = ["glue", "submit", str(done), "--data", str(data), "--out"]
    out = tmp_path / "predictions"
    assert cli.main([*where, str(out)]) == 0
    printed = capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == [
        "MNLI-m.tsv", "MNLI-mm.tsv", "SST-2.tsv", "STS-B.tsv"
    ]  # fmt: skip
    assert "missing: CoLA.tsv, MRPC.tsv, QQP.tsv, AX.tsv, QNLI.tsv, RTE.tsv" in printed
    assert submit.validate_submission(out) == [
        f"{n}: missing"
        for n in ("AX.tsv", "CoLA.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv", "RTE.tsv", "WNLI.tsv")
    ]
    assert cli.main([*where, str(tmp_path / "all.zip")]) == 2
    assert "no results of CoLA, MRPC, QQP, QNLI, RTE" in capsys.readouterr().err
    assert not (tmp_path / "all.zip").exists()
    assert cli.main([*where, str(data / "CoLA/train.tsv")]) == 2
    for path in data.glob("*/test*.tsv"):
        path.unlink()
    assert cli.main([*where, str(out)]) == 2
    assert "has no test files" in capsys.readouterr().err


def test_footnotes_of_published_rows_and_other_tasks_are_printed_on_request(
    done, encoder_folder, glue_folder, capsys
):
    """The files have everything; notes on your own runs are always printed."""
    source = "google-research/electra, README"
    asked = settings(encoder_folder, glue_folder, done)
    glue(asked)
    out = capsys.readouterr().out
    assert source not in out
    assert out.count("STS-B") == 1  # among the tasks that an average would need
    assert "the official file has 67,349; not comparable" in out
    assert f"model: {encoder_folder}" in out
    assert "add --footnotes" in out
    assert f"electrify glue submit {done} --data {glue_folder}" in out
    assert source in (done / "glue.md").read_text()
    assert "STS-B" in (done / "glue.md").read_text()
    glue(replace(asked, footnotes=True))
    out = capsys.readouterr().out
    assert source in out
    assert "add --footnotes" not in out


def test_some_tasks_are_submitted_as_single_files(done, glue_folder, tmp_path, monkeypatch, capsys):
    wanted = {name: want._replace(rows=20) for name, want in submit.SUBMISSION_FILES.items()}
    for module in (submit, glue_submit_module):
        monkeypatch.setattr(module, "SUBMISSION_FILES", wanted)
    asked = GlueSubmit(done, glue_folder, tmp_path / "test", tasks="sst2,stsb")
    glue_submit(asked)
    assert sorted(path.name for path in (tmp_path / "test").iterdir()) == ["SST-2.tsv", "STS-B.tsv"]
    with pytest.raises(UserError, match="no results of CoLA"):
        glue_submit(replace(asked, tasks="sst2,cola"))


def test_a_missing_folder_names_the_download(encoder_folder, tmp_path):
    with pytest.raises(UserError, match="does not exist") as error:
        glue(settings(encoder_folder, tmp_path / "GLUE", tmp_path / "out"))
    assert f"electrify data glue --out {tmp_path / 'GLUE'}" in error.value.fix


def test_search_lists_only_options_that_it_takes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["glue", "search", "--help"])
    out = capsys.readouterr().out
    assert "--trials" in out
    for option in ("--lr", "--epochs", "--batch-size", "--layer-decay"):
        assert option not in out


def test_a_comparison_pairs_the_seeds(done, electrify):
    out = electrify("glue", "compare", done, done).stdout
    assert "SST-2" in out
    assert "0.0" in out


@pytest.fixture
def search_settings(encoder_folder, glue_folder, tmp_path):
    pytest.importorskip("optuna")

    return Search(
        model=str(encoder_folder),
        data=glue_folder,
        out=tmp_path / "search",
        task="sst2",
        trials=2,
        train_limit=16,
        length=32,
    )


def tried(capsys) -> dict[int, str]:
    """Return the settings of every trial that was printed."""
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("trial ")]
    return {int(x.split()[1].rstrip(":")): x.partition(" with ")[2] for x in lines}


def test_search_resumes_with_new_trials(search_settings, capsys):
    from electrify.finetuning.glue.search import search

    search(search_settings)
    first = tried(capsys)
    assert list(first) == [0, 1]
    search(replace(search_settings, trials=4))
    second = tried(capsys)
    assert list(second) == [2, 3]
    assert len({*first.values(), *second.values()}) == 4
    with pytest.raises(UserError, match="a different model, different data or different settings"):
        search(replace(search_settings, preset="seed-004"))
    with pytest.raises(UserError, match="--lr is chosen by the search"):
        search(replace(search_settings, lr=1e-3))
    with pytest.raises(UserError, match="exactly one task"):
        search(replace(search_settings, task="all"))


def test_a_killed_trial_is_resumed(search_settings, capsys, monkeypatch):
    from electrify.finetuning.glue import search as searching

    monkeypatch.setattr(searching, "run_missing", lambda jobs, workers: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        searching.search(search_settings)
    monkeypatch.undo()
    searching.search(search_settings)
    assert list(tried(capsys)) == [0, 1]


def test_search_also_runs_the_task_that_another_starts_from(search_settings, capsys):
    from electrify.finetuning.glue.search import search

    search(replace(search_settings, task="rte", from_mnli="rte", trials=1))
    assert list(tried(capsys)) == [0]


def test_scores_follow_from_the_saved_outputs(done, glue_folder):
    labels = read_split(glue_folder, TASKS["sst2"], "dev").labels
    predictions = load_file(done / "jobs/sst2-0/outputs.safetensors")["dev"].argmax(axis=1)
    [result] = [r for r in read_results(done) if (r.task, r.seed) == ("sst2", 0)]
    assert result.scores["dev"]["accuracy"] == np.mean(predictions == labels)


def test_results_are_printed_as_json(done, encoder_folder, glue_folder, capsys):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in FAST.items()]
    where = [str(encoder_folder), "--data", str(glue_folder), "--out", str(done)]
    assert cli.main(["glue", *where, "--tasks=sst2", "--seeds=2", *flags, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(one["task"], one["seed"]) for one in results[:2]] == [("sst2", 0), ("sst2", 1)]
    assert cli.main(["glue", "compare", str(done), str(done), "--json"]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)
    assert first["difference"] == 0


def test_the_initial_head_is_part_of_the_identity(encoder_folder, glue_folder, tmp_path):
    def job(**how):
        settings = Glue(model=str(encoder_folder), data=glue_folder, out=tmp_path, length=32, **how)
        [one] = plan_jobs(settings, settings.model, ["cola"], [0])
        return one

    assert "init_head" not in job().problem.identity["plan"]  # the official head is always new
    assert job(head="own").problem.identity["plan"]["init_head"] == "new"
    kept = job(head="own", init_head="pretrained")
    assert kept.problem.preset == "paper, head own, init head pretrained, length 32"
    assert kept.problem.identity["plan"]["init_head"] == "pretrained"
    with pytest.raises(UserError, match="--init-head pretrained needs"):
        job(init_head="pretrained")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("how", [{}, {"init_head": "pretrained"}])
def test_a_folder_from_before_heads_were_initialized_is_refused(
    how, done, encoder_folder, glue_folder, tmp_path
):
    def job(**how):
        chosen = settings(encoder_folder, glue_folder, tmp_path, **how)
        [one] = plan_jobs(chosen, chosen.model, ["cola"], [0])
        return one

    for head, refused in (("own", True), ("official", False)):
        before = json.loads(json_bytes(job(head=head).problem.identity))
        before["plan"].pop("init_head", None)
        name, content = ("result", {"identity": before}) if done else ("identity", before)
        path = job().folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json_bytes(content))
        if refused:
            with pytest.raises(
                UserError, match="made before heads were initialized from the seed"
            ) as error:
                commands.finished(job(head=head, **how))
            assert error.value.fix == "use another --out; nothing was touched"
        elif not done:
            assert not commands.finished(job(head=head))
        with pytest.raises(UserError, match="made with different settings"):  # the reason is lr
            commands.finished(job(head="own", **how, lr=1e-5))
