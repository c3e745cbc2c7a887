"""Turn a time budget into a number of steps, measured on the first batches before training starts.

The number is recorded when the run starts, so that the run is the same however often it is resumed.
If the speed changes by more than a third later, a new number is planned and recorded (pace.py).
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import torch

from electrify.errors import UserError
from electrify.jobs import available_cores
from electrify.progress import duration
from electrify.recipes.schedules import tokens_per_step
from electrify.recipes.schema import Recipe
from electrify.training.evaluate import validate
from electrify.training.precision import Choice
from electrify.training.signals import Stop
from electrify.training.training import Stepper, Validation, cut_rows

WARMUP_STEPS = 2  # they are slower: networks are compiled, memory is allocated
MEASURING_SHARE = 0.05  # of the budget, but at most
MAX_MEASURING_SECONDS = 30.0  # long enough that a CPU's short-term boost does not decide
SET_BY_BUDGET = ("steps", "log_every", "eval_every", "save_every")
OVERHEAD = 1.04  # for saving and logging
EVALUATIONS = 8
MAX_EVALUATION_SHARE = 0.1  # of the budget; fewer evaluations if eight take longer
FEW_STEPS = 500
BUSY = 0.7  # share of the CPU time its threads could use; below it, other programs took the rest


def fit_to_budget(
    recipe: Recipe,
    stepper: Stepper,
    validations: Sequence[Validation],
    seconds: float,
    stop: Stop,
    warn: Callable[[str], None],
) -> Recipe | None:
    """Return the recipe with the number of steps that fit, and warm-up and intervals to match.

    The main rank measures, and every rank uses its result. The measured updates are complete ones
    at a learning rate of 0, so no weight changes. Returns None if the run is asked to stop.
    """
    measured = _measure(recipe, stepper, validations, seconds, stop)
    if measured is None:
        return None
    remaining, one_step, one_evaluation, cpu_share, _ = measured
    most = int(remaining * MAX_EVALUATION_SHARE / (one_evaluation or 1))
    evaluations = max(1, min(EVALUATIONS, most))
    # Steps are measured without schedules.
    one_step *= tokens_per_step(recipe) / (recipe.run.batch_size * recipe.run.length)
    at_start = len(validations) > 1  # general text is evaluated before the first step too
    steps = int((remaining - (evaluations + at_start) * one_evaluation) / one_step)
    if steps < 1:
        raise _too_short("--budget", seconds, measured, "use a longer --budget or a smaller recipe")
    if steps < FEW_STEPS:
        warn(
            f"only {steps:,} steps fit into {duration(seconds)} at {one_step:.2g} s per step: "
            f"{cause_of_few_steps(stepper.engine.choice, cpu_share, os.getloadavg()[0])}"
        )
    share = steps / recipe.run.steps
    return replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup=round(recipe.optimizer.warmup * share)),
        run=replace(
            recipe.run,
            steps=steps,
            log_every=max(1, min(recipe.run.log_every, steps // 20)),
            eval_every=recipe.run.eval_every and math.ceil(steps / evaluations),
            save_every=max(1, min(recipe.run.save_every, steps // 4)),
        ),
    )


def steps_that_fit(
    recipe: Recipe,
    stepper: Stepper,
    validations: Sequence[Validation],
    stop: Stop,
    seconds: float,
) -> int | None:
    """Return the number of steps to add for `seconds`, at the recipe's evaluation interval.

    Measures as `fit_to_budget` does, so weights and optimizer state must be restored afterwards.
    """
    measured = _measure(recipe, stepper, validations, seconds, stop)
    if measured is None:
        return None
    remaining, one_step, one_evaluation, *_ = measured
    one_step *= tokens_per_step(recipe, 1, 1) / (recipe.run.batch_size * recipe.run.length)
    evaluation_per_step = one_evaluation / (recipe.run.eval_every or 1)
    # There is one evaluation at the end in any case.
    steps = int((remaining - one_evaluation) / (one_step + evaluation_per_step))
    if steps < 1:
        raise _too_short("--more", seconds, measured, "use a longer time, or --steps N")
    return steps


class StepTimes(NamedTuple):
    """What was measured in a part of a budget; all times in seconds."""

    remaining: float
    one_step: float
    one_evaluation: float
    cpu_share: float
    """Fraction of the CPU time that its threads could use."""
    warm_up: float
    """Until the first measured step; includes compiling."""


def _too_short(option: str, seconds: float, measured: StepTimes, fix: str) -> UserError:
    return UserError(
        f"{option} is too short for a single step",
        got=f"{max(0, measured.remaining):.0f} of {seconds:.0f} s remained after "
        f"{measured.warm_up:.0f} s of warm-up and measuring "
        f"{measured.one_step:.1f} s per step and {measured.one_evaluation:.1f} s per evaluation",
        fix=fix,
    )


def _measure(
    recipe: Recipe, stepper: Stepper, validations: Sequence[Validation], seconds: float, stop: Stop
) -> StepTimes | None:
    """Measure a step and an evaluation on the main rank; None if the run is asked to stop."""
    engine, evaluated = stepper.engine, validations if recipe.run.eval_every else ()
    begin, scale = time.monotonic(), engine.scale_state()
    _warm_up(stepper, evaluated, stop)
    warm, cpu_begin = time.monotonic(), time.process_time()
    one_step = _seconds_per_step(stepper, seconds_to_measure(seconds), stop) * OVERHEAD
    threads = max(time.monotonic() - warm, 1e-9) * torch.get_num_threads()
    on_cpu = engine.device.type == "cpu"
    cpu_share = (time.process_time() - cpu_begin) / threads if on_cpu else 1.0
    one_evaluation = _seconds_per_evaluation(stepper, evaluated, stop)
    stepper.optimizer.state.clear()
    engine.load_scale(scale)
    if engine.any_reason(stop.why()):  # possibly in the middle of measuring
        return None
    remaining = seconds - (time.monotonic() - begin)
    times = remaining, one_step, one_evaluation, cpu_share, warm - begin
    return StepTimes(*engine.broadcast(times))


def as_before(recipe: Recipe, before: Recipe) -> Recipe:
    """Return the recipe with the values that the budget set when the run was started."""
    values = {name: getattr(before.run, name) for name in SET_BY_BUDGET}
    return replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup=before.optimizer.warmup),
        run=replace(recipe.run, **values),
    )


def cause_of_few_steps(choice: Choice, cpu_share: float, load: float) -> str:
    """Return why a run is slow: its precision, other programs, or its size.

    `cpu_share` is the fraction of its threads' possible CPU time that the process got; `load` is
    the machine's load average, because threads also wait when no other program wants the cores.
    """
    if choice.slow:
        return choice.reason
    if cpu_share < BUSY and load > available_cores():
        return f"other programs use the CPU; this run got {cpu_share:.0%} of its threads' time"
    return "use a smaller recipe on this machine, or a longer --budget"


def announcement(seconds: float) -> str:
    """Return the line printed before the time per step is measured."""
    about = duration(max(1.0, seconds_to_measure(seconds)))
    return f"time budget {duration(seconds)}: measuring the time per step for about {about}"


def seconds_to_measure(seconds: float) -> float:
    """Return for how long steps are measured at the start of a budget."""
    return min(seconds * MEASURING_SHARE, MAX_MEASURING_SECONDS)


def _warm_up(stepper: Stepper, validations: Sequence[Validation], stop: Stop) -> None:
    """Do once what is to be measured, so that nothing is compiled while it is."""
    for number in range(WARMUP_STEPS):
        _seconds_of_update(stepper, number)
        if stepper.engine.any_reason(stop.why()):
            return
    _seconds_per_evaluation(stepper, validations, stop)


def _seconds_per_step(stepper: Stepper, seconds: float, stop: Stop) -> float:
    """Return the mean time of the updates that fit into `seconds`."""
    spent, engine = 0.0, stepper.engine
    for number in count(WARMUP_STEPS):
        if engine.any_reason(stop.why()):
            break
        spent += _seconds_of_update(stepper, number)
        if engine.broadcast(spent >= seconds):
            break
    return spent / (number - WARMUP_STEPS + 1)


def _seconds_of_update(stepper: Stepper, number: int) -> float:
    batch = stepper.task.batches[number]  # not timed: training prepares batches in advance
    begin = time.monotonic()
    gradient = stepper.accumulate(number, batch)
    # Even at a learning rate of 0 a NaN gradient would turn weights into NaN.
    finite = math.isfinite(gradient.loss) and math.isfinite(gradient.norm)
    stepper.apply(lr=0.0, move=finite)
    return time.monotonic() - begin


def _seconds_per_evaluation(
    stepper: Stepper, validations: Sequence[Validation], stop: Stop
) -> float:
    """Return the time of an evaluation of all sets, extrapolated from a micro-batch of each."""
    seconds = 0.0
    for validation in validations:
        begin = time.monotonic()
        validate(stepper, validation, lambda: stepper.engine.any_reason(stop.why()), most=1)
        cuts = cut_rows(stepper.engine.share(validation.task.batch_size), stepper.micro_batch)
        seconds += (time.monotonic() - begin) * len(cuts) * validation.batches
    return seconds
