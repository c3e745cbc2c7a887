"""As many steps as fit in a time: measured on the first batches, before anything is trained.

What fits is counted once, so that a run is the same however often it stops and goes on. On a
machine that slows down it takes longer than its budget, and says so at its end.
"""

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import torch

from electrify.errors import UserError
from electrify.jobs import available_cores
from electrify.progress import duration
from electrify.recipes.schema import Recipe
from electrify.training.evaluate import validate
from electrify.training.precision import Choice
from electrify.training.signals import Stop
from electrify.training.training import Stepper, Validation, cut_rows

FIRST = 2  # the first steps are slower: memory is found, kernels are chosen
TO_MEASURE = 0.05  # of the time, but
MOST_TO_MEASURE = 30.0  # seconds: processors are faster for a moment than they stay
SET_BY_BUDGET = ("steps", "log_every", "eval_every", "save_every")
OVERHEAD = 1.04  # saving, logging
EVALUATIONS = 8
MOST_FOR_EVALUATION = 0.1  # of the time; fewer evaluations where eight take more
FEW_STEPS = 500
BUSY = 0.7  # of the CPU time that its threads could have had: with less, others took the rest


def fit_to_budget(
    recipe: Recipe,
    stepper: Stepper,
    validation: Validation | None,
    seconds: float,
    stop: Stop,
    warn: Callable[[str], None],
) -> Recipe | None:
    """Return the recipe with the steps that fit, warm-up and cadences following; no weight moves.

    The main rank measures, and all take its answer. Updates are complete ones at a rate of 0. None
    if there is a reason to stop before that.
    """
    engine = stepper.engine
    begin, scale = time.monotonic(), engine.scale_state()
    cpu_begin = time.process_time()
    one_step = _seconds_of_a_step(stepper, _seconds_to_measure(seconds), stop) * OVERHEAD
    threads = max(time.monotonic() - begin, 1e-9) * torch.get_num_threads()
    on_cpu = engine.device.type == "cpu"
    cpu_share = (time.process_time() - cpu_begin) / threads if on_cpu else 1.0
    one_evaluation = (
        _seconds_of_evaluation(stepper, validation, stop) if recipe.run.eval_every else 0.0
    )
    stepper.optimizer.state.clear()
    engine.load_scale(scale)
    if engine.any_reason(stop.why()):  # in the middle of measuring, perhaps
        return None
    left = seconds - (time.monotonic() - begin)
    one_step, one_evaluation, left = engine.broadcast((one_step, one_evaluation, left))
    evaluations = max(1, min(EVALUATIONS, int(left * MOST_FOR_EVALUATION / (one_evaluation or 1))))
    steps = int((left - evaluations * one_evaluation) / one_step)
    if steps < 1:
        raise UserError(
            "the budget is too short",
            got=f"{max(0, left):.0f} of {seconds:.0f} s were left after finding that a step takes "
            f"{one_step:.1f} s and a measurement on held-out text {one_evaluation:.1f} s",
            fix="give more time, or a smaller recipe",
        )
    if steps < FEW_STEPS:
        warn(
            f"only {steps:,} steps fit into {duration(seconds)}, a step takes {one_step:.2g} s: "
            f"{cause_of_few_steps(engine.choice, cpu_share, os.getloadavg()[0])}"
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


def as_before(recipe: Recipe, before: Recipe) -> Recipe:
    """Return the recipe with what a budget set when the run was started."""
    found = {name: getattr(before.run, name) for name in SET_BY_BUDGET}
    return replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup=before.optimizer.warmup),
        run=replace(recipe.run, **found),
    )


def cause_of_few_steps(choice: Choice, cpu_share: float, load: float) -> str:
    """Return why a run is slow: its precision, other programs, or its own size.

    `cpu_share` is the CPU time the process got, of what its threads could have used, and `load` the
    machine's load average: threads also wait where nobody else wants the cores.
    """
    if choice.slow:
        return choice.reason
    if cpu_share < BUSY and load > available_cores():
        return f"other programs use the CPU, this run got {cpu_share:.0%} of its threads' time"
    return "for this machine take a smaller recipe, or a longer --budget"


def announcement(seconds: float) -> str:
    """What a run with a budget does before anything else is printed."""
    about = duration(max(1.0, _seconds_to_measure(seconds)))
    return f"time budget {duration(seconds)}: measuring the time of a step for about {about}"


def _seconds_to_measure(seconds: float) -> float:
    return min(seconds * TO_MEASURE, MOST_TO_MEASURE)


def _seconds_of_a_step(stepper: Stepper, seconds: float, stop: Stop) -> float:
    """Return the mean of the updates of some seconds, one at least, after the first ones."""
    spent, engine = 0.0, stepper.engine
    for number in count():
        batch = stepper.task.batches[number]  # made ahead in training, and its shards verified
        begin = time.monotonic()
        gradient = stepper.accumulate(number, batch)
        # Even at a rate of 0 a gradient that is not a number would spoil the weights.
        finite = math.isfinite(gradient.loss) and math.isfinite(gradient.norm)
        stepper.apply(lr=0.0, move=finite)
        spent = time.monotonic() - begin + (spent if number > FIRST else 0.0)
        enough = number >= FIRST and engine.broadcast(spent >= seconds)
        if enough or engine.any_reason(stop.why()):
            break
    return spent / max(1, number - FIRST + 1)


def _seconds_of_evaluation(stepper: Stepper, validation: Validation | None, stop: Stop) -> float:
    """Return how long an evaluation takes, from a micro-batch of it."""
    if validation is None:
        return 0.0
    for _ in range(2):  # the first may compile, and finds memory
        begin = time.monotonic()
        validate(stepper, validation, lambda: stepper.engine.any_reason(stop.why()), most=1)
    cuts = cut_rows(stepper.engine.share(validation.task.batch_size), stepper.micro_batch)
    return (time.monotonic() - begin) * len(cuts) * validation.batches
