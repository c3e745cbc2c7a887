"""`electrify pretrain`: a run killed at any moment resumes as if nothing had happened."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from random import Random

import pytest
import torch
from tests.training.nursery import wait_for

from electrify.recipes.schema import load
from electrify.reports.run import read_run
from electrify.storage.lock import hold
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.store import Shards
from electrify.training import checkpoint
from electrify.training.data import open_data, validation_task
from electrify.training.engine import Engine
from electrify.training.folder import RunFolder
from electrify.training.journal import read_records, seconds_logged
from electrify.training.summary import verdict_text


@pytest.fixture(scope="module")
def unbroken(nursery, recipe, shards, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    code = nursery.run(
        "pretrain", recipe, "--data", shards, "--out", folder / "run", log=folder / "log"
    )
    assert code == 0, (folder / "log").read_text()
    return folder / "run"


def everything(run: Path) -> dict[str, bytes]:
    """Return all files that must be equal: the last checkpoint and the metrics."""
    last = checkpoint.stored(run / "checkpoints")[0].folder
    files = {f"{last.name}/{path.name}": path.read_bytes() for path in sorted(last.iterdir())}
    return {**files, "metrics": (run / "metrics.jsonl").read_bytes()}


def assert_equal(run: Path, unbroken: Path) -> None:
    mine, theirs = everything(run), everything(unbroken)
    assert mine.keys() == theirs.keys()
    for name in theirs:
        assert mine[name] == theirs[name], name


def test_a_run_writes_its_metrics_and_checkpoints(unbroken):
    lines = [json.loads(line) for line in (unbroken / "metrics.jsonl").read_text().splitlines()]
    train = [line["step"] for line in lines if line["split"] == "train"]
    assert train == [*range(7, 60, 7), 60]
    assert [line["step"] for line in lines if line["split"] == "validation"] == [20, 40, 60]
    assert [one.step for one in checkpoint.stored(unbroken / "checkpoints")] == [60, 50]
    assert {path.name for path in unbroken.iterdir()} >= {"run.json", "recipe.toml", "tokenizer"}
    assert lines[-1]["generator_loss"] < lines[0]["generator_loss"]


def test_a_run_ends_with_a_verdict_and_measures_what_it_is_based_on(unbroken):
    log = (unbroken.parent / "log").read_text()
    assert verdict_text(unbroken).startswith("verdict: ")
    assert verdict_text(unbroken) in log
    lines = [json.loads(line) for line in (unbroken / "metrics.jsonl").read_text().splitlines()]
    assert all(line["gradient_norm"] > 0 for line in lines if line["split"] == "train")
    evaluated = [line for line in lines if line["split"] == "validation"]
    assert len({line["unigram_loss"] for line in evaluated}) == 1
    assert 0 < evaluated[0]["unigram_loss"] < read_run(unbroken, "run").sizes.uniform_loss
    assert all(0 <= line["recall_at_5"] <= 1 for line in evaluated)
    timing = read_records(unbroken / "timing.jsonl")
    shares = read_run(unbroken, "run").time_shares
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["forward"] > 0
    assert seconds_logged(timing) == pytest.approx(sum(line["seconds"] for line in timing))


def test_there_is_no_validation_with_fewer_examples_than_ranks(recipe, shards):
    loaded = load(str(recipe))
    tokenizer, _ = open_data(shards, loaded)
    examples = len(Shards(shards, "validation"))

    def task_of(world: int, **options):
        engine = Engine(device="cpu")
        engine.world = world
        return validation_task(loaded, shards, tokenizer, engine, **options)

    assert task_of(min(8, examples) + 1) is None
    assert task_of(3).task.batch_size == min(8, examples)
    assert task_of(3, same_rows=True).task.batch_size == min(8, examples) // 3 * 3


def test_the_finished_run_does_nothing_more(unbroken, nursery, recipe, shards, tmp_path):
    before = everything(unbroken)
    command = ("pretrain", recipe, "--data", shards, "--out", unbroken)
    assert nursery.run(*command, log=tmp_path / "log") == 0
    assert everything(unbroken) == before


@pytest.mark.parametrize(
    ("trials", "steps"), [(1, 60), pytest.param(50, 200, marks=pytest.mark.slow)]
)
def test_killed_at_any_moment_it_ends_the_same(trials, steps, nursery, recipe, shards, tmp_path):
    rng = Random(trials)
    unbroken = tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--run.steps", steps, "--out", unbroken)
    begin = time.monotonic()
    assert nursery.run(*command, log=tmp_path / "log") == 0
    duration = time.monotonic() - begin
    for trial in range(trials):
        run = tmp_path / f"run{trial}"
        command = (*command[:-1], run)
        code = -9
        while code == -9:
            code = nursery.run_and_kill(
                rng.uniform(0.1, 1.2) * duration, signal.SIGKILL, *command, log=tmp_path / "log"
            )
        assert code == 0, (tmp_path / "log").read_text()
        assert_equal(run, unbroken)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_and_the_run_ends_the_same(
    stop, unbroken, nursery, recipe, shards, tmp_path
):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run")
    pid = nursery.start(*command, log=tmp_path / "log")
    wait_for(tmp_path / "run" / "metrics.jsonl")
    os.kill(pid, stop)
    code = nursery.wait()
    if code:
        assert code == 130
        assert "rerun the command to resume" in (tmp_path / "log").read_text()
    assert nursery.run(*command, log=tmp_path / "log") == 0
    assert_equal(tmp_path / "run", unbroken)


def test_a_stop_is_no_failure_to_torchrun(nursery, recipe, shards, tmp_path):
    """Also of a single process: torchrun would report an error, or start it again."""
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run")
    where = {"log": tmp_path / "log", "TORCHELASTIC_RUN_ID": "17"}
    assert nursery.run(*command, before=STOP_AT_6, **where) == 0
    assert "rerun the command to resume" in (tmp_path / "log").read_text()


def test_other_settings_are_refused_and_named(unbroken, nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--out", unbroken)
    before = everything(unbroken)
    for flag, value in [("--run.seed", 5), ("--optimizer.lr", 0.1), ("--run.steps", 70)]:
        log = tmp_path / flag
        assert nursery.run(*command, flag, value, log=log) == 2
        assert flag.removeprefix("--") in log.read_text()
    assert everything(unbroken) == before


def test_settings_that_do_not_affect_weights_may_change(
    unbroken, nursery, recipe, shards, tmp_path
):
    out = tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", out)
    changed = ("--run.save-every", 9, "--run.log-every", 5, "--workers", 0, "--micro-batch", 8)
    assert nursery.run(*command, *changed, log=tmp_path / "log") == 0
    mine = checkpoint.read_checkpoint(checkpoint.stored(out / "checkpoints")[0])
    theirs = checkpoint.read_checkpoint(checkpoint.stored(unbroken / "checkpoints")[0])
    assert all((mine.model[name] == theirs.model[name]).all() for name in theirs.model)


def test_a_damaged_newest_checkpoint_is_passed_over(unbroken, nursery, recipe, shards, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    newest = run / "checkpoints" / "step-00000060" / "optimizer.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=tmp_path / "log") == 0
    log = (tmp_path / "log").read_text()
    assert "step-00000060" in log
    assert "resuming from step 50" in log
    assert_equal(run, unbroken)


def test_if_all_are_damaged_it_does_not_start_over(unbroken, nursery, recipe, shards, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    for state in run.glob("checkpoints/*/state.json"):
        state.write_text("{}")
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=tmp_path / "log") == 3
    assert "every checkpoint" in (tmp_path / "log").read_text()


def test_two_trainers_do_not_share_a_folder(nursery, recipe, shards, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    run.mkdir()
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 2)
    with hold(run / "lock", "training here"):
        assert nursery.run(*command, log=log) == 2
    assert "another process is training" in log.read_text()
    assert f"process {os.getpid()} on" in log.read_text()
    assert nursery.run(*command, log=log) == 0, "a lock file that nobody holds does not lock"


CONSUMING = """
import random, numpy, torch
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def noisy(*arguments):
    torch.rand(3); numpy.random.rand(3); random.random()
    return accumulate(*arguments)
Stepper.accumulate = noisy
torch.manual_seed(99); numpy.random.seed(98); random.seed(97)
"""


def test_randomness_used_by_others_and_the_environment_change_nothing(
    unbroken, nursery, recipe, shards, tmp_path
):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run")
    other = {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    assert nursery.run(*command, log=tmp_path / "log", before=CONSUMING, **other) == 0
    assert_equal(tmp_path / "run", unbroken)


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--run.length", 64), "another length"),
        (("--run.batch-size", 0), "run.batch_size"),
        (("--budget", "soon"), "--budget is not a valid duration"),
        (("--max-time", "20s"), "leaves no time to train"),
        (("--micro-batch", -1), "--micro-batch is too small"),
        (("--discriminator.config.max-position-embeddings", 16), "longer than the discriminator's"),
        (("--discriminator.config.hidden-size", 33), "is not a multiple of its attention heads"),
        (("--device", "cuda"), "no CUDA device"),
    ],
)
def test_bad_settings_are_refused_before_a_file_is_written(
    flags, what, nursery, recipe, shards, tmp_path
):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "deep" / "run")
    assert nursery.run(*command, *flags, log=tmp_path / "log") == 2
    assert what in (tmp_path / "log").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_refused_command_leaves_an_existing_folder_as_it_was(nursery, recipe, shards, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    run.mkdir()
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, "--run.length", 64, log=log) == 2
    assert list(run.iterdir()) == []


def test_a_time_budget_becomes_a_number_of_steps(nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run", "--budget", "3s")
    assert nursery.run(*command, log=tmp_path / "log") == 0, (tmp_path / "log").read_text()
    identity = json.loads((tmp_path / "run" / "run.json").read_text())["identity"]
    steps = identity["recipe"]["run"]["steps"]
    assert checkpoint.stored(tmp_path / "run" / "checkpoints")[0].step == steps
    assert "time budget 3 s; trained for " in (tmp_path / "log").read_text()
    first = (tmp_path / "log").read_text().splitlines()[0]
    assert first == "time budget 3 s: measuring the time per step for about 1 s"
    assert nursery.run(*command, log=tmp_path / "log") == 0, "a second time: the same steps"
    assert (tmp_path / "log").read_text().count("measuring") == 1
    assert nursery.run(*command, "--optimizer.lr", 0.5, log=tmp_path / "log") == 2
    assert nursery.run(*command[:-2], log=tmp_path / "log") == 2, "without the budget"


def test_a_time_limit_reached_while_measuring_starts_no_run(nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run", "--budget", "8h")
    assert nursery.run(*command, "--max-time", "31s", log=tmp_path / "log") == 0
    assert "no run was started" in (tmp_path / "log").read_text()
    assert not (tmp_path / "run" / "run.json").exists()


def test_the_time_limit_saves_and_stops(nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run")
    assert nursery.run(*command, "--max-time", "31s", log=tmp_path / "log") == 0
    assert "time limit reached" in (tmp_path / "log").read_text()
    assert nursery.run(*command, log=tmp_path / "log") == 0


def test_checkpoints_at_percentages_of_training_are_kept(nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run")
    percents = ("--run.keep-percent", 6.25, 12.5, 25, 50, 100)
    few = ("--run.steps", 32, "--run.save-every", 5, "--run.keep-last", 1)
    assert nursery.run(*command, *few, *percents, log=tmp_path / "log") == 0
    steps = [one.step for one in checkpoint.stored(tmp_path / "run" / "checkpoints")]
    assert steps == [32, 16, 8, 4, 2]


KINDS = {
    "bf16": ("--run.precision", "bf16"),
    "fp16": ("--run.precision", "fp16"),
    "muon": ("--optimizer.kind", "muon"),
    "lamb": ("--optimizer.kind", "lamb"),
    "adamw, cosine": ("--optimizer.kind", "adamw", "--optimizer.schedule", "cosine"),
    "gdes": ("--sharing.embeddings", "gdes"),
    "none": ("--sharing.embeddings", "none"),
    "with replacement": ("--objective.with-replacement",),
    "whole words": ("--objective.whole-words",),
    "activations": ("--checkpoint-activations",),
    "shapes": (
        *("--schedules.length", 0, 16, 0.4, 16, 0.4, 32, "--schedules.batch-size", 0, 4, 1, 16),
    ),
    "schedules": (
        *("--schedules.mask-rate", 0, 0.4, 1, 0.15, "--schedules.temperature", 0, 2, 1, 0.5),
        # The generator alone, then both, then the discriminator alone.
        *("--schedules.discriminator-weight", 0, 0, 0.3, 0, 0.3, 50),
        *("--schedules.generator-weight", 0, 1, 0.6, 1, 0.6, 0, "--optimizer.generator-lr", 0.5),
    ),
}


QUICK = ("bf16", "schedules", "shapes")


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_every_kind_of_run_trains_stops_and_ends_the_same(kind, nursery, recipe, shards, tmp_path):
    def command(out: str) -> tuple:
        flags = ("--run.steps", 14, "--run.eval-every", 7, "--run.save-every", 4, *KINDS[kind])
        return ("pretrain", recipe, "--data", shards, "--out", tmp_path / out, *flags)

    log = tmp_path / "log"
    assert nursery.run(*command("a"), log=log) == 0, log.read_text()
    assert nursery.run(*command("b"), log=log, before=STOP_AT_6) == 130, log.read_text()
    assert nursery.run(*command("b"), log=log) == 0, log.read_text()
    assert_equal(tmp_path / "b", tmp_path / "a")
    assert nursery.run("export", tmp_path / "a", "--out", tmp_path / "model", log=log) == 0
    for role in ("discriminator", "encoder"):
        assert (tmp_path / "model" / role / "model.safetensors").exists()


STOP_AT_6 = """
import os, signal
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def stopping(self, step, batch, *requests):
    if step == 5:
        os.kill(os.getpid(), signal.SIGTERM)
    return accumulate(self, step, batch, *requests)
Stepper.accumulate = stopping
"""


NATIVE = """
from electrify.training import precision
precision.matmul_speed = lambda name, *what: {"float32": 1e11, "bf16": 2e11}[name]
"""
EMULATED = NATIVE.replace("2e11", "2e9")


def test_the_precision_is_chosen_once_and_printed(nursery, recipe, shards, tmp_path):
    out, log = tmp_path / "run", tmp_path / "log"
    flags = ("--run.precision", "auto", "--optimizer.kind", "muon", "--run.steps", 8)
    command = ("pretrain", recipe, "--data", shards, "--out", out, *flags)
    assert nursery.run(*command, log=log, before=NATIVE + STOP_AT_6) == 130
    assert "precision: bf16, Muon in bf16 (auto: bfloat16 matmuls run at 200" in log.read_text()
    assert RunFolder(out).recipe.run.precision == "bf16"
    assert nursery.run(*command, log=log, before=EMULATED) == 0, "on another machine"
    assert "precision: bf16, Muon in bf16 (bfloat16 matmuls run 50 times" in log.read_text()


@pytest.mark.slow
def test_muon_keeps_its_precision_on_another_machine(nursery, recipe, shards, tmp_path):
    """The weights do not depend on what is measured when the run resumes."""

    def command(out: str) -> tuple:
        flags = ("--optimizer.kind", "muon", "--run.steps", 10, "--run.eval-every", 10)
        return ("pretrain", recipe, "--data", shards, "--out", tmp_path / out, *flags)

    log = tmp_path / "log"
    assert nursery.run(*command("a"), log=log, before=NATIVE) == 0
    assert "precision: float32, Muon in bf16" in log.read_text()
    assert nursery.run(*command("b"), log=log, before=NATIVE + STOP_AT_6) == 130
    assert nursery.run(*command("b"), log=log, before=EMULATED) == 0
    assert_equal(tmp_path / "b", tmp_path / "a")
    assert nursery.run(*command("c"), log=log, before=EMULATED) == 0
    assert everything(tmp_path / "c") != everything(tmp_path / "a"), "the precision matters"


def test_a_run_that_did_not_record_the_precision_of_muon_keeps_bfloat16(
    nursery, recipe, shards, tmp_path
):
    out, log = tmp_path / "run", tmp_path / "log"
    flags = ("--optimizer.kind", "muon", "--run.steps", 8)
    command = ("pretrain", recipe, "--data", shards, "--out", out, *flags)
    assert nursery.run(*command, log=log, before=NATIVE + STOP_AT_6) == 130
    about = json.loads((out / "run.json").read_text())
    del about["muon"]
    (out / "run.json").write_text(json.dumps(about))
    assert nursery.run(*command, log=log, before=EMULATED) == 0
    assert "Muon in bf16" in log.read_text().rpartition("precision: float32")[2]


def test_muon_uses_float32_if_bfloat16_is_slow(nursery, recipe, shards, tmp_path):
    only_float32 = """
import torch
from electrify.training import muon
orthogonal = muon.orthogonal
def checked(*what):
    found = orthogonal(*what)
    assert found.dtype == torch.float32
    return found
muon.orthogonal = checked
"""
    flags = ("--run.precision", "auto", "--optimizer.kind", "muon", "--run.steps", 3)
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run", *flags)
    assert nursery.run(*command, log=tmp_path / "log", before=EMULATED + only_float32) == 0
    log = (tmp_path / "log").read_text()
    assert "precision: float32, Muon in float32 (auto: float32 matmuls run at 100" in log


def test_checkpointed_activations_give_the_same_weights(nursery, recipe, shards, tmp_path):
    for name, flags in {"plain": (), "recomputed": ("--checkpoint-activations",)}.items():
        command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / name)
        assert nursery.run(*command, "--run.steps", 8, *flags, log=tmp_path / "log") == 0
    plain, recomputed = (
        checkpoint.read_checkpoint(checkpoint.stored(tmp_path / name / "checkpoints")[0]).model
        for name in ("plain", "recomputed")
    )
    for name, tensor in plain.items():
        torch.testing.assert_close(recomputed[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_compiled_networks_give_the_same_losses(nursery, recipe, shards, tmp_path):
    found = {}
    for name, flags in {"plain": (), "compiled": ("--compile",)}.items():
        command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / name)
        few = ("--run.steps", 8, "--run.log-every", 1, *NO_DROPOUT)
        assert nursery.run(*command, *few, *flags, log=tmp_path / "log") == 0
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        found[name] = [json.loads(line)["generator_loss"] for line in lines]
    assert found["compiled"] == pytest.approx(found["plain"], rel=1e-5)


NO_DROPOUT = (
    "--discriminator.config.hidden-dropout-prob",
    0.0,
    "--discriminator.config.attention-probs-dropout-prob",
    0.0,
)


def test_masked_language_modelling_trains_and_is_exported(nursery, recipe, shards, tmp_path):
    text = recipe.read_text().replace("[generator]\nwidth = 0.5\n", '[objective]\nkind = "mlm"\n')
    (tmp_path / "mlm.toml").write_text(text)
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", tmp_path / "mlm.toml", "--data", shards, "--out", run)
    assert nursery.run(*command, "--run.steps", 10, log=log) == 0, log.read_text()
    assert nursery.run("export", run, "--out", tmp_path / "out", log=log) == 0
    config = json.loads((tmp_path / "out" / "model" / "config.json").read_text())
    assert config["architectures"] == ["ElectraForMaskedLM"]


def test_a_run_goes_on_from_an_exported_pair(unbroken, nursery, recipe, shards, tmp_path):
    log, out = tmp_path / "log", tmp_path / "out"
    assert nursery.run("export", unbroken, "--out", out, log=log) == 0, log.read_text()
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run", "--run.steps", 5)
    released = ("--discriminator.init-from", out / "discriminator")
    released += ("--generator.init-from", out / "generator")
    log_every_step = ("--run.log-every", 1)
    assert nursery.run(*command, *released, *log_every_step, log=log) == 0, log.read_text()
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    last = json.loads((unbroken / "metrics.jsonl").read_text().splitlines()[-1])
    begin = json.loads((unbroken / "metrics.jsonl").read_text().splitlines()[0])
    assert first["generator_loss"] < (last["generator_loss"] + begin["generator_loss"]) / 2
    out.rename(tmp_path / "elsewhere")  # the run does not need its starting weights again
    assert nursery.run(*command, *released, *log_every_step, log=log) == 0, log.read_text()
    assert nursery.run("export", tmp_path / "run", "--out", tmp_path / "again", log=log) == 0
    card = (tmp_path / "again" / "discriminator" / "README.md").read_text()
    assert str(tmp_path) not in card


BAD_FROM = """
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def bad(self, step, batch, *requests):
    gradient = accumulate(self, step, batch, *requests)
    return gradient._replace(loss=float("nan")) if step in {} else gradient
Stepper.accumulate = bad
"""


def test_bad_steps_are_skipped_then_left_out_after_going_back(nursery, recipe, shards, tmp_path):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 30)
    before = BAD_FROM.format("range(12, 16)")
    assert nursery.run(*command, log=log, before=before) == 0, log.read_text()
    assert "reloading the last checkpoint" in log.read_text()
    state = checkpoint.read_checkpoint(checkpoint.stored(run / "checkpoints")[0]).state
    assert state["guard"]["left_out"] == [12, 13, 14, 15]
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_bad_steps_that_stay_bad_stop_the_run(nursery, recipe, shards, tmp_path):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    before = BAD_FROM.format("range(12, 60)")
    assert nursery.run(*command, log=log, before=before) == 4, log.read_text()
    assert "bad batches" in log.read_text()
    assert nursery.run(*command, log=log) == 0, "the saved weights are good"


def is_finite(run: Path) -> dict[int, bool]:
    """Return whether all weights are finite, by the step of the checkpoint."""
    return {
        one.step: all(t.isfinite().all() for t in checkpoint.read_checkpoint(one).model.values())
        for one in checkpoint.stored(run / "checkpoints")
    }


@pytest.mark.parametrize(
    ("name", "value", "every"), [("lr", 1e30, 1), ("weight-decay", 1e30, 10), ("eps", 1e-320, 10)]
)
def test_weights_that_diverge_end_in_the_guards_report(
    name, value, every, nursery, recipe, shards, tmp_path
):
    """However often it saves, every checkpoint has finite weights, and at least one is kept."""
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.save-every", every)
    assert nursery.run(*command, f"--optimizer.{name}", value, log=log) == 4, log.read_text()
    assert "Traceback" not in log.read_text()
    assert "training stopped" in log.read_text()
    assert is_finite(run)
    assert all(is_finite(run).values())


LAST_UPDATE_DIVERGES = """
from electrify.training import pretrain
rates = pretrain.schedule_of
pretrain.schedule_of = lambda recipe: lambda step: 1e39 if step == 59 else rates(recipe)(step)
"""


def test_weights_that_only_the_last_update_spoils_are_not_saved(nursery, recipe, shards, tmp_path):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log, before=LAST_UPDATE_DIVERGES) == 0, log.read_text()
    assert "step 59: the weights are not finite" in log.read_text()
    state = checkpoint.read_checkpoint(checkpoint.stored(run / "checkpoints")[0]).state
    assert (state["step"], state["guard"]["left_out"]) == (60, [59])
    assert all(is_finite(run).values())


def test_checkpoints_in_doubt_displace_no_others(nursery, recipe, shards, tmp_path):
    """Finite weights may still give a NaN loss, so checkpoints saved then may be useless."""
    log, run = tmp_path / "log", tmp_path / "run"
    often = ("--run.save-every", 1, "--run.keep-last", 1)
    command = ("pretrain", recipe, "--data", shards, "--out", run, *often)
    before = BAD_FROM.format("range(12, 60)")
    assert nursery.run(*command, log=log, before=before) == 4, log.read_text()
    assert min(is_finite(run)) == 12, "the last one with a finite loss"


FULL_DISK = """
import errno
from electrify.training import checkpoint
write = checkpoint.write
def full(folder, taken, *others):
    if taken.step in (20, 30):
        raise OSError(errno.ENOSPC, "No space left on device")
    return write(folder, taken, *others)
checkpoint.write = full
"""


def test_a_full_disk_warns_and_training_goes_on(unbroken, nursery, recipe, shards, tmp_path):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log, before=FULL_DISK) == 0, log.read_text()
    assert "No space left on device; training continues" in log.read_text()
    assert_equal(run, unbroken)


def test_a_full_disk_stops_the_run_where_that_is_wanted(
    unbroken, nursery, recipe, shards, tmp_path
):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--on-save-error", "stop")
    assert nursery.run(*command, log=log, before=FULL_DISK) == 2, log.read_text()
    assert checkpoint.newest(run / "checkpoints", print).step == 10
    assert nursery.run(*command, log=log) == 0
    assert_equal(run, unbroken)


STOP_AT = """
import signal
from electrify.training import loop
reason_to_stop, passed = loop.reason_to_stop, []
def stopping(run, *seconds):
    passed.extend(seconds)  # only a training step passes it, not an evaluation
    if len(passed) == {} + 1:
        run.stop.signal = signal.SIGTERM
    return reason_to_stop(run, *seconds)
loop.reason_to_stop = stopping
"""


@pytest.mark.slow
def test_stopped_at_any_place_of_an_epoch_it_ends_the_same(nursery, recipe, shards, tmp_path):
    """At the start, after one step, in the middle, around the end of an epoch, and at the end."""
    log = tmp_path / "log"
    flags = ("--run.batch-size", 64, "--run.steps", 50, "--run.save-every", 1000)

    def command(out: str) -> tuple:
        return ("pretrain", recipe, "--data", shards, "--out", tmp_path / out, *flags)

    assert nursery.run(*command("unbroken"), log=log) == 0
    epoch = 2_862 // 64
    for step in (0, 1, 22, epoch, epoch + 1, 49):
        out = f"stopped at {step}"
        assert nursery.run(*command(out), log=log, before=STOP_AT.format(step)) == 130
        assert checkpoint.stored(tmp_path / out / "checkpoints")[0].step == step
        assert nursery.run(*command(out), log=log) == 0, log.read_text()
        assert_equal(tmp_path / out, tmp_path / "unbroken")


KILLED_AT_FIRST_SAVE = """
import os
from electrify.training import checkpoint
checkpoint.write = lambda *arguments: os._exit(9)
"""


def test_killed_before_its_first_save_a_run_still_starts_from_the_released_weights(
    unbroken, nursery, recipe, shards, tmp_path
):
    model, log = tmp_path / "model", tmp_path / "log"
    assert nursery.run("export", unbroken, "--out", model, log=log) == 0
    released = ("--discriminator.init-from", model / "discriminator")
    released += ("--generator.init-from", model / "generator", "--run.steps", 4)
    command = ("pretrain", recipe, "--data", shards, *released, "--out")
    assert nursery.run(*command, tmp_path / "unbroken", log=log) == 0, log.read_text()
    killed = tmp_path / "killed"
    assert nursery.run(*command, killed, log=log, before=KILLED_AT_FIRST_SAVE) != 0
    assert (killed / "run.json").exists()
    assert nursery.run(*command, killed, log=log) == 0, log.read_text()
    assert_equal(killed, tmp_path / "unbroken")


def test_a_run_whose_checkpoints_are_gone_does_not_start_over(
    unbroken, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(unbroken, run)
    shutil.rmtree(run / "checkpoints")
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log) == 3
    assert "the checkpoints of" in log.read_text()
    assert (run / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()


def test_a_partial_checkpoint_that_is_the_only_one_is_damage(
    unbroken, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(unbroken, run)
    last, *others = checkpoint.stored(run / "checkpoints")
    for other in others:
        shutil.rmtree(other.folder)
    (last.folder / "manifest.json").unlink()
    (last.folder / "state.json").unlink()
    assert nursery.run("pretrain", recipe, "--data", shards, "--out", run, log=log) == 3
    assert (last.folder / "model.safetensors").exists()


def test_a_checkpoint_of_another_run_or_another_step_is_passed_over(
    unbroken, nursery, recipe, shards, tmp_path
):
    run, other, log = tmp_path / "run", tmp_path / "other", tmp_path / "log"
    shutil.copytree(unbroken, run)
    command = ("pretrain", recipe, "--data", shards, "--run.seed", 7, "--out", other)
    assert nursery.run(*command, log=log) == 0
    theirs, mine = other / "checkpoints/step-00000060", run / "checkpoints/step-00000060"
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    shutil.copytree(run / "checkpoints/step-00000050", run / "checkpoints/step-00000061")
    assert nursery.run("pretrain", recipe, "--data", shards, "--out", run, log=log) == 0
    printed = log.read_text()
    assert "this is the checkpoint of another run" in printed
    assert "this is the checkpoint of step 50" in printed
    step = checkpoint.stored(unbroken / "checkpoints")[0].folder.name
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [folder / "checkpoints" / step / name for folder in (run, unbroken)]
        assert files[0].read_bytes() == files[1].read_bytes()


NEVER_SAVED_AND_BAD = """
import errno
from electrify.training import checkpoint
from electrify.training.training import Stepper
def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")
checkpoint.write = full
accumulate = Stepper.accumulate
def poisoned(self, step, batch, *requests):
    gradient = accumulate(self, step, batch, *requests)
    return gradient._replace(loss=float("nan")) if step >= 12 else gradient
Stepper.accumulate = poisoned
"""


def test_without_a_checkpoint_to_reload_a_run_stops(nursery, recipe, shards, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log, before=NEVER_SAVED_AND_BAD) == 4
    assert "training stopped" in log.read_text()


NO_ROOM_FOR_METRICS = """
import errno
from electrify.training.journal import Journal
count = 0
sync = Journal.on_save
def full(self):
    global count
    count += 1
    if count == 3:
        raise OSError(errno.ENOSPC, "No space left on device")
    sync(self)
Journal.on_save = full
"""


def test_metrics_that_cannot_be_synced_do_not_end_the_run(
    unbroken, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log, before=NO_ROOM_FOR_METRICS) == 0, log.read_text()
    assert "training continues" in log.read_text()
    assert_equal(run, unbroken)


STOPPED_WHILE_MEASURING = """
import os, signal
from electrify.training import evaluate
micro_batches = evaluate._micro_batches
def stopping(*arguments):
    if {at} == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    for number, pair in enumerate(micro_batches(*arguments)):
        if number == {at} - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        yield pair
evaluate._micro_batches = stopping
"""


@pytest.mark.parametrize("at", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_stopped_while_it_measures_the_save_is_there_and_the_measurement_is_repeated(
    at, unbroken, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run)
    assert nursery.run(*command, log=log, before=STOPPED_WHILE_MEASURING.format(at=at)) == 130
    assert checkpoint.stored(run / "checkpoints")[0].step == 20
    assert "validation" not in (run / "metrics.jsonl").read_text()
    assert nursery.run(*command, log=log) == 0
    assert_equal(run, unbroken)


def test_a_strangers_files_are_left_alone(nursery, recipe, shards, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    out.mkdir()
    for name in ("thesis.txt", ".thesis.tmp"):
        (out / name).write_text("mine")
    assert nursery.run("pretrain", recipe, "--data", shards, "--out", out, log=log) == 2
    assert {path.name for path in out.iterdir()} == {"thesis.txt", ".thesis.tmp"}


@pytest.mark.parametrize("name", ["tokenizer", "networks"])
def test_a_tokenizer_or_networks_of_others_are_not_overwritten(
    name, nursery, recipe, shards, tmp_path
):
    """A folder per project, with its tokenizer in it, is a likely --out."""
    out, log = tmp_path / "out", tmp_path / "log"
    (out / name).mkdir(parents=True)
    (out / name / "tokenizer.json").write_text("mine")
    assert nursery.run("pretrain", recipe, "--data", shards, "--out", out, log=log) == 2
    assert f"got: {name}" in log.read_text()
    assert [path.relative_to(out).as_posix() for path in sorted(out.rglob("*"))] == [
        name,
        f"{name}/tokenizer.json",
    ]
    assert (out / name / "tokenizer.json").read_text() == "mine"


KILLED_BEFORE_RUN_JSON = """
import os, signal
from electrify.training import folder
folder.environment = lambda: {how}
"""


@pytest.mark.parametrize(
    ("how", "code"), [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("open('/nowhere/file')", 1)]
)
def test_ended_before_run_json_is_written_the_same_command_starts_the_run(
    how, code, nursery, recipe, shards, tmp_path
):
    run, log = tmp_path / "run", tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 2)
    before = KILLED_BEFORE_RUN_JSON.format(how=how)
    assert nursery.run(*command, log=log, before=before) == code
    assert (run / "tokenizer").is_dir()
    assert not (run / "run.json").exists()
    assert nursery.run(*command, log=log) == 0


MOVED = """
import os
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
def moving(self, step, batch, *requests):
    if step == 12:
        os.rename({run!r}, {moved!r})
        {then}
    return accumulate(self, step, batch, *requests)
Stepper.accumulate = moving
"""


@pytest.mark.parametrize("replaced", [False, True])
def test_a_run_that_is_moved_while_it_trains_is_not_written_again_at_the_old_place(
    replaced, unbroken, nursery, recipe, shards, tmp_path
):
    run, moved, log = tmp_path / "run", tmp_path / "moved", tmp_path / "log"
    then = f"import shutil; shutil.copytree({str(tmp_path / 'other')!r}, {str(run)!r})"
    if replaced:
        (tmp_path / "other").mkdir()
        about = json.loads((unbroken / "run.json").read_text())
        about["identity"]["recipe"]["run"]["seed"] = 9
        (tmp_path / "other/run.json").write_text(json.dumps(about))
    before = MOVED.format(run=str(run), moved=str(moved), then=then if replaced else "")
    command = ("pretrain", recipe, "--data", shards, "--run.steps", 20)
    assert nursery.run(*command, "--out", run, log=log, before=before) == 2
    assert "the folder of the run was moved, removed or replaced" in log.read_text()
    names = [path.name for path in run.iterdir()] if run.exists() else []
    assert set(names) <= {"run.json"}
    kept = checkpoint.stored(moved / "checkpoints")
    assert {c.step for c in kept} <= {0, 10}  # the save of step 10 may not have been complete
    assert not any(checkpoint.faults(c.folder) for c in kept)
    assert nursery.run(*command, "--out", moved, log=log) == 0
    assert checkpoint.stored(moved / "checkpoints")[0].step == 20


SEEN = """
from electrify.training import pretrain as module
pretrain = module.pretrain
seen = []
module.pretrain = lambda settings: pretrain(settings, checkpoint_fn=lambda f: seen.append(f.name))
electrify.cli.main = lambda main=electrify.cli.main: (main(), print(seen))[0]
"""


def test_a_function_is_called_with_every_checkpoint(nursery, recipe, shards, tmp_path):
    log = tmp_path / "log"
    command = ("pretrain", recipe, "--data", shards, "--out", tmp_path / "run", "--run.steps", 20)
    assert nursery.run(*command, log=log, before=SEEN) == 0, log.read_text()
    for step in (0, 10, 20):
        assert f"'step-{step:08d}'" in log.read_text()


def test_checkpoints_are_uploaded_to_the_given_url(nursery, recipe, shards, tmp_path):
    run, log, there = tmp_path / "run", tmp_path / "log", tmp_path / "there"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 20)
    assert nursery.run(*command, "--upload", f"file://{there}", log=log) == 0, log.read_text()
    newest = sorted(there.rglob("manifest.json"))[-1].parent
    assert newest.name == "step-00000020"
    assert checkpoint.faults(newest) == []


def test_packed_shards_give_a_note(nursery, recipe, docs, vocab, tmp_path):
    data, log = tmp_path / "packed", tmp_path / "log"
    prepare(Prepare((docs,), str(vocab), data, length=32, layout="packed", workers="1"))
    command = ("pretrain", recipe, "--data", data, "--out", tmp_path / "run", "--run.steps", 1)
    assert nursery.run(*command, log=log) == 0, log.read_text()
    assert "note: layout packed: attention crosses the documents" in log.read_text()


def test_general_text_is_mixed_in_and_its_loss_is_reported(nursery, recipe, shards, tmp_path):
    command = ("pretrain", recipe, "--data", shards, "--run.steps", 20, "--run.eval-every", 10)
    command += ("--general", shards, "--general-share", 0.25, "--out")
    log = tmp_path / "log"
    assert nursery.run(*command, tmp_path / "unbroken", log=log) == 0, log.read_text()
    assert "mixed with 25% general text" in log.read_text()
    assert "general text: " in log.read_text()
    assert "The masked-LM head was new at the start" in log.read_text()
    records = read_records(tmp_path / "unbroken" / "metrics.jsonl")
    evaluated = [r for r in records if r["split"] == "validation"]
    assert [r["step"] for r in evaluated] == [0, 10, 20]
    # Here the general shards are those of the run.
    assert all(r["general_generator_loss"] == r["generator_loss"] for r in evaluated)
    pid = nursery.start(*command, tmp_path / "run", log=log)
    wait_for(tmp_path / "run" / "metrics.jsonl")
    os.kill(pid, signal.SIGKILL)
    nursery.wait()
    assert nursery.run("pretrain", "--resume", tmp_path / "run", log=log) == 0, log.read_text()
    assert_equal(tmp_path / "run", tmp_path / "unbroken")
    other = (*command[:-2], 0.5, "--out", tmp_path / "run")
    assert nursery.run(*other, log=log) == 2
    assert nursery.run(*command[:6], "--general-share", 0.5, "--out", tmp_path / "x", log=log) == 2
    assert "add --general SHARDS" in log.read_text()
