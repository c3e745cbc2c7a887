"""The training loop: accumulate a gradient, judge it, apply it; then log, save and evaluate."""

from typing import NamedTuple

from electrify.batches.loader import ahead
from electrify.objectives.objective import Sums
from electrify.training.checkpoint import Stored
from electrify.training.clock import Clock
from electrify.training.engine import NO_REQUESTS, Requests
from electrify.training.evaluate import validate
from electrify.training.guard import Action
from electrify.training.saving import (
    newest_checkpoint,
    restore,
    save,
    save_errors_handled,
    weights_are_finite,
)
from electrify.training.training import GENERAL, Training
from electrify.training.update import add

RELOAD, GUARD, REPLAN = "reload", "guard", "replan"
END_REASONS = {Action.RELOAD: RELOAD, Action.STOP: GUARD}


class Done(NamedTuple):
    """The step at which the loop ended, and why."""

    step: int
    why: str
    """Empty after the last step; else RELOAD, GUARD, REPLAN, or the reason to stop."""


def resume(run: Training, found: Stored | None) -> None:
    """Restore a checkpoint, or write the first one of a new run."""
    if found is not None:
        restore(run, found)
    else:
        run.guard.load({})
        save(run, 0)


def train(run: Training, start: int) -> Done:
    """Train to the last step, reloading the newest checkpoint whenever the guard asks for it."""
    run.stepper.spent.restart()
    while True:
        done = train_from(run, start)
        if done.why == REPLAN:
            start = done.step
            continue
        if run.writer is not None:
            if done.why == RELOAD:
                with save_errors_handled(run):
                    run.writer.wait()
            else:
                run.writer.close()
        run.stepper.engine.barrier()
        if done.why == GUARD:
            raise run.guard.error()
        if done.why != RELOAD:
            return done
        run.observer.on_warning(
            f"{run.guard.why}; reloading the last checkpoint and leaving out the bad batches"
        )
        found = newest_checkpoint(run.stepper.engine, run.writer, run.observer)
        if found is None:  # no save has succeeded
            raise run.guard.error(reloaded=False)
        restore(run, found)
        start = found.step
        run.evaluated = min(run.evaluated, start)
        run.observer.on_rewind(start)


def train_from(run: Training, start: int) -> Done:
    """Train from a step to the last one, or until there is a reason to stop."""
    stepper, guard, cadence, clock = run.stepper, run.guard, run.cadence, Clock()
    # Forgetting is measured from step 0 on.
    if (start or run.general is not None) and cadence.due(start, cadence.evaluate):
        evaluate_at(run, start)  # the run may have stopped after the save and before its evaluation
    batches = ahead(stepper.task.batches, range(start, cadence.steps), run.workers)
    requested = Requests(stop=bool(reason_to_stop(run)), save=False)
    for step, batch in stepper.spent.waiting(batches):
        if why := stepper.engine.agreed(own_reason(run, clock.longest), requested.stop):
            return save_at(run, step) or Done(step, why)
        requested, replanned = NO_REQUESTS, False
        if step not in guard.left_out:
            gradient = stepper.accumulate(step, batch, requests(run, clock))
            requested = gradient.requests
            action = guard.judge(step, gradient.loss, gradient.norm)
            stepper.apply(lr=run.schedule(step), move=action is Action.GO)
            if guard.why:
                run.observer.on_warning(guard.why)
            if action in END_REASONS:
                if not weights_are_finite(run):  # the last update before the bad batches caused it
                    guard.left_out.add(guard.last_update)
                return Done(step, END_REASONS[action])
            if action is Action.GO:
                run.sums, run.summed = add(run.sums, in_float64(gradient.sums)), run.summed + 1
        if run.writer is not None:
            with save_errors_handled(run):
                run.writer.check()
        step += 1
        clock.ticked(int(batch.totals().tokens) * stepper.engine.world)
        if cadence.due(step, cadence.log):
            log(run, step, clock)
            replanned = step < cadence.steps and run.replan(step)
        scheduled = cadence.due(step, cadence.save) or step in cadence.save_at or replanned
        if scheduled or save_time_reached(run, clock, requested):
            if lost := save_at(run, step):
                return lost
            clock.saved()
        if cadence.due(step, cadence.evaluate):
            evaluate_at(run, step)
        if replanned:
            return Done(step, REPLAN)
    if lost := lost_weights(run, cadence.steps):
        return lost
    unevaluated = run.validation is not None and cadence.evaluate and run.evaluated < cadence.steps
    return Done(max(start, cadence.steps), reason_to_stop(run) if unevaluated else "")


def in_float64(sums: Sums) -> Sums:
    """Return sums in float64, which a checkpoint stores exactly."""
    return {name: v.double() if v.is_floating_point() else v for name, v in sums.items()}


def own_reason(run: Training, step_seconds: float = 0.0) -> str:
    """Return why this rank must stop before another step of `step_seconds`; "" if it need not."""
    writing = run.writer.seconds if run.writer is not None else 0.0
    return run.stop.why(step_seconds + writing)


def reason_to_stop(run: Training) -> str:
    """Return why all ranks must stop; "" if they need not."""
    return run.stepper.engine.any_reason(own_reason(run))


def requests(run: Training, clock: Clock) -> Requests:
    """Return what this rank asks of all ranks; they stop after one more step, so it asks early."""
    return Requests(
        stop=bool(own_reason(run, 2 * clock.longest)),
        save=run.stepper.engine.is_main and clock.save_is_due(run.cadence.save_seconds),
    )


def save_time_reached(run: Training, clock: Clock, requested: Requests) -> bool:
    """Return whether the time between saves has passed, by the main rank's clock."""
    if run.stepper.engine.world > 1:
        return requested.save
    return clock.save_is_due(run.cadence.save_seconds)


def log(run: Training, step: int, clock: Clock) -> None:
    """Log the training metrics since the last log, and raise alarms about them."""
    if run.summed:
        sums = run.stepper.engine.all_reduce_sums(run.sums)
        metrics = run.stepper.task.metrics(sums, run.summed)
        metrics["learning_rate"] = run.schedule(step - 1)
        metrics["gradient_norm"] = run.guard.gradient_norm
        for alarm in run.guard.observe(step, metrics):
            run.observer.on_warning(alarm)
        timings = clock.timings() | run.stepper.spent.since_last_log()
        run.observer.on_log("train", step, metrics, timings)
    run.sums, run.summed = {}, 0


def evaluate_at(run: Training, step: int) -> None:
    """Evaluate and log validation metrics, unless that is done or the run is asked to stop."""
    if run.validation is None or run.evaluated >= step:
        return
    with run.stepper.spent.on("evaluation"):
        metrics = validate(run.stepper, run.validation, lambda: reason_to_stop(run))
        if run.general is not None:
            general = validate(run.stepper, run.general, lambda: reason_to_stop(run))
            metrics |= {f"{GENERAL}{name}": value for name, value in general.items()}
    if reason_to_stop(run):
        return  # the evaluation may be incomplete; it is repeated when the run resumes
    run.evaluated = step
    run.observer.on_log("validation", step, metrics | run.validation.baselines(), {})


def save_at(run: Training, step: int) -> Done | None:
    """Save a checkpoint and return None, unless the weights are not finite: then end training."""
    with run.stepper.spent.on("saving"):
        if lost := lost_weights(run, step):
            return lost
        save(run, step)
    return None


def lost_weights(run: Training, step: int) -> Done | None:
    """Return how training ends if the weights are not finite; None if they are.

    They can be non-finite although every loss was finite: after the very last update, or in the
    embeddings of tokens that were in no batch.
    """
    if weights_are_finite(run):
        return None
    action = run.guard.reject_weights()
    run.observer.on_warning(run.guard.why)
    return Done(step, END_REASONS[action])
