"""Settings that change during training are functions of the step."""

from dataclasses import replace

import pytest

from electrify.errors import UserError
from electrify.recipes.schedules import (
    Schedules,
    check_schedules,
    jumps,
    reaches_zero,
    tokens_per_step,
    value_at,
)
from electrify.recipes.schema import check, load
from electrify.training.training import Progress

RAMP = ((0.0, 0.3), (0.5, 0.1), (1.0, 0.1))


@pytest.mark.parametrize(
    ("points", "done", "value"),
    [
        (RAMP, 0.0, 0.3),
        (RAMP, 0.25, 0.2),
        (RAMP, 0.5, 0.1),
        (RAMP, 1.0, 0.1),
        (RAMP, 3.0, 0.1),  # beyond the planned steps of an extended run
        (((0.2, 7.0),), 0.0, 7.0),
        (((0.0, 1.0), (0.5, 1.0), (0.5, 0.0)), 0.499, 1.0),
        (((0.0, 1.0), (0.5, 1.0), (0.5, 0.0)), 0.5, 0.0),
    ],
)
def test_values_are_linear_between_points_and_constant_outside(points, done, value):
    assert value_at(points, done) == pytest.approx(value)


def test_a_weight_that_reaches_zero_is_named():
    schedules = Schedules(generator_weight=((0.0, 1.0), (0.5, 0.0)), temperature=((0.0, 2.0),))
    assert reaches_zero(schedules) == ["generator_weight"]


@pytest.mark.parametrize(
    ("schedules", "message"),
    [
        (Schedules(mask_rate=((0.5, 0.3), (0.0, 0.1))), "must rise from 0 to 1"),
        (Schedules(mask_rate=((0.0, 0.3), (30.0, 0.1))), "must rise from 0 to 1"),
        (Schedules(mask_rate=((0.0, 1.3),)), "schedules.mask_rate: values must be above 0"),
        (Schedules(temperature=((0.0, float("nan")),)), "schedules.temperature: values"),
        (Schedules(length=((0.0, 16.5),)), "schedules.length: values must be integers between 8"),
        (Schedules(batch_size=((0.0, 0.0),)), "schedules.batch_size: values must be integers"),
    ],
)
def test_bad_points_are_refused(schedules, message):
    with pytest.raises(UserError, match=message):
        check_schedules(schedules)
    with pytest.raises(UserError, match=message):
        check(replace(load("tiny"), schedules=schedules))


def test_a_time_without_any_loss_is_refused():
    frozen = Schedules(
        generator_weight=((0.0, 1.0), (0.3, 0.0)), discriminator_weight=((0.3, 0.0), (0.6, 50.0))
    )
    with pytest.raises(UserError, match="no network would be trained") as error:
        check(replace(load("tiny"), schedules=frozen))
    assert error.value.got == "after 30% of the steps"


def test_jumps_are_where_a_loss_changes_in_one_step():
    weights = ((0.0, 1.0), (0.5, 1.0), (0.5, 0.0))
    assert jumps(Schedules(generator_weight=weights, mask_rate=weights)) == [0.5]
    progress = Progress(lambda step: step / 10)
    assert [step for step in range(10) if progress.passes([0.5], step)] == [5]


def test_rows_longer_than_the_shards_or_packed_are_refused():
    tiny = load("tiny")
    longer = Schedules(length=((0.0, float(2 * tiny.run.length)),))
    with pytest.raises(UserError, match=r"at most run\.length"):
        check(replace(tiny, schedules=longer))
    shorter = Schedules(length=((0.0, 16.0),))
    with pytest.raises(UserError, match="packed examples cannot be cut"):
        check(replace(tiny, schedules=shorter, run=replace(tiny.run, packing=True)))


def test_a_shape_that_changes_is_counted_in_tokens():
    recipe = load("tiny")
    full = recipe.run.batch_size * recipe.run.length
    assert tokens_per_step(recipe) == full
    half = float(recipe.run.length // 2)
    schedules = Schedules(length=((0.0, half), (0.25, half), (0.25, 2 * half)))
    assert tokens_per_step(replace(recipe, schedules=schedules)) == pytest.approx(0.875 * full)
