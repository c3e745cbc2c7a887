"""A run whose speed changes gets another number of steps, on a clock that only steps advance."""

import shutil
from pathlib import Path

import pytest

from electrify.recipes import schema
from electrify.training import checkpoint
from electrify.training.extension import Extension, extended_schedule, planned_ends
from electrify.training.folder import RunFolder
from electrify.training.journal import seconds_trained
from electrify.training.options import Pretrain
from electrify.training.outputs import steps_kept
from electrify.training.pace import Pace
from electrify.training.pretrain import pretrain, schedule_of
from electrify.training.resume import resumed
from electrify.training.training import Stepper

BUDGET = 1200.0
MIDDLE = 28


class FakeClock:
    """A clock that only steps advance, at one speed and then another."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = (20.0, 20.0)

    def trained(self, step: int) -> None:
        """Advance by the time of a step."""
        self.now += self.seconds[step >= MIDDLE]


@pytest.fixture
def clock(monkeypatch) -> FakeClock:
    clock, accumulate = FakeClock(), Stepper.accumulate

    def timed(self: Stepper, step, batch, *requests):
        clock.trained(step)
        return accumulate(self, step, batch, *requests)

    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    monkeypatch.setattr(Stepper, "accumulate", timed)
    return clock


def settings(recipe: Path, shards: Path, out: Path) -> Pretrain:
    small = schema.override(schema.load(str(recipe)), {"keep_last": 100, "keep_percent": [50]})
    return Pretrain(recipe=small, data=shards, out=out, budget="20m", workers=0, device="cpu")


def contents(run: Path) -> dict[str, bytes]:
    """Return the checkpoints and the metrics of a run."""
    files = [path for path in (run / "checkpoints").rglob("*") if path.is_file()]
    return {str(path.relative_to(run)): path.read_bytes() for path in [*files, run / "metrics.jsonl"]}  # fmt: skip


def test_a_run_that_slows_down_ends_in_its_budget_and_resumes_to_the_same_bytes(
    recipe, shards, tmp_path, clock, capsys
):
    run, clock.seconds = tmp_path / "run", (20.0, 40.0)
    assert pretrain(settings(recipe, shards, run)) == 0
    folder = RunFolder(run)
    [replan] = folder.extensions
    assert MIDDLE < replan.start < replan.end < folder.recipe.run.steps
    assert clock.now == pytest.approx(BUDGET, rel=0.1)
    assert seconds_trained(run) == pytest.approx(BUDGET, rel=0.1)
    printed = capsys.readouterr().out
    assert f"s: the run ends after {replan.end} steps instead of" in printed
    assert f"done: {replan.end} steps" in printed
    assert "time budget 20 min; trained for" in printed
    steps = [stored.step for stored in reversed(checkpoint.stored(folder.checkpoints))]
    assert {replan.start, replan.end} <= set(steps)

    for step in (replan.start, steps[steps.index(replan.start) - 1]):
        killed = tmp_path / f"killed-{step}"
        shutil.copytree(run, killed)
        for stored in checkpoint.stored(killed / "checkpoints"):
            if stored.step > step:
                shutil.rmtree(stored.folder)
        clock.seconds = (40.0, 40.0)
        assert pretrain(resumed(killed)) == 0
        assert RunFolder(killed).extensions == [replan]
        assert contents(killed) == contents(run)


@pytest.mark.slow
@pytest.mark.parametrize("later", [20.0, 28.0])
def test_a_run_whose_speed_stays_or_changes_little_keeps_its_steps(
    later, recipe, shards, tmp_path, clock, capsys
):
    run, clock.seconds = tmp_path / "run", (20.0, later)
    assert pretrain(settings(recipe, shards, run)) == 0
    folder = RunFolder(run)
    assert folder.extensions == []
    assert f"done: {folder.recipe.run.steps} steps" in capsys.readouterr().out
    plain = Pretrain(recipe=folder.recipe, data=shards, out=tmp_path / "plain", workers=0)
    assert pretrain(plain) == 0
    metrics = [(path / "metrics.jsonl").read_bytes() for path in (run, plain.out)]
    assert metrics[0] == metrics[1], "those of as many steps without a budget"


@pytest.fixture
def pace(monkeypatch) -> Pace:
    """Of a budget of 1,000 s and 1,000 steps of a second."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    found = Pace(1000.0, 0.0, 1.0, 1000)
    found.now = now
    return found


def log(pace: Pace, seconds: float, steps: float, **other: float) -> None:
    pace.now[0] += seconds
    timings = {"seconds": seconds, "steps_per_second": steps / seconds, **other}
    pace.on_log("train", 0, {}, timings)


def test_only_a_change_that_lasts_counts(pace):
    log(pace, 100, 100)
    log(pace, 40, 10)
    assert pace.new_end(110) is None, "one slow stretch"
    log(pace, 40, 40)
    assert pace.new_end(150) is None
    log(pace, 40, 10)
    log(pace, 40, 20)
    assert pace.new_end(180) == 180 + (1000 - 260) // 2
    log(pace, 40, 80)
    log(pace, 40, 80)
    assert pace.new_end(340) == 340 + (1000 - 340) * 2


def test_evaluation_and_saving_are_not_slow_steps(pace):
    log(pace, 100, 100)
    for _ in range(3):
        log(pace, 100, 40, evaluation_seconds=50.0, saving_seconds=10.0)
    assert pace.new_end(220) is None
    for _ in range(2):
        log(pace, 50, 20)
    assert pace.new_end(260) == 260 + int(500 * 0.9 / 2.5), "a tenth is for evaluation"


def test_the_end_of_a_budget_is_left_as_it_is(pace):
    log(pace, 930, 950)
    log(pace, 30, 10)
    log(pace, 30, 10)
    assert pace.new_end(970) is None, "less than a twentieth is left"


def test_the_rest_of_the_schedule_is_stretched():
    changes = {"steps": 100, "warmup": 10, "optimizer.lr": 1.0, "keep_percent": [20, 80]}
    recipe = schema.override(schema.load("tiny"), changes)
    planned = schedule_of(recipe)
    replans = [Extension(40, 70, "replanned", ""), Extension(55, 100, "replanned", "")]
    rates = extended_schedule(planned, recipe, replans)
    assert [rates(k) for k in range(41)] == [planned(k) for k in range(41)]
    assert [rates(k) for k in (45, 50)] == pytest.approx([planned(50), planned(60)])
    assert rates(55) == pytest.approx(planned(70))
    assert rates(100) == pytest.approx(planned(100))
    assert planned_ends(recipe, replans) == [100]
    longer = [*replans, Extension(100, 150, "rewarm", "")]
    assert planned_ends(recipe, longer) == [100, 150]
    assert steps_kept(recipe, replans[:1]) == {20, 56, 70}
    assert steps_kept(recipe, longer) == {20, 80, 100, 110, 140, 150}
