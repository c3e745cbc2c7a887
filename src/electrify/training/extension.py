"""Changes of the planned steps of a run, recorded in run.json: extensions and re-plans.

An extension starts where the run would have ended; a re-plan gives a run with a time budget another
end, from a step on the way. The learning rate stays a function of the step alone. So the steps
before are unchanged, the run resumes exactly, and it can be extended again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

from electrify import config
from electrify.errors import UserError
from electrify.recipes.schema import Recipe
from electrify.storage.commit import damaged
from electrify.training.schedule import factor

ExtensionSchedule = Literal["rewarm", "constant"]
REPLANNED: Literal["replanned"] = "replanned"
Rates = Callable[[float], float]
"""Maps a step to its learning rate, or to another number."""
LEAST_CONSTANT = 0.1  # of the peak learning rate: most schedules end at 0, where nothing is learned


@dataclass(frozen=True)
class Extension:
    """Steps that were added to a run, or that replace its remaining ones."""

    start: int
    """Number of steps before the change: all that were planned, or those done at a re-plan."""
    end: int
    """Number of steps of the run since then."""
    schedule: ExtensionSchedule | Literal["replanned"]
    asked: str
    """What the command asked for, such as "--more 1h"."""

    def __str__(self) -> str:
        return f"steps {self.start:,} to {self.end:,} ({self.asked}, {self.schedule})"


def extensions_of(about: Mapping[str, Any], path: Path) -> list[Extension]:
    """Return the extensions in the content of run.json, whose path is for errors."""
    try:
        tables = about.get("extensions", [])
        found = [config.fill(Extension, table, "extensions", MISSING) for table in tables]
    except (UserError, TypeError) as error:
        raise damaged(path, f"extensions: {error}") from error
    for number, extension in enumerate(found):
        follows = number == 0 or _may_follow(found[number - 1], extension)
        if not follows or not 0 < extension.start < extension.end:
            raise damaged(path, f"extensions: {extension}")
    return found


def _may_follow(before: Extension, extension: Extension) -> bool:
    if extension.schedule == REPLANNED:
        return before.start < extension.start < before.end
    return extension.start == before.end


def begun_before(extensions: Sequence[Extension], step: int) -> list[Extension]:
    """Return the extensions that a checkpoint at a step has trained in."""
    return [extension for extension in extensions if extension.start < step]


def planned_ends(recipe: Recipe, extensions: Sequence[Extension]) -> list[int]:
    """Return the steps at which the run ends or ended before; the last is its total."""
    ends = [recipe.run.steps]
    for extension in extensions:
        if extension.schedule == REPLANNED:
            ends.pop()  # it is not reached, or just a step like the others
        ends.append(extension.end)
    return ends


def extended_schedule(planned: Rates, recipe: Recipe, extensions: Sequence[Extension]) -> Rates:
    """Return a function from the step to the learning rate, given that of the planned steps.

    `rewarm` repeats the recipe's schedule with all its steps, warm-up included, in proportion to
    the length of the extension: the re-warming and re-decaying of arXiv 2403.08763. `constant`
    keeps the last learning rate, but at least a tenth of the peak. A re-plan stretches or shrinks
    the rest of the schedule, so that the learning rate does not jump and decays as planned.
    """
    end = recipe.run.steps
    for extension in extensions:
        if extension.schedule == REPLANNED:
            planned = _rescaled(planned, extension, end)
        else:
            planned = _followed_by(planned, recipe, extension)
        end = extension.end
    return planned


def progress_of(recipe: Recipe, extensions: Sequence[Extension]) -> Rates:
    """Return a function from the step to the fraction of the planned steps; above 1 if extended."""
    replans = [extension for extension in extensions if extension.schedule == REPLANNED]
    return extended_schedule(lambda step: step / recipe.run.steps, recipe, replans)


def _rescaled(before: Rates, replan: Extension, end: int) -> Rates:
    start, scale = replan.start, (end - replan.start) / (replan.end - replan.start)
    return lambda step: before(step if step < start else start + (step - start) * scale)


def _followed_by(before: Rates, recipe: Recipe, extension: Extension) -> Rates:
    optimizer, start, length = recipe.optimizer, extension.start, extension.end - extension.start
    warmup = optimizer.warmup * length / recipe.run.steps
    constant = max(before(start - 1), LEAST_CONSTANT * optimizer.lr)

    def rate(step: float) -> float:
        if step < start:
            return before(step)
        if extension.schedule == "constant":
            return constant
        return optimizer.lr * factor(optimizer.schedule, step - start, length, warmup)

    return rate
