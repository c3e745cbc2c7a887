"""The pace of a run with a time budget: how long its steps take, and what that means for its end.

The number of steps is planned from the first half minute. If other programs start or end later, so
that the speed changes by more than a third for at least a minute, a new number is planned.
"""

import time
from collections.abc import Callable, Sequence

from electrify.progress import duration
from electrify.training.budget import MAX_EVALUATION_SHARE, seconds_to_measure
from electrify.training.extension import Extension
from electrify.training.folder import RunFolder
from electrify.training.journal import TIMING_FILE, read_records, seconds_logged
from electrify.training.observer import MetricValues, Observer

CHANGE = 1 / 3  # of the planned speed
STRETCH_SECONDS = 30.0  # two stretches in a row must have changed: shorter disturbances pass
LEAST = 0.05  # of the budget; plans are not changed for less, nor when less is left

Costs = Callable[[int, int], float]
"""Returns what the steps between two numbers cost."""


def steps_between(start: int, stop: int) -> float:
    """Return the cost of steps whose batches are all alike."""
    return float(stop - start)


class Pace(Observer):
    """Measures the time per step of the main rank, and plans a new end if it has changed."""

    def __init__(
        self,
        budget: float,
        used: float,
        step_seconds: float,
        end: int,
        costs: Costs = steps_between,
    ) -> None:
        self.budget, self.end, self.costs = budget, end, costs
        self.begin = time.monotonic() - used
        self.planned = step_seconds
        """Seconds per unit of cost (a step, if all batches are alike) of the current plan,
        including evaluation and saving."""
        self.total = self.training = 0.0
        """Seconds since the run was started or resumed, with and without evaluation and saving."""
        self.steps, self.seconds = 0.0, 0.0
        """Cost of the current stretch's steps, and the seconds they took."""
        self.paces: list[float] = []
        """Seconds per unit of cost of the finished stretches, without evaluation and saving."""

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Count the steps since the last log and the time they took."""
        if split != "train":
            return
        seconds = timings["seconds"]
        other = timings.get("evaluation_seconds", 0.0) + timings.get("saving_seconds", 0.0)
        steps = round(timings["steps_per_second"] * seconds)
        self.steps += self.costs(step - steps, step)
        self.seconds += seconds - other
        self.total, self.training = self.total + seconds, self.training + seconds - other
        if self.seconds >= STRETCH_SECONDS:
            self.paces.append(self.seconds / self.steps)
            self.steps, self.seconds = 0.0, 0.0

    def new_end(self, step: int) -> int | None:
        """Return the last step that fits at the current speed; None to keep the plan."""
        speeds = [self.planned / self._overall(pace) for pace in self.paces[-2:]]
        slower, faster = (all(s < 1 - CHANGE for s in speeds), all(s > 1 + CHANGE for s in speeds))
        if len(speeds) < 2 or not (slower or faster):
            return None
        left = self.budget - (time.monotonic() - self.begin)
        pace = self._overall(self.paces[-1])
        remaining = self.costs(step, self.end)
        late = abs(remaining * pace - left)
        if min(left, late) < LEAST * self.budget:
            return None
        # Schedules stretch with the number of steps, so the mean cost of a step stays as it is.
        return step + max(1, int(left / pace * (self.end - step) / remaining))

    def _overall(self, pace: float) -> float:
        """Return the seconds per step of a stretch with their share of evaluation and saving."""
        training_share = max(self.training / self.total, 1 - MAX_EVALUATION_SHARE)
        return pace / training_share

    def on_replan(self, steps: int) -> None:
        """Report the new plan, and measure against it from now on."""
        pace = self._overall(self.paces[-1])
        print(
            f"steps take {pace:.2g} s instead of {self.planned:.2g} s: the run ends after "
            f"{steps:,} steps instead of {self.end:,}, to fit into {duration(self.budget)}",
            flush=True,
        )
        self.end, self.planned = steps, pace
        self.paces.clear()


def pace_of(
    folder: RunFolder,
    extensions: Sequence[Extension],
    start: int,
    budget: float,
    measuring: float | None,
    costs: Costs = steps_between,
) -> Pace:
    """Return the pace of a run that starts or resumes at a step.

    `measuring` are the seconds that were spent on measuring; None if the run is resumed.
    """
    records = read_records(folder.path / TIMING_FILE)
    before = seconds_to_measure(budget) if measuring is None else measuring

    def used(step: int) -> float:
        return before + seconds_logged(r for r in records if r["step"] <= step)

    planned_at, end = max((e.start for e in extensions), default=0), folder.steps
    step_seconds = (budget - used(planned_at)) / costs(planned_at, end)
    return Pace(budget, used(start), step_seconds, end, costs)
