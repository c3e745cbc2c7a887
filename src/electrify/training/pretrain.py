"""Implement `electrify pretrain`: start a run, resume it, or continue it beyond its steps."""

import gc
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from electrify.batches.mixture import Mixture
from electrify.config import check_minimum
from electrify.errors import EXIT_INTERRUPTED, UserError
from electrify.objectives.bands import sizes_of
from electrify.recipes.schedules import jumps
from electrify.recipes.schema import Recipe, check, override
from electrify.storage.verified import Verified
from electrify.tokens.store import Shards
from electrify.training import checkpoint, summary
from electrify.training.batch_plan import BatchPlans
from electrify.training.budget import announcement, as_before, fit_to_budget, steps_that_fit
from electrify.training.checkpoint import Policy
from electrify.training.data import open_data, open_general, validation_task
from electrify.training.engine import Engine
from electrify.training.evaluate import warm_up
from electrify.training.extension import (
    REPLANNED,
    Extension,
    extended_schedule,
    planned_ends,
    progress_of,
)
from electrify.training.folder import RunFolder
from electrify.training.guard import Guard, GuardSettings
from electrify.training.loop import resume, train
from electrify.training.observer import Observer, Observers, StderrWarnings
from electrify.training.options import Pretrain, ResumeRun
from electrify.training.outputs import checkpoint_writer, last_evaluated, observers, steps_kept
from electrify.training.pace import Pace, pace_of
from electrify.training.resume import check_extension, extend
from electrify.training.saving import newest_checkpoint
from electrify.training.schedule import factor
from electrify.training.setup import set_up
from electrify.training.sharding import check_can_shard
from electrify.training.signals import Stop, parse_duration, watching
from electrify.training.staging import staged
from electrify.training.training import Cadence, Stepper, Training


def pretrain(settings: Pretrain, checkpoint_fn: Callable[[Path], None] | None = None) -> int:
    """Start or resume a run; returns the exit code.

    From Python, `checkpoint_fn` is called in the background with the folder of every checkpoint,
    instead of uploading it.
    """
    check(settings.recipe)
    check_minimum(settings, micro_batch=0, workers=0, save_minutes=0)
    if settings.general_share and settings.general is None:
        raise UserError(
            "--general-share needs general text",
            got=f"--general-share {settings.general_share} without --general",
            fix="add --general SHARDS",
        )
    if isinstance(settings, ResumeRun):
        check_extension(settings)
    budget = parse_duration(settings.budget, "--budget") if settings.budget else 0.0
    stop = Stop(parse_duration(settings.max_time, "--max-time") if settings.max_time else None)
    if settings.general is not None:
        settings = replace(settings, general=staged(settings.general, "--general"))
    settings = replace(settings, data=staged(settings.data, "--data"))
    folder, engine = RunFolder(settings.out), Engine(device=settings.device)
    asked = settings.recipe.run.precision
    engine.use(engine.main_first(lambda: folder.choice(asked, engine.device.type)))
    launched = engine.world > 1 or "TORCHELASTIC_RUN_ID" in os.environ  # torchrun, of one process
    stop.launcher = os.getppid() if launched else None
    if settings.shard:
        check_can_shard(
            settings.recipe.optimizer.kind, engine.precision, settings.compile, engine.world
        )
    warnings = StderrWarnings() if engine.is_main else Observer()
    with watching(stop), ExitStack() as stack:
        stack.callback(engine.close)
        engine.on_main(lambda: _lock(folder, stack))
        if budget and engine.is_main and not folder.started:
            print(announcement(budget), flush=True)

        recipe = override(settings.recipe, {"run.precision": engine.precision})
        tokenizer, shards = open_data(settings.data, recipe, Verified(folder.verified))
        examples: Shards | Mixture = shards
        if settings.general is not None:
            share = settings.general_share
            examples = open_general(settings.general, share, shards, recipe, shards.verified)
        objective, stepper = set_up(settings, recipe, folder, engine, tokenizer, shards, examples)
        stack.callback(_unwrap, stepper)
        validation, general = (
            validation_task(
                recipe,
                data,
                tokenizer,
                engine,
                same_rows=settings.shard,  # every rank must take part in gathering sharded weights
                verified=shards.verified,
                fixed_shapes=settings.compile,
            )
            if data is not None
            else None
            for data in (settings.data, settings.general)
        )
        evaluated = [each for each in (validation, general) if each and validation]
        if settings.general is not None and len(evaluated) < 2:
            warnings.on_warning(
                "too few validation examples, of --data or --general, to evaluate general text: "
                "forgetting is not measured"
            )
        measuring = None
        if budget and engine.broadcast(folder.started):
            recipe = as_before(recipe, engine.broadcast(folder.recipe if engine.is_main else None))
        elif budget:
            begin = time.monotonic()
            fitted = fit_to_budget(recipe, stepper, evaluated, budget, stop, warnings.on_warning)
            if fitted is None:
                warnings.on_warning("stopped while measuring the budget: no run was started")
                return _code(stop.why(), stop)
            recipe, measuring = fitted, time.monotonic() - begin

        engine.on_main(
            lambda: folder.start_or_resume(
                settings,
                recipe,
                tokenizer,
                objective.networks,
                engine.choice.muon,
                warnings.on_warning,
            )
        )
        if engine.is_main:
            shards.verified.keep(folder.verified)
        if isinstance(settings, ResumeRun):
            steps_in = partial(steps_that_fit, recipe, stepper, evaluated, stop)
            if not extend(settings, recipe, folder, engine, steps_in):
                warnings.on_warning("stopped while measuring the time: the run was not extended")
                return _code(stop.why(), stop)
        extensions = engine.main_first(lambda: folder.extensions)
        cadence = _cadence(recipe, extensions, settings.save_minutes * 60)
        target, policy = checkpoint_fn or settings.upload, _policy(recipe, extensions)
        writer = engine.on_main(lambda: checkpoint_writer(target, policy, folder, stop, stack))
        found = newest_checkpoint(engine, writer, warnings)
        start = found.step if found else 0
        sizes = sizes_of(recipe, tokenizer.vocab_size)
        observer = engine.on_main(
            lambda: observers(
                settings, recipe, objective, stepper, folder, sizes, start, cadence.steps, stack
            )
        )
        stepper.progress.planned = progress_of(recipe, extensions)
        plan: BatchPlans = stepper.task.batches.plan
        run = Training(
            stepper,
            cadence=cadence,
            schedule=extended_schedule(schedule_of(recipe), recipe, extensions),
            guard=Guard(
                GuardSettings(on_spike=settings.on_spike),
                sizes,
                objective.alarms,
                objective.watched,
                scaled=engine.precision == "fp16",
                mask_rate=plan.mask_rate if recipe.schedules.mask_rate else None,
                loss_changes=partial(stepper.progress.passes, jumps(recipe.schedules)),
            ),
            stop=stop,
            observer=observer or warnings,
            writer=writer,
            validation=validation,
            general=general,
            workers=settings.workers,
            stop_if_unsaved=settings.on_save_error == "stop",
            evaluated=engine.main_first(lambda: last_evaluated(folder, start)),
        )
        if settings.compile and start < cadence.steps:
            warm_up(stepper, validation)
        fixed = any(extension.schedule != REPLANNED for extension in extensions)
        if budget and not fixed:
            pace = engine.on_main(
                lambda: pace_of(folder, extensions, start, budget, measuring, plan.costs)
            )
            if pace is not None:
                run.observer = Observers(run.observer, pace)
            run.replan = partial(_replan, run, recipe, folder, pace, f"--budget {settings.budget}")
        resume(run, found)
        run.observer.on_rewind(start)
        if engine.is_main:
            print(summary.beginning(recipe, objective, run, start), flush=True)
        done = train(run, start)
        stop.finished = not done.why
    if engine.is_main:
        budget_text = "" if fixed else settings.budget
        print(summary.end(done, settings.out, budget_text, stepper.spent), flush=True)
    return _code(done.why, stop)


def schedule_of(recipe: Recipe) -> Callable[[float], float]:
    """Return a function from the step to the learning rate, for the planned steps."""
    optimizer, steps = recipe.optimizer, recipe.run.steps
    return lambda step: optimizer.lr * factor(optimizer.schedule, step, steps, optimizer.warmup)


def _replan(
    run: Training, recipe: Recipe, folder: RunFolder, pace: Pace | None, asked: str, step: int
) -> bool:
    """Record and follow another number of steps if the pace asks for it; return whether it did."""
    found: list[Extension] = run.stepper.engine.main_first(
        lambda: _recorded_replan(run, folder, pace, asked, step)
    )
    if not found:
        return False
    run.cadence = _cadence(recipe, found, run.cadence.save_seconds)
    run.schedule = extended_schedule(schedule_of(recipe), recipe, found)
    run.stepper.progress.planned = progress_of(recipe, found)
    if run.writer is not None:
        run.writer.policy, run.writer.run = _policy(recipe, found), folder.fingerprints
    run.observer.on_replan(run.cadence.steps)
    return True


def _recorded_replan(
    run: Training, folder: RunFolder, pace: Pace | None, asked: str, step: int
) -> list[Extension]:
    """Record another number of steps, if there is one; return all changes, or none."""
    end = pace and pace.new_end(step)
    if not end or not run.writer:
        return []
    try:
        run.writer.check_folder()
        if any(step <= extension.start for extension in folder.extensions):
            return []  # these steps are repeated, and what follows them is recorded already
        folder.extend(Extension(step, end, REPLANNED, asked))
    except OSError as error:
        run.observer.on_warning(f"the number of steps stays as it was: {error}")
        return []
    return folder.extensions


def _policy(recipe: Recipe, extensions: Sequence[Extension]) -> Policy:
    return Policy(recipe.run.keep_last, steps_kept(recipe, extensions))


def _cadence(recipe: Recipe, extensions: Sequence[Extension], save_seconds: float) -> Cadence:
    run, (*former_ends, steps) = recipe.run, planned_ends(recipe, extensions)
    return Cadence(
        steps,
        run.log_every,
        run.eval_every,
        run.save_every,
        save_seconds,
        steps_kept(recipe, extensions) | {extension.start for extension in extensions},
        frozenset(former_ends),
    )


def _code(why: str, stop: Stop) -> int:
    # A launcher treats any other code as a crash, and may restart its processes.
    return EXIT_INTERRUPTED if why.startswith("SIG") and stop.launcher is None else 0


def _lock(folder: RunFolder, stack: ExitStack) -> None:
    stack.enter_context(folder.lock())
    checkpoint.clear_leftovers(folder.checkpoints)


def _unwrap(stepper: Stepper) -> None:
    """Drop the DDP wrapper before the process group is destroyed: the other order can hang."""
    stepper.wrapped = stepper.model
    gc.collect()
