"""The plan of a batch is a function of the step, also when its size or length changes."""

from dataclasses import replace

import pytest

from electrify.recipes.schedules import Schedules
from electrify.recipes.schema import Recipe, Run
from electrify.training.batch_plan import BatchPlans
from electrify.training.training import Progress


def test_batches_of_changing_size_read_every_example_once():
    """The sizes before a batch tell where it begins, whatever order batches are made in."""
    recipe = replace(
        Recipe(), run=Run(steps=10, length=32), schedules=Schedules(batch_size=((0, 2), (1, 8)))
    )
    plans = BatchPlans(recipe, Progress(lambda step: step / 10))
    sizes = [plans(step).size for step in range(10)]
    assert sizes == [2, 2, 4, 4, 4, 4, 6, 6, 6, 8]
    other = BatchPlans(recipe, Progress(lambda step: step / 10))
    assert [other(step).first for step in reversed(range(10))][::-1] == [
        sum(sizes[:step]) for step in range(10)
    ]
    # A re-plan stretches what is left; what was done stays.
    other.progress.planned = lambda step: step / 10 if step < 5 else 0.5 + (step - 5) / 20
    assert [other(step).size for step in range(8)] == [2, 2, 4, 4, 4, 4, 6, 6]
    assert other(7).first == sum([2, 2, 4, 4, 4, 4, 6])


def test_the_cost_of_steps_follows_their_tokens():
    schedules = Schedules(length=((0, 16), (0.5, 16), (0.5, 32)), batch_size=((0, 8), (1, 8)))
    recipe = replace(Recipe(), run=Run(steps=10, length=32, batch_size=16), schedules=schedules)
    plans = BatchPlans(recipe, Progress(lambda step: step / 10))
    assert plans.costs(0, 5) == pytest.approx(5 * 8 * 16 / (16 * 32))
    assert plans.costs(5, 10) == pytest.approx(5 * 8 * 32 / (16 * 32))
    assert plans.costs(0, 10) == pytest.approx(plans.costs(0, 5) + plans.costs(5, 10))
    assert BatchPlans(recipe)(3) == (48, 16, 32, 0.15)  # while steps are measured
