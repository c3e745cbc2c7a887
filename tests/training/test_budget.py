"""A time budget becomes a number of steps, tested on a clock that only steps advance."""

from dataclasses import replace
from math import nan
from types import SimpleNamespace

import pytest
import torch

from electrify.errors import UserError
from electrify.jobs import available_cores
from electrify.recipes.schema import Recipe, load
from electrify.training import budget
from electrify.training.budget import OVERHEAD, cause_of_few_steps, fit_to_budget, steps_that_fit
from electrify.training.precision import Choice, chosen
from electrify.training.training import Stepper, Validation
from electrify.training.update import Gradient

FREE = Choice("float32", "float32", "")
EMULATED = chosen("bf16", {"float32": 70e9, "bf16": 1.6e9})


class Timed(Stepper):
    """A stepper whose steps take a given number of seconds, the first two longer."""

    def accumulate(self, step: int, batch: str) -> Gradient:
        assert batch == f"batch {step}"
        self.model.now += self.model.step * (5 if step < 2 else 1)
        self.model.taken.append(step)
        return Gradient(1.0, nan if step == 3 else 1.0, {})

    def apply(self, lr: float, move: bool) -> None:
        assert lr == 0
        assert move is (self.model.taken[-1] != 3), "the weights would become NaN"


@pytest.fixture
def made_of(monkeypatch):
    """Return a stepper whose steps and evaluations take given times, and a record of its calls."""

    def make(step: float, evaluation: float = 0.0, asked_to_stop_at: int = -1, choice=FREE, sets=1):
        seen = SimpleNamespace(now=0.0, step=step, taken=[], loaded=[], warned=[])

        def validate(*what, most):
            seen.now += evaluation

        monkeypatch.setattr(budget, "validate", validate)
        monkeypatch.setattr(budget.time, "monotonic", lambda: seen.now)
        engine = SimpleNamespace(
            broadcast=lambda value: value,
            any_reason=lambda why: why,
            scale_state=lambda: {"scale": 1},
            load_scale=seen.loaded.append,
            share=range,
            choice=choice,
            device=torch.device("cpu"),
        )
        seen.stepper = Timed(
            model=seen,
            wrapped=None,
            optimizer=SimpleNamespace(state={"moments": 1}),
            engine=engine,
            task=SimpleNamespace(batches=Numbered()),
            clip=1.0,
            seed=0,
        )
        validations = [Validation(SimpleNamespace(batch_size=8), 10)] * sets if evaluation else []
        stop = SimpleNamespace(why=lambda: "SIGINT" if len(seen.taken) == asked_to_stop_at else "")
        seen.fit = lambda recipe, seconds: fit_to_budget(
            recipe, seen.stepper, validations, seconds, stop, seen.warned.append
        )
        return seen

    return make


class Numbered:
    def __getitem__(self, number: int) -> str:
        return f"batch {number}"


def recipe(steps: int = 1000, warmup: int = 100, eval_every: int = 50) -> Recipe:
    tiny = load("tiny")
    run = replace(tiny.run, steps=steps, log_every=10, eval_every=eval_every, save_every=500)
    return replace(tiny, run=run, optimizer=replace(tiny.optimizer, warmup=warmup))


def test_the_steps_that_fit_after_half_a_minute_of_measuring(made_of):
    run = made_of(step=0.5)
    found = run.fit(recipe(), 1000)
    remaining = 1000 - 2 * 2.5 - 30
    assert len(run.taken) == 2 + 60
    assert found.run.steps == int(remaining / (0.5 * OVERHEAD)) == 1855
    assert found.optimizer.warmup == 186, "in proportion"
    assert (found.run.log_every, found.run.save_every) == (10, 463)
    assert found.run.eval_every == 232, "eight times"
    assert run.stepper.optimizer.state == {}
    assert run.loaded == [{"scale": 1}], "float16 starts with the scale it would have had"


def test_a_short_budget_is_not_spent_on_measuring(made_of):
    run = made_of(step=0.01)
    run.fit(recipe(), 10)
    assert len(run.taken) == 2 + 50
    run = made_of(step=31)
    assert run.fit(recipe(), 900).run.steps == 17
    assert len(run.taken) == 2 + 1


def test_evaluation_takes_at_most_a_tenth_of_the_budget(made_of):
    found = made_of(step=0.5, evaluation=2).fit(recipe(), 1000)
    remaining = 1000 - 2 * 2.5 - 30 - 2 * 2
    assert found.run.steps == int((remaining - 4 * 20) / (0.5 * OVERHEAD))
    assert found.run.eval_every == -(-found.run.steps // 4)


def test_general_text_is_evaluated_as_often_and_once_before_the_first_step(made_of):
    found = made_of(step=0.5, evaluation=2, sets=2).fit(recipe(), 1000)
    remaining = 1000 - 2 * 2.5 - 30 - 2 * 4
    evaluations = int(remaining * 0.1 / 40)
    assert found.run.steps == int((remaining - (evaluations + 1) * 40) / (0.5 * OVERHEAD))


def test_more_steps_have_the_last_shape_of_the_schedules(made_of):
    stop, given = SimpleNamespace(why=lambda: ""), recipe(eval_every=0)
    points = ((0.0, given.run.batch_size), (1.0, 4.0 * given.run.batch_size))
    growing = replace(given, schedules=replace(given.schedules, batch_size=points))
    found = steps_that_fit(growing, made_of(step=0.5).stepper, [], stop, 1000)
    assert found == int((1000 - 2 * 2.5 - 30) / (4 * 0.5 * OVERHEAD))


def test_more_steps_are_evaluated_at_the_interval_of_the_run(made_of):
    run = made_of(step=0.5, evaluation=2)
    validation = Validation(SimpleNamespace(batch_size=8), 10)
    stop = SimpleNamespace(why=lambda: "")
    found = steps_that_fit(recipe(eval_every=50), run.stepper, [validation], stop, 1000)
    remaining = 1000 - 2 * 2.5 - 30 - 2 * 2
    assert found == int((remaining - 20) / (0.5 * OVERHEAD + 20 / 50))
    with pytest.raises(UserError, match="--more is too short"):
        steps_that_fit(recipe(), made_of(step=10).stepper, [], stop, 60)


def test_without_evaluation_all_time_is_for_steps(made_of):
    found = made_of(step=0.5, evaluation=2).fit(recipe(eval_every=0), 1000)
    assert found.run.steps == 1855
    assert found.run.eval_every == 0


def test_a_budget_too_short_for_a_step_is_refused_with_what_was_measured(made_of):
    with pytest.raises(UserError) as refused:
        made_of(step=10).fit(recipe(), 115)
    assert "5 of 115 s remained" in str(refused.value)
    assert "10.4 s per step" in str(refused.value)


def test_a_stop_while_measuring_starts_no_run(made_of):
    run = made_of(step=0.5, asked_to_stop_at=7)
    assert run.fit(recipe(), 1000) is None
    assert len(run.taken) == 7


def test_few_steps_are_a_warning_that_names_the_cause(made_of):
    run = made_of(step=0.5, choice=EMULATED)
    found = run.fit(recipe(), 240)
    assert found.run.steps < 500
    [warning] = run.warned
    assert warning.startswith(f"only {found.run.steps} steps fit into 4 min at 0.52 s per step")
    assert "bfloat16 matmuls run 44 times slower than float32" in warning
    run = made_of(step=0.1)
    run.fit(recipe(), 240)
    assert run.warned == []


def test_the_cause_is_the_precision_or_other_programs_or_the_size():
    cores = available_cores()
    assert "bfloat16" in cause_of_few_steps(EMULATED, cpu_share=0.2, load=2 * cores)
    others = cause_of_few_steps(FREE, cpu_share=0.45, load=2 * cores)
    assert "other programs use the CPU" in others
    assert "45%" in others
    assert "smaller recipe" in cause_of_few_steps(FREE, cpu_share=0.95, load=2 * cores)
    idle = cause_of_few_steps(FREE, cpu_share=0.1, load=0.5 * cores)
    assert "smaller recipe" in idle, "a small model does not use all threads"


def test_preparing_a_batch_and_verifying_its_shards_is_not_timed(made_of, monkeypatch):
    run = made_of(step=0.5)
    clock = budget.time.monotonic
    waited = 0.0

    class Slow(Numbered):
        def __getitem__(self, number: int) -> str:
            nonlocal waited
            waited += 3.0
            return super().__getitem__(number)

    monkeypatch.setattr(budget.time, "monotonic", lambda: clock() + waited)
    run.stepper.task.batches = Slow()
    found = run.fit(recipe(), 1000)
    assert found.run.steps == int((1000 - 2 * 2.5 - 30 - 62 * 3) / (0.5 * OVERHEAD))
