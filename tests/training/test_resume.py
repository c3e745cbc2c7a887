"""`electrify pretrain --resume RUN`: from the folder alone, and beyond the planned steps."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

import electrify
from electrify.errors import DamagedError, UserError
from electrify.recipes.schema import Recipe, load, override
from electrify.training import checkpoint
from electrify.training.extension import Extension, extended_schedule, extensions_of
from electrify.training.folder import RunFolder, without_secrets
from electrify.training.options import Pretrain, ResumeRun, repeated_options
from electrify.training.pretrain import schedule_of
from electrify.training.resume import resumed

STEPS, LONGER, LONGEST = 20, 32, 37
FLAGS = ("--run.steps", STEPS, "--run.log-every", 7, "--run.eval-every", 15, "--run.save-every", 6)
# Dropout depends on the micro-batch, so equal bytes show that this option was repeated.
FLAGS += ("--run.keep-last", 20, "--micro-batch", 4)


@pytest.fixture(scope="module")
def finished(nursery, recipe, shards, tmp_path_factory) -> Path:
    """A finished run next to its shards."""
    home = tmp_path_factory.mktemp("finished")
    shutil.copytree(shards, home / "shards")
    command = ("pretrain", recipe, "--data", "shards", "--out", "run", *FLAGS)
    nursery.start(*command, log=home / "log", cwd=home)
    assert nursery.wait() == 0, (home / "log").read_text()
    assert "electrify pretrain --resume run --more 1h" in (home / "log").read_text()
    return home / "run"


@pytest.fixture(scope="module")
def extended(finished, nursery, tmp_path_factory) -> Path:
    """The finished run, extended without an interruption."""
    run = copied(finished, tmp_path_factory.mktemp("extended"))
    log = run.parent / "log"
    assert nursery.run("pretrain", "--resume", run, "--steps", LONGER, log=log) == 0
    assert f"extended the run: steps {STEPS} to {LONGER}" in log.read_text()
    assert "too few to make up for it" not in log.read_text()
    return run


def copied(run: Path, home: Path) -> Path:
    """Copy a run with its shards to another folder."""
    shutil.copytree(run.parent, home, dirs_exist_ok=True)
    return home / "run"


def interrupted(run: Path, home: Path, step: int) -> Path:
    """Copy a run with its shards as if it had been killed after the checkpoint of a step."""
    run = copied(run, home)
    for stored in checkpoint.stored(run / "checkpoints"):
        if stored.step > step:
            shutil.rmtree(stored.folder)
    return run


def contents(run: Path, until: int = LONGEST) -> dict[str, object]:
    """Return what a run has written up to a step: checkpoints and metrics."""
    steps = {c.step: c.folder for c in checkpoint.stored(run / "checkpoints") if c.step <= until}
    files = {
        f"{step}/{path.name}": path.read_bytes()
        for step, folder in steps.items()
        for path in folder.iterdir()
    }
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return {**files, "metrics": [line for line in lines if json.loads(line)["step"] <= until]}


def test_a_run_moved_with_its_shards_resumes_from_its_folder(finished, nursery, tmp_path):
    run = interrupted(finished, tmp_path / "elsewhere", step=12)
    (run / "recipe.toml").unlink()  # a kill before it was written
    log = tmp_path / "log"
    assert nursery.run("pretrain", "--resume", run, log=log) == 0, log.read_text()
    assert "resuming from step 12" in log.read_text()
    assert contents(run) == contents(finished)
    assert RunFolder(run).about["data_absolute"] == str(tmp_path / "elsewhere" / "shards")


def test_shards_that_are_not_found_must_be_named(finished, nursery, shards, tmp_path):
    run, log = tmp_path / "run", tmp_path / "log"
    shutil.copytree(finished, run)
    moved = tmp_path / "moved"
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "data_absolute": "/gone/shards"}))
    assert nursery.run("pretrain", "--resume", run, log=log) == 2
    message = log.read_text()
    for folder in ("shards", "/gone/shards", tmp_path / "shards"):
        assert f"{folder}: no shards" in message
    assert "--data DIR" in message
    other = shutil.copytree(shards, moved)
    assert nursery.run("pretrain", "--resume", run, "--data", moved, log=log) == 0
    manifest = other / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert nursery.run("pretrain", "--resume", run, f"--data={other}", log=log) == 2
    assert "data.manifest_sha256" in log.read_text()


def test_a_run_made_before_paths_and_options_were_stored_resumes(finished, nursery, tmp_path):
    run = interrupted(finished, tmp_path / "home", step=18)
    about = json.loads((run / "run.json").read_text())
    for name in ("data_absolute", "data_from_run", "options"):
        del about[name]
    (run / "run.json").write_text(json.dumps(about))
    log = tmp_path / "log"
    assert nursery.run("pretrain", "--resume", run, "--micro-batch", 4, log=log) == 0
    assert contents(run) == contents(finished)


def test_options_of_the_run_are_defaults_that_flags_replace(finished):
    settings = resumed(finished)
    assert (settings.micro_batch, settings.out, settings.more) == (4, finished, "")
    assert settings.data == finished.parent / "shards"
    assert settings.recipe.run.keep_last == 20


def test_a_url_with_a_password_is_not_stored(tmp_path):
    settings = Pretrain(
        recipe=load("tiny"), data=tmp_path, out=tmp_path, upload="sftp://a:b@h/runs"
    )
    assert without_secrets(repeated_options(settings))["upload"] == ""
    plain = repeated_options(replace(settings, upload="s3://bucket/runs"))
    assert without_secrets(plain)["upload"] == "s3://bucket/runs"


def test_an_extension_leaves_the_first_part_as_it_was(finished, extended):
    assert contents(extended, until=STEPS) == contents(finished)
    lines = [json.loads(line) for line in contents(extended)["metrics"]]
    assert [r["step"] for r in lines if r["split"] == "train"] == [7, 14, 20, 21, 28, 32]
    assert [r["step"] for r in lines if r["split"] == "validation"] == [15, 20, 30, 32]
    kept = [c.step for c in checkpoint.stored(extended / "checkpoints") if (c.folder / "keep").exists()]  # fmt: skip
    assert kept == [LONGER, STEPS]


def test_a_run_extended_before_its_end_ends_the_same(finished, extended, nursery, tmp_path):
    run, log = interrupted(finished, tmp_path / "home", step=12), tmp_path / "log"
    assert nursery.run("pretrain", "--resume", run, "--steps", LONGER, log=log) == 0
    assert contents(run) == contents(extended)


def test_the_command_that_started_it_also_resumes_an_extension(extended, nursery, recipe, tmp_path):
    run, log = interrupted(extended, tmp_path / "home", 24), tmp_path / "log"
    shards = run.parent / "shards"
    command = ("pretrain", recipe, "--data", shards, "--out", run, *FLAGS)
    assert nursery.run(*command, log=log) == 0, log.read_text()
    assert contents(run) == contents(extended)


@pytest.mark.parametrize("trials", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_an_extension_killed_at_any_moment_ends_the_same(
    trials, finished, extended, nursery, tmp_path
):
    for trial in range(trials):
        run, log = copied(finished, tmp_path / f"{trial}"), tmp_path / "log"
        code, after = -9, 1.0 + 0.07 * trial
        while code == -9:
            command = ("pretrain", "--resume", run, "--steps", LONGER)
            code, after = (
                nursery.run_and_kill(after, signal.SIGKILL, *command, log=log),
                after + 0.5,
            )
        assert code == 0, log.read_text()
        assert contents(run) == contents(extended)


@pytest.mark.slow
def test_a_run_is_extended_twice_and_every_command_says_so(extended, nursery, shards, tmp_path):
    run, log = copied(extended, tmp_path / "home"), tmp_path / "log"
    flags = ("--steps", LONGEST, "--extend-schedule", "constant")
    assert nursery.run("pretrain", "--resume", run, *flags, log=log) == 0, log.read_text()
    assert contents(run, until=LONGER) == contents(extended)
    [last] = [r for r in map(json.loads, contents(run)["metrics"]) if r["step"] == LONGEST and r["split"] == "train"]  # fmt: skip
    assert last["learning_rate"] == pytest.approx(1e-4), "a tenth of the peak"
    assert nursery.run("show", run, "--count", 1, log=log) == 0
    assert f"step {LONGEST} of {LONGEST}" in log.read_text()
    assert nursery.run("report", run, "--out", tmp_path / "page.html", log=log) == 0
    page = (tmp_path / "page.html").read_text()
    assert f"of {LONGEST} (100 %)" in page
    assert f"steps {STEPS} to {LONGER} (--steps {LONGER}, rewarm)" in page
    for step, total in ((LONGEST, LONGEST), (24, LONGER), (STEPS, STEPS)):
        model = tmp_path / f"model-{step}"
        assert nursery.run("export", run, "--out", model, "--step", step, log=log) == 0
        card = (model / "encoder" / "README.md").read_text()
        assert f"Trained for {step} of {total} steps" in card
        assert card.count("The recipe's steps were extended") == (total > STEPS) + (total > LONGER)


def test_a_constant_rate_extended_is_the_longer_run(nursery, recipe, shards, tmp_path):
    """The order of the examples, the masks and dropout just continue."""
    flags = ("--optimizer.schedule", "constant", "--optimizer.warmup", 4)
    flags += ("--run.log-every", 4, "--run.eval-every", 0)
    command, log = ("pretrain", recipe, "--data", shards, *flags), tmp_path / "log"
    short, long = tmp_path / "short", tmp_path / "long"
    assert nursery.run(*command, "--run.steps", 8, "--out", short, log=log) == 0
    more = ("--steps", 16, "--extend-schedule", "constant")
    assert nursery.run("pretrain", "--resume", short, *more, log=log) == 0
    assert nursery.run(*command, "--run.steps", 16, "--out", long, log=log) == 0
    assert (short / "metrics.jsonl").read_bytes() == (long / "metrics.jsonl").read_bytes()
    weights = [run / "checkpoints/step-00000016/model.safetensors" for run in (short, long)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_more_time_is_measured_once_and_the_same_command_resumes(finished, nursery, tmp_path):
    run, log = copied(finished, tmp_path / "home"), tmp_path / "log"
    command = ("pretrain", "--resume", run, "--more", "1s")
    assert nursery.run(*command, log=log) == 0, log.read_text()
    [extension] = RunFolder(run).extensions
    assert (extension.start, extension.asked) == (STEPS, "--more 1s")
    assert checkpoint.stored(run / "checkpoints")[0].step == extension.end
    after = contents(run, until=extension.end)
    shutil.rmtree(checkpoint.stored(run / "checkpoints")[0].folder)
    assert nursery.run(*command, log=log) == 0
    assert RunFolder(run).extensions == [extension], "it was interrupted, so nothing is added"
    assert contents(run, until=extension.end) == after
    assert nursery.run(*command, log=log) == 0
    assert len(RunFolder(run).extensions) == 2, "it was finished, so 1 s is added"


def test_warming_up_again_for_few_steps_is_noted(finished, nursery, tmp_path):
    run, log = copied(finished, tmp_path / "home"), tmp_path / "log"
    assert nursery.run("pretrain", "--resume", run, "--steps", STEPS + 1, log=log) == 0
    assert "1 steps after 20 may be too few" in log.read_text()


def test_checkpoints_of_another_extension_are_skipped(finished, extended, nursery, tmp_path):
    run, log = copied(finished, tmp_path / "home"), tmp_path / "log"
    name = f"step-{LONGER:08d}"
    shutil.copytree(extended / "checkpoints" / name, run / "checkpoints" / name)
    flags = ("--steps", LONGER, "--extend-schedule", "constant")
    assert nursery.run("pretrain", "--resume", run, *flags, log=log) == 0, log.read_text()
    assert "the checkpoint of another run" in log.read_text()
    assert contents(run, until=STEPS) == contents(finished)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--steps", 10), "--steps is less than the steps of the run"),
        (("--steps", 0), "--steps must be between 1 and"),
        (("--steps", 90, "--more", "1h"), "use one of them"),
        (("--more", "soon"), "--more is not a valid duration"),
        (("--more", "1ms"), "--more"),
        (("--run.seed", 5), "run.seed"),
        (("--out", "other"), "--out"),
    ],
)
def test_a_refused_extension_changes_nothing(flags, message, finished, nursery, tmp_path):
    about, log = (finished / "run.json").read_bytes(), tmp_path / "log"
    nursery.start("pretrain", "--resume", finished, *flags, log=log, cwd=tmp_path)
    assert nursery.wait() == 2
    assert message in log.read_text()
    assert (finished / "run.json").read_bytes() == about
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume",), "--resume needs a value"),
        (("--resume", "--more", "1h"), "fix: --resume RUN"),
        (("--resume", "nowhere"), "nowhere is not a run"),
    ],
)
def test_what_is_resumed_must_be_a_run(arguments, message, nursery, tmp_path):
    assert nursery.run("pretrain", *arguments, log=tmp_path / "log") == 2
    assert message in (tmp_path / "log").read_text()


def test_from_python(finished, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(
        "electrify.training.pretrain.pretrain", lambda settings, fn: called.append(settings) or 0
    )
    done = electrify.pretrain(resume=finished, steps=90, extend_schedule="constant", workers=0)
    assert (done.step, done.finished, done.run) == (STEPS, True, finished)
    [settings] = called
    assert isinstance(settings, ResumeRun)
    assert (settings.steps, settings.extend_schedule) == (90, "constant")
    assert (settings.micro_batch, settings.workers) == (4, 0)
    for arguments in ({}, {"resume": finished, "out": tmp_path}, {"recipe": "tiny"}):
        with pytest.raises(UserError, match="pretrain needs a recipe, data and out, or resume"):
            electrify.pretrain(**arguments)


RECIPE = override(Recipe(), {"steps": 100, "warmup": 10, "optimizer.lr": 1.0})
ADDED = [Extension(100, 150, "rewarm", ""), Extension(150, 170, "constant", "")]


@pytest.mark.parametrize("kind", ["electra", "linear", "cosine", "wsd", "constant"])
def test_the_rates_of_an_extension_repeat_the_schedule_and_leave_the_others(kind):
    recipe = override(RECIPE, {"optimizer.schedule": kind})
    planned = schedule_of(recipe)
    rates = extended_schedule(planned, recipe, ADDED)
    assert [rates(step) for step in range(100)] == [planned(step) for step in range(100)]
    # 50 steps with a warm-up of 5, in proportion; every second step of the plan.
    assert [rates(100 + step) for step in range(50)] == pytest.approx(
        [planned(2 * step) for step in range(50)], abs=0.02
    )
    assert rates(100) == 0
    assert rates(105) == pytest.approx(0.9 if kind == "electra" else 1.0)
    assert {rates(step) for step in range(150, 170)} == {max(0.1, rates(149))}
    assert [extended_schedule(planned, recipe, ADDED[:1])(k) for k in range(150)] == [rates(k) for k in range(150)]  # fmt: skip


@pytest.mark.parametrize(
    "extensions",
    [
        5,
        ["x"],
        [{"start": 5}],
        [{"start": 9, "end": 9, "schedule": "rewarm", "asked": ""}],
        [{"start": 5, "end": 9, "schedule": "other", "asked": ""}],
        [
            {"start": 5, "end": 9, "schedule": "rewarm", "asked": ""},
            {"start": 8, "end": 12, "schedule": "rewarm", "asked": ""},
        ],
    ],
)
def test_damaged_extensions_are_named(extensions, tmp_path):
    with pytest.raises(DamagedError, match="extensions"):
        extensions_of({"extensions": extensions}, tmp_path / "run.json")
