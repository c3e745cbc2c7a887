"""As many steps as fit in a time: measured on the first batches, before anything is trained."""

import time
from dataclasses import replace
from statistics import median

from electrify.errors import UserError
from electrify.recipe import Recipe
from electrify.training.loop import Training, one_gradient

MEASURED = 8
FIRST = 2  # the first steps are slower: memory is found, kernels are chosen
SET_BY_BUDGET = ("steps", "log_every", "eval_every", "save_every")
OVERHEAD = 1.08  # evaluation, saving, logging


def fit_to_budget(recipe: Recipe, run: Training, seconds: float) -> Recipe:
    """The recipe with the steps that fit, warm-up and cadences shrunk along; weights do not move.

    The first process measures, and all take its answer.
    """
    begin = time.monotonic()
    took = []
    for number in range(FIRST + MEASURED):
        started = time.monotonic()
        one_gradient(run, number, run.task.batches[number])
        took.append(time.monotonic() - started)
    one_step = median(took[FIRST:]) * OVERHEAD
    left = seconds - (time.monotonic() - begin)
    steps = run.engine.agreed(int(left / one_step))
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
            eval_every=recipe.run.eval_every and max(1, min(recipe.run.eval_every, steps // 8)),
            save_every=max(1, min(recipe.run.save_every, steps // 4)),
        ),
    )
