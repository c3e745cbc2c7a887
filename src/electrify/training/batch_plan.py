"""The plan of every training batch, as a pure function of the step: resuming needs no state."""

from collections.abc import Callable
from threading import Lock

from electrify.batches.loader import BatchPlan
from electrify.recipes.schedules import shape_at, tokens_per_step, value_at
from electrify.recipes.schema import Recipe
from electrify.training.training import Progress


class BatchPlans:
    """Maps a step to the examples, the shape and the mask rate of its batch.

    If the batch size changes, the number of a batch's first example is the sum of the sizes before
    it; these sums are kept, and computed again when the number of steps is planned anew.
    """

    def __init__(self, recipe: Recipe, progress: Progress | None = None) -> None:
        self.recipe, self.progress = recipe, progress or Progress()
        self._lock = Lock()  # several threads prepare batches
        self._firsts, self._firsts_for = [0], self.progress.planned

    def __call__(self, step: int) -> BatchPlan:
        """Return the plan of a step; while steps are measured, without schedules."""
        run, planned = self.recipe.run, self.progress.planned
        if planned is None:
            size, rate = run.batch_size, self.recipe.objective.mask_rate
            return BatchPlan(step * size, size, run.length, rate)
        shape = shape_at(self.recipe, planned(step))
        return BatchPlan(self._first(step, planned), *shape, self.mask_rate(step))

    def mask_rate(self, step: int) -> float:
        """Return the fraction of tokens that are masked at a step."""
        points, planned = self.recipe.schedules.mask_rate, self.progress.planned
        if not points or planned is None:
            return self.recipe.objective.mask_rate
        return value_at(points, planned(step))

    def costs(self, start: int, stop: int) -> float:
        """Return what some steps cost, in batches of the recipe's constant batch size and length.

        The time of a step is assumed to be proportional to its tokens.
        """
        planned, run = self.progress.planned, self.recipe.run
        if planned is None:
            return float(stop - start)
        tokens = tokens_per_step(self.recipe, planned(start), planned(stop))
        return (stop - start) * tokens / (run.batch_size * run.length)

    def _first(self, step: int, planned: Callable[[float], float]) -> int:
        if not self.recipe.schedules.batch_size:
            return step * self.recipe.run.batch_size
        with self._lock:
            if self._firsts_for is not planned:
                self._firsts, self._firsts_for = [0], planned
            for before in range(len(self._firsts) - 1, step):
                size = shape_at(self.recipe, planned(before)).batch_size
                self._firsts.append(self._firsts[-1] + size)
            return self._firsts[step]
