"""Settings that change during training, as pure functions of the step: resuming needs no state."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from math import gcd
from typing import Any, NamedTuple

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
    length: Points = ()
    """Maximum tokens per row during training, at most run.length; longer examples are cut to random
    windows."""
    batch_size: Points = ()
    """run.batch_size during training."""


SETTINGS = {
    "mask_rate": "objective.mask_rate",
    "temperature": "objective.temperature",
    "generator_weight": "objective.generator_weight",
    "discriminator_weight": "objective.discriminator_weight",
    "length": "run.length",
    "batch_size": "run.batch_size",
}
"""The constant setting that each schedule replaces during training."""
SHAPE_SCHEDULES = ("length", "batch_size")
MIDPOINTS = 1_000


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


def count_at(points: Points, done: float) -> int:
    """Return a value as a multiple of what all given values are multiples of.

    So there are few shapes, and ranks that divide the given batch sizes divide those in between.

    >>> [count_at(((0, 128), (1, 512)), done / 4) for done in range(5)]
    [128, 256, 256, 384, 512]
    """
    unit = gcd(*(int(value) for _, value in points))
    return unit * round(value_at(points, done) / unit)


class BatchShape(NamedTuple):
    """The number of examples in a batch, and their maximum length."""

    batch_size: int
    length: int


def shape_at(recipe: Any, done: float) -> BatchShape:
    """Return the shape of a training batch after a fraction of the steps of a recipe."""
    points = (getattr(recipe.schedules, name) for name in BatchShape._fields)
    constants = (getattr(recipe.run, name) for name in BatchShape._fields)
    return BatchShape(
        *(count_at(p, done) if p else c for p, c in zip(points, constants, strict=True))
    )


def tokens_per_step(recipe: Any, start: float = 0.0, stop: float = 1.0) -> float:
    """Return the tokens of full batches, on average between two fractions of the steps."""
    if not has_shapes(recipe.schedules):
        return float(recipe.run.batch_size * recipe.run.length)
    width = (stop - start) / MIDPOINTS
    shapes = (shape_at(recipe, start + (n + 0.5) * width) for n in range(MIDPOINTS))
    return sum(shape.batch_size * shape.length for shape in shapes) / MIDPOINTS


def has_shapes(schedules: Schedules) -> bool:
    """Return whether the shape of the batches changes."""
    return any(getattr(schedules, name) for name in SHAPE_SCHEDULES)


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
        allowed, whole = RANGES[SETTINGS[name]], name in SHAPE_SCHEDULES
        for _, value in points:
            if value not in allowed or (whole and value != int(value)):
                raise UserError(
                    f"schedules.{name}: values must be {'integers ' * whole}{allowed}",
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


def check_shapes(recipe: Any) -> None:
    """Raise an error if lengths do not fit the examples, or examples are packed."""
    points, run = recipe.schedules.length, recipe.run
    longest = max((value for _, value in points), default=0)
    if longest > run.length:
        raise UserError(
            "schedules.length: values must be at most run.length, the length of the shards",
            got=f"{longest:g} tokens, run.length = {run.length}",
            fix=f"use at most {run.length}, or shards prepared with --length {longest:g}",
        )
    if points and run.packing:
        raise UserError(
            "rows of packed examples cannot be cut to another length",
            got="schedules.length and run.packing = true",
            fix="use --run.no-packing, or leave out schedules.length",
        )


def reaches_zero(schedules: Schedules) -> list[str]:
    """Return the settings that are 0 at some time: a network then gets no gradient."""
    return [name for name, points in _used(schedules) if any(value == 0 for _, value in points)]


def _used(schedules: Schedules) -> Iterator[tuple[str, Points]]:
    values = ((field.name, getattr(schedules, field.name)) for field in fields(schedules))
    return ((name, points) for name, points in values if points)
