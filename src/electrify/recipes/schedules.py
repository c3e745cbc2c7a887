"""Settings that change during training, as pure functions of the step: resuming needs no state."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from electrify.config import shown
from electrify.errors import UserError
from electrify.recipes.ranges import RANGES

Points = tuple[tuple[float, float], ...]
"""Pairs of a fraction of training and the value there."""


@dataclass(frozen=True)
class Schedules:
    """Settings that change during training, as points: fraction of the steps, value.

    Between two points a value changes linearly; two points at one fraction are a jump. Validation
    always uses the constant settings of the other sections.
    """

    mask_rate: Points = ()
    """objective.mask_rate during training, such as [[0, 0.3], [1, 0.15]]."""
    temperature: Points = ()
    """objective.temperature during training."""
    generator_weight: Points = ()
    """objective.generator_weight during training; at 0 the generator is frozen."""
    discriminator_weight: Points = ()
    """objective.discriminator_weight during training; at 0 only the generator is trained."""


def value_at(points: Points, done: float) -> float:
    """Return the value after a fraction of the steps.

    >>> value_at(((0, 0.3), (0.5, 0.1)), 0.25), value_at(((0.5, 1), (0.5, 0)), 0.5)
    (0.2, 0.0)
    """
    after = bisect_right(points, done, key=lambda point: point[0])
    if after in (0, len(points)):
        return float(points[min(after, len(points) - 1)][1])
    (left, before), (right, value) = points[after - 1 : after + 1]
    return float(before + (value - before) * (done - left) / (right - left))


def check_schedules(schedules: Schedules) -> None:
    """Raise an error if points are not in order or their values not allowed."""
    for name, points in _used(schedules):
        fractions, flag = [done for done, _ in points], f"--schedules.{name.replace('_', '-')}"
        if fractions != sorted(fractions) or not all(0 <= done <= 1 for done in fractions):
            raise UserError(
                f"schedules.{name}: fractions of training must rise from 0 to 1",
                got=shown(fractions),
                fix=f"give pairs of a fraction and a value, such as {flag} 0 VALUE 1 VALUE",
            )
        allowed = RANGES[f"objective.{name}"]
        for _, value in points:
            if value not in allowed:
                raise UserError(
                    f"schedules.{name}: values must be {allowed}",
                    got=shown(value),
                    fix=f"use values in that range for {flag}",
                )


def largest(points: Points, constant: float) -> float:
    """Return the largest value during training and validation, which uses the constant one."""
    return max([constant, *(value for _, value in points)])


def jumps(schedules: Schedules) -> list[float]:
    """Return the fractions of training at which the weight of a loss changes at once."""
    weights = (schedules.generator_weight, schedules.discriminator_weight)
    return [b for points in weights for (a, _), (b, _) in pairwise(points) if a == b]


def check_trained(schedules: Schedules, constants: Any) -> None:
    """Raise an error if both losses have weight 0 at some time; `constants` is [objective]."""
    names = ("generator_weight", "discriminator_weight")
    weights = [getattr(schedules, n) or ((0.0, getattr(constants, n)),) for n in names]
    fractions = sorted({0.0, 1.0, *(done for points in weights for done, _ in points)})
    between = [(a + b) / 2 for a, b in pairwise(fractions)]
    for done in sorted([*fractions, *between]):
        if not any(value_at(points, done) for points in weights):
            raise UserError(
                "no network would be trained: both losses have weight 0",
                got=f"after {done:.0%} of the steps",
                fix="change objective.generator_weight, objective.discriminator_weight or their "
                "schedules",
            )


def reaches_zero(schedules: Schedules) -> list[str]:
    """Return the settings that are 0 at some time: a network then gets no gradient."""
    return [name for name, points in _used(schedules) if any(value == 0 for _, value in points)]


def _used(schedules: Schedules) -> Iterator[tuple[str, Points]]:
    values = ((field.name, getattr(schedules, field.name)) for field in fields(schedules))
    return ((name, points) for name, points in values if points)
