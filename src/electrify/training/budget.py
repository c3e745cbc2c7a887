"""As many steps as fit in a time: measured on the first batches, before anything is trained."""

import math
import time
from dataclasses import replace
from itertools import islice
from statistics import fmean, median

from electrify.errors import UserError
from electrify.recipe import Recipe
from electrify.training.evaluate import evaluate
from electrify.training.loop import Training, cut_rows, held_out_micro_batches, one_gradient

FIRST = 2  # the first steps are slower: memory is found, kernels are chosen
MEASURED = 8
LONGER = 0.01  # of the time, at most half a minute: processors are faster for some seconds
HALF_A_MINUTE = 30.0
SET_BY_BUDGET = ("steps", "log_every", "eval_every", "save_every")
OVERHEAD = 1.04  # saving, logging
EVALUATIONS = 8
MOST_FOR_EVALUATION = 0.1  # of the time; fewer evaluations where eight take more


def fit_to_budget(recipe: Recipe, run: Training, seconds: float) -> Recipe:
    """The recipe with the steps that fit, warm-up and cadences shrunk along; weights do not move.

    The first process measures, and all take its answer. Updates are whole ones at a rate of 0.
    """
    begin = time.monotonic()
    took = _seconds_of_steps(run, FIRST + MEASURED)
    longer = min(seconds * LONGER, HALF_A_MINUTE)
    more: int = run.engine.agreed(int(longer / median(took[FIRST:])))
    took = took[FIRST:] + _seconds_of_steps(run, more)
    run.optimizer.state.clear()
    one_step, one_evaluation = fmean(took) * OVERHEAD, _seconds_of_evaluation(run)
    left = seconds - (time.monotonic() - begin)
    one_step, one_evaluation, left = run.engine.agreed((one_step, one_evaluation, left))
    evaluations = max(1, min(EVALUATIONS, int(left * MOST_FOR_EVALUATION / (one_evaluation or 1))))
    steps = int((left - evaluations * one_evaluation) / one_step)
    if steps < 1:
        raise UserError(
            "the budget is shorter than one step",
            got=f"{seconds:.0f} s, one step takes {one_step:.1f} s",
            fix="give more time, or a smaller recipe",
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


def _seconds_of_steps(run: Training, count: int) -> list[float]:
    took = []
    for number in range(count):
        begin = time.monotonic()
        one_gradient(run, number, run.task.batches[number], may_move=lambda loss, norm: True)
        took.append(time.monotonic() - begin)
    return took


def _seconds_of_evaluation(run: Training) -> float:
    """How long a measurement on held-out text takes, from one batch of it."""
    if run.held_out is None:
        return 0.0
    begin = time.monotonic()
    one_batch = islice(held_out_micro_batches(run, run.held_out), 1)
    evaluate(run.model, run.engine, one_batch, run.held_out.metrics, 1)
    rows = run.engine.share(run.held_out.batch_size)
    return (time.monotonic() - begin) * len(cut_rows(rows, run.micro_batch)) * run.held_out_batches
