"""Extensions of a run beyond its planned steps, recorded in run.json.

An extension starts where the run would have ended, and its learning rate is a function of the step
alone. So the steps before it are unchanged, it resumes exactly, and it can be extended again.
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
LEAST_CONSTANT = 0.1  # of the peak learning rate: most schedules end at 0, where nothing is learned


@dataclass(frozen=True)
class Extension:
    """Steps that were added to a run."""

    start: int
    """Number of steps of the run before it was extended."""
    end: int
    """Number of steps of the run since then."""
    schedule: ExtensionSchedule
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
        follows = number == 0 or extension.start == found[number - 1].end
        if not follows or not 0 < extension.start < extension.end:
            raise damaged(path, f"extensions: {extension}")
    return found


def begun_before(extensions: Sequence[Extension], step: int) -> list[Extension]:
    """Return the extensions that a checkpoint at a step has trained in."""
    return [extension for extension in extensions if extension.start < step]


def planned_ends(recipe: Recipe, extensions: Sequence[Extension]) -> list[int]:
    """Return the steps at which the run ends or would have ended; the last is its total."""
    return [recipe.run.steps, *(extension.end for extension in extensions)]


def extended_schedule(
    planned: Callable[[int], float], recipe: Recipe, extensions: Sequence[Extension]
) -> Callable[[int], float]:
    """Return a function from the step to the learning rate, given that of the planned steps.

    `rewarm` repeats the recipe's schedule with all its steps, warm-up included, in proportion to
    the length of the extension: the re-warming and re-decaying of arXiv 2403.08763. `constant`
    keeps the last learning rate, but at least a tenth of the peak.
    """
    for extension in extensions:
        planned = _followed_by(planned, recipe, extension)
    return planned


def _followed_by(
    before: Callable[[int], float], recipe: Recipe, extension: Extension
) -> Callable[[int], float]:
    optimizer, start, length = recipe.optimizer, extension.start, extension.end - extension.start
    warmup = optimizer.warmup * length / recipe.run.steps
    constant = max(before(start - 1), LEAST_CONSTANT * optimizer.lr)

    def rate(step: int) -> float:
        if step < start:
            return before(step)
        if extension.schedule == "constant":
            return constant
        return optimizer.lr * factor(optimizer.schedule, step - start, length, warmup)

    return rate
