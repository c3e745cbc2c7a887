"""Open the outputs of a run: checkpoints, uploads, the journal, trackers and the screen."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from electrify.errors import DamagedError
from electrify.objectives.bands import Sizes
from electrify.objectives.objective import Objective
from electrify.recipes.schema import Recipe
from electrify.training import checkpoint
from electrify.training.checkpoint import Policy, Writer
from electrify.training.extension import REPLANNED, Extension
from electrify.training.folder import RunFolder
from electrify.training.journal import Journal, read_metrics
from electrify.training.networks import objective_flops
from electrify.training.observer import Observer, Observers, StderrWarnings
from electrify.training.options import Pretrain
from electrify.training.remote import check_target
from electrify.training.screen import ProgressLine, Screen
from electrify.training.signals import Stop
from electrify.training.tracking import Tracker, tracker
from electrify.training.training import Stepper
from electrify.training.upload import Uploads

SECONDS_FOR_UPLOADS, SECONDS_IF_STOPPED = 600.0, 5.0


def steps_kept(recipe: Recipe, extensions: Sequence[Extension]) -> frozenset[int]:
    """Return the steps whose checkpoints are never pruned: run.keep_percent and the last step.

    Percentages apply to the planned run and to each extension; a re-plan changes the later ones.
    """
    start, end = 0, recipe.run.steps
    kept = _percentages(recipe, start, end)
    for extension in extensions:
        start = start if extension.schedule == REPLANNED else end
        end = extension.end
        later = {step for step in _percentages(recipe, start, end) if step > extension.start}
        kept = {step for step in kept if step <= extension.start} | later
    return frozenset(kept)


def _percentages(recipe: Recipe, start: int, end: int) -> set[int]:
    percentages = (*recipe.run.keep_percent, 100)
    return {start + max(1, round((end - start) * percent / 100)) for percent in percentages}


def checkpoint_writer(
    target: str | Callable[[Path], None],
    policy: Policy,
    folder: RunFolder,
    stop: Stop,
    stack: ExitStack,
) -> Writer:
    """Return the writer of checkpoints, which uploads them to `target` unless it is empty.

    Raises an error if a run has metrics but no checkpoints: it never silently starts from scratch.
    """
    logged = max((record["step"] for record in read_metrics(folder.path)), default=0)
    if logged and not checkpoint.stored(folder.checkpoints):
        raise DamagedError(
            f"the checkpoints of {folder.path} are missing",
            got=f"metrics up to step {logged:,}, but no checkpoint in {folder.checkpoints}",
            fix="restore them from a backup, or use another --out to start from scratch",
        )
    run = folder.fingerprints
    writer = Writer(
        folder.checkpoints, policy, run=run, check_folder=partial(folder.check_unmoved, run(0))
    )
    if target:
        if isinstance(target, str):
            check_target(target, folder.path, run)
        uploads = Uploads(target)
        uploads.resume(folder.path, run)
        stack.callback(_close_uploads, uploads, stop)
        writer.committed = uploads.committed
    return writer


def _close_uploads(uploads: Uploads, stop: Stop) -> None:
    # A run that was asked to stop does not wait; the next start uploads what remains.
    timeout = SECONDS_FOR_UPLOADS if stop.finished else SECONDS_IF_STOPPED
    hurry = lambda: stop.finished and stop.signal is not None  # noqa: E731
    for line in uploads.close(min(timeout, max(0.0, stop.remaining)), hurry):
        print(f"not uploaded: {line}", file=sys.stderr)


def observers(
    settings: Pretrain,
    recipe: Recipe,
    objective: Objective,
    stepper: Stepper,
    folder: RunFolder,
    sizes: Sizes,
    start: int,
    steps: int,
    stack: ExitStack,
) -> Observer:
    """Return the journal, the trackers and the screen, opened for a run from `start` to `steps`."""
    warnings, engine = StderrWarnings(), stepper.engine
    strict = settings.on_save_error == "stop"
    journal = Journal(folder.path, strict, objective.former_names)
    stack.callback(journal.close)
    screen = stack.enter_context(Screen())
    trackers = [
        Tracker(stack.enter_context(tracker(name, folder.path, start, warnings.on_warning)))
        for name in settings.track
    ]
    line = ProgressLine(
        screen,
        type(objective),
        sizes,
        steps,
        objective_flops(objective, recipe) / engine.world,
        recipe.run.precision,
        engine.device,
        stepper.task.batches.plan.costs,
    )
    return Observers(journal, *trackers, line, warnings)


def last_evaluated(folder: RunFolder, start: int) -> int:
    """Return the last step up to `start` whose validation metrics are in the journal, or -1."""
    records = (r for r in read_metrics(folder.path) if r["split"] == "validation")
    return max((r["step"] for r in records if r["step"] <= start), default=-1)
