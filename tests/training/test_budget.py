"""A time becomes steps: on a clock that moves only when something is done."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from electrify.errors import UserError
from electrify.jobs import available_cores
from electrify.recipes.schema import Recipe, load
from electrify.training import budget
from electrify.training.budget import OVERHEAD, cause_of_few_steps, fit_to_budget
from electrify.training.precision import Choice, chosen

FREE = Choice("float32", "float32", "")
EMULATED = chosen("bf16", {"float32": 70e9, "bf16": 1.6e9})


@pytest.fixture
def made_of(monkeypatch):
    """A run whose steps and measurements take so many seconds."""

    def make(step: float, evaluation: float = 0.0, asked_to_stop_at: int = -1, choice=FREE):
        now, taken = 0.0, []

        def one_gradient(run, number, batch, may_move):
            nonlocal now
            assert batch == f"batch {number}"
            assert may_move(1.0, 1.0)
            assert not may_move(1.0, float("nan")), "weights would be lost"
            now += step * (5 if number < 2 else 1)
            taken.append(number)

        def evaluate(*what):
            nonlocal now
            now += evaluation

        monkeypatch.setattr(budget, "one_gradient", one_gradient)
        monkeypatch.setattr(budget, "evaluate", evaluate)
        monkeypatch.setattr(budget, "held_out_micro_batches", lambda run, task: iter([]))
        monkeypatch.setattr(budget.time, "monotonic", lambda: now)
        stop = lambda run: "SIGINT" if len(taken) == asked_to_stop_at else ""  # noqa: E731
        monkeypatch.setattr(budget, "reason_to_stop", stop)
        engine = SimpleNamespace(
            agreed=lambda value: value,
            scale_state=lambda: {"scale": 1},
            load_scale=lambda state: loaded.append(state),
            share=range,
            choice=choice,
            device=torch.device("cpu"),
        )
        loaded = []
        run = SimpleNamespace(
            model=None,
            engine=engine,
            task=SimpleNamespace(batches=Numbered()),
            optimizer=SimpleNamespace(state={"moments": 1}),
            held_out=SimpleNamespace(batch_size=8, metrics=None) if evaluation else None,
            held_out_batches=10,
            micro_batch=0,
            taken=taken,
            loaded=loaded,
            warned=(warned := []),
            warn=warned.append,
        )
        return run

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
    found = fit_to_budget(recipe(), run, 1000)
    left = 1000 - 2 * 2.5 - 30
    assert len(run.taken) == 2 + 60
    assert found.run.steps == int(left / (0.5 * OVERHEAD)) == 1855
    assert found.optimizer.warmup == 186, "in proportion"
    assert (found.run.log_every, found.run.save_every) == (10, 463)
    assert found.run.eval_every == 232, "eight times"
    assert run.optimizer.state == {}
    assert run.loaded == [{"scale": 1}], "float16 begins where it would have"


def test_a_short_budget_is_not_spent_on_measuring(made_of):
    run = made_of(step=0.01)
    fit_to_budget(recipe(), run, 10)
    assert len(run.taken) == 2 + 50
    run = made_of(step=31)
    assert fit_to_budget(recipe(), run, 900).run.steps == 17
    assert len(run.taken) == 2 + 1


def test_measuring_on_held_out_text_takes_a_tenth_at_most(made_of):
    found = fit_to_budget(recipe(), made_of(step=0.5, evaluation=2), 1000)
    left = 1000 - 2 * 2.5 - 30 - 2 * 2
    assert found.run.steps == int((left - 4 * 20) / (0.5 * OVERHEAD))
    assert found.run.eval_every == -(-found.run.steps // 4)


def test_what_is_not_measured_takes_no_time(made_of):
    found = fit_to_budget(recipe(eval_every=0), made_of(step=0.5, evaluation=2), 1000)
    assert found.run.steps == 1855
    assert found.run.eval_every == 0


def test_a_budget_for_nothing_is_refused_with_what_was_measured(made_of):
    with pytest.raises(UserError) as refused:
        fit_to_budget(recipe(), made_of(step=10), 115)
    assert "5 of 115 s were left" in str(refused.value)
    assert "a step takes 10.4 s" in str(refused.value)


def test_who_stops_the_measuring_has_begun_nothing(made_of):
    run = made_of(step=0.5, asked_to_stop_at=7)
    assert fit_to_budget(recipe(), run, 1000) is None
    assert len(run.taken) == 7


def test_few_steps_are_a_warning_that_names_the_cause(made_of):
    run = made_of(step=0.5, choice=EMULATED)
    found = fit_to_budget(recipe(), run, 240)
    assert found.run.steps < 500
    [warning] = run.warned
    assert warning.startswith(f"only {found.run.steps} steps fit into 4 min, a step takes 0.52 s")
    assert "bfloat16 matmuls run 44 times slower than float32" in warning
    run = made_of(step=0.1)
    fit_to_budget(recipe(), run, 240)
    assert run.warned == []


def test_the_cause_is_the_precision_or_others_or_the_size():
    cores = available_cores()
    assert "bfloat16" in cause_of_few_steps(EMULATED, cpu_share=0.2, load=2 * cores)
    others = cause_of_few_steps(FREE, cpu_share=0.45, load=2 * cores)
    assert "other programs use the CPU" in others
    assert "45%" in others
    assert "smaller recipe" in cause_of_few_steps(FREE, cpu_share=0.95, load=2 * cores)
    idle = cause_of_few_steps(FREE, cpu_share=0.1, load=0.5 * cores)
    assert "smaller recipe" in idle, "a small model does not use all threads"


def test_making_a_batch_and_verifying_its_shards_is_no_part_of_a_step(made_of, monkeypatch):
    run = made_of(step=0.5)
    clock = budget.time.monotonic
    waited = 0.0

    class Slow(Numbered):
        def __getitem__(self, number: int) -> str:
            nonlocal waited
            waited += 3.0
            return super().__getitem__(number)

    monkeypatch.setattr(budget.time, "monotonic", lambda: clock() + waited)
    run.task.batches = Slow()
    found = fit_to_budget(recipe(), run, 1000)
    assert found.run.steps == int((1000 - 2 * 2.5 - 30 - 62 * 3) / (0.5 * OVERHEAD))
