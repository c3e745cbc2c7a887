"""Implement `electrify pretrain --resume RUN`: settings from the run's folder, and extensions."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING
from pathlib import Path

from electrify import config
from electrify.errors import UserError
from electrify.recipes.ranges import RANGES
from electrify.recipes.schema import Recipe
from electrify.training.engine import Engine
from electrify.training.extension import Extension, planned_ends
from electrify.training.folder import RunFolder
from electrify.training.options import ResumeRun
from electrify.training.outputs import last_evaluated
from electrify.training.signals import parse_duration

SHORT = 0.1  # of the steps before; at 2.4 % the loss ended higher (docs/training.md)


def resumed(run: Path, data: Path | None = None) -> ResumeRun:
    """Return the settings to resume a run with: all from its folder, unless `data` is given."""
    folder = RunFolder(run)
    about, file = folder.about, run / "recipe.toml"
    # The file also has the changes made since the run was started, such as run.save_every.
    recipe = config.read_settings(Recipe, file) if file.is_file() else folder.recipe
    settings = {
        **(about.get("options") or {}),
        "recipe": config.to_dict(recipe),
        "name": str(run),
        "data": data or folder.shards,
        "out": run,
        "budget": about["identity"].get("budget", ""),
    }
    return config.fill(ResumeRun, settings, "run.json", MISSING)


def check_extension(settings: ResumeRun) -> None:
    """Raise an error if the options that extend a run are not valid."""
    if settings.more and settings.steps is not None:
        raise UserError(
            "--more and --steps both extend the run",
            got=f"--more {settings.more} --steps {settings.steps}",
            fix="use one of them",
        )
    if settings.more:
        parse_duration(settings.more, "--more")
    if settings.steps is not None and settings.steps not in RANGES["run.steps"]:
        raise UserError(
            f"--steps must be {RANGES['run.steps']}",
            got=config.shown(settings.steps),
            fix="use the new total number of steps",
        )


def extend(
    settings: ResumeRun,
    recipe: Recipe,
    folder: RunFolder,
    engine: Engine,
    steps_in: Callable[[float], int | None],
) -> bool:
    """Record the extension that a command asks for, unless the run has it already.

    `steps_in` returns the number of steps that fit into some seconds, or None if it is asked to
    stop; then nothing is recorded and the result is False.
    """
    extensions = engine.main_first(lambda: folder.extensions)
    start, end = planned_ends(recipe, extensions)[-1], settings.steps
    asked = f"--more {settings.more}" if settings.more else f"--steps {end}"
    if settings.more and not _is_rerun(settings, asked, folder, engine, extensions):
        steps = steps_in(parse_duration(settings.more, "--more"))
        if steps is None:
            return False
        end = start + steps
    if end is None or end == start:
        return True
    if end < start:
        raise UserError(
            "--steps is less than the steps of the run",
            got=f"--steps {end}, and {folder.path} has {start:,} steps",
            fix=f"use more than {start}; --resume alone finishes the {start:,} steps",
        )
    added = Extension(start, end, settings.extend_schedule, asked)
    engine.on_main(lambda: folder.extend(added))
    if engine.is_main:
        print(f"extended the run: {added}", flush=True)
        if added.schedule == "rewarm" and end - start < SHORT * start:
            print(
                f"note: warming up again raises the loss, and {end - start:,} steps after "
                f"{start:,} may be too few to make up for it; --extend-schedule constant avoids it",
                flush=True,
            )
    return True


def _is_rerun(
    settings: ResumeRun,
    asked: str,
    folder: RunFolder,
    engine: Engine,
    extensions: Sequence[Extension],
) -> bool:
    """Return whether the same command was interrupted before: then it resumes, and adds nothing."""
    last = extensions[-1] if extensions else None
    if last is None or (last.asked, last.schedule) != (asked, settings.extend_schedule):
        return False

    def finished() -> bool:
        checkpoints, evaluated = folder.saved(), last_evaluated(folder, last.end)
        if not checkpoints or checkpoints[0].step < last.end:
            return False
        # Without validation there is no record at all.
        return evaluated in (-1, last.end) or not settings.recipe.run.eval_every

    return not engine.main_first(finished)
