"""The one loop: batch, losses, guard, update, log, evaluate, save."""

# B rows of the global batch

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.batches.keyed_random import key_of
from electrify.batches.loader import ahead
from electrify.training.checkpoint import NotSaved, Snapshot, Writer, snapshot
from electrify.training.clock import Clock, Spent
from electrify.training.engine import Engine
from electrify.training.evaluate import evaluate
from electrify.training.guard import Action, Guard
from electrify.training.signals import Stop
from electrify.training.state import model_tensors, optimizer_tensors, weights_norm
from electrify.training.update import May, Sums, Update, add, update

ENDS = {Action.RELOAD: "reload", Action.STOP: "guard"}
NEVER: May = lambda loss, norm: False  # noqa: E731


class Task(NamedTuple):
    """What is learned from: batches by number, and what a model makes of them."""

    batches: Any
    """`batches[k]` is global batch k, of which `.rows(a, b)` are some rows."""
    batch_size: int
    tensors: Callable[[Any], Any]
    """Some rows as the model takes them."""
    totals: Callable[[Any], Any]
    """What the losses of a global batch are divided by."""
    metrics: Callable[[Sums, int], dict[str, float]]


class Cadence(NamedTuple):
    """How often, in steps; 0 is never."""

    steps: int
    log: int
    evaluate: int
    save: int
    save_seconds: float
    """Of wall clock since the last save."""
    save_at: frozenset[int] = frozenset()
    """Steps to save at besides."""


class Done(NamedTuple):
    """Where the loop came to, and why it ended there."""

    step: int
    why: str
    """Empty at the end of training; "reload" if the guard asks to go back, "guard" to give up."""


def to_stderr(text: str) -> None:
    """Warn somebody who looks at the terminal."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


@dataclass
class Training:
    """Everything the loop moves, in one place."""

    model: nn.Module
    """The objective, as it is saved."""
    wrapped: nn.Module
    """The same, as it is called: its gradients are added up over processes."""
    optimizer: torch.optim.Optimizer
    engine: Engine
    task: Task
    held_out: Task | None
    held_out_batches: int
    rate: Callable[[int], float]
    clip: float
    seed: int
    micro_batch: int
    workers: int
    guard: Guard
    stop: Stop
    stop_if_unsaved: bool = False
    writer: Writer | None = None
    """None in processes that do not write."""
    told: Callable[[str, int, dict[str, float], dict[str, float]], None] = lambda *what: None
    """Takes a split, the step, metrics and timings."""
    synced: Callable[[], None] = lambda: None
    """Makes what was told last; called before a checkpoint is written."""
    rewound: Callable[[int], None] = lambda step: None
    """Takes back what was told after a step."""
    warn: Callable[[str], None] = to_stderr
    flops_per_step: float = 0.0
    spent: Spent = field(default_factory=Spent)
    sums: Sums = field(default_factory=dict)
    """Since the last log line."""
    summed: int = 0
    measured: int = 0
    """The last step whose metrics on held-out text were told."""


def train(run: Training, start: int, cadence: Cadence) -> Done:
    """Train from step `start` to the end, or until there is a reason to stop."""
    clock = Clock()
    if start and due(start, cadence.evaluate, cadence.steps):
        with run.spent.on("evaluation"):  # it stopped between the save and the end of this
            hold_out(run, start)
    batches = ahead(run.task.batches, range(start, cadence.steps), run.workers)
    for step, batch in run.spent.waiting(batches):
        if why := reason_to_stop(run, clock.longest):
            with run.spent.on("saving"):
                return save(run, step) or Done(step, why)
        if step not in run.guard.left_out:
            done, action = one_update(run, step, batch)
            if run.guard.why:
                run.warn(run.guard.why)
            if action in ENDS:
                if not isfinite(weights_norm(run.model)):  # the batch before the bad ones did it
                    run.guard.left_out.add(run.guard.last_update)
                return Done(step, ENDS[action])
            if done.moved:
                run.sums, run.summed = add(run.sums, in_float64(done.sums)), run.summed + 1
        if run.writer is not None:
            unless_unsaved(run, run.writer.check)
        step += 1
        clock.ticked(int(run.task.totals(batch).tokens))
        if due(step, cadence.log, cadence.steps):
            log(run, step, clock)
        planned = due(step, cadence.save, cadence.steps) or step in cadence.save_at
        if planned or by_the_clock(run, clock, cadence):
            with run.spent.on("saving"):
                if lost := save(run, step):
                    return lost
            clock.saved()
        if due(step, cadence.evaluate, cadence.steps):
            with run.spent.on("evaluation"):
                hold_out(run, step)
    if lost := lost_weights(run, cadence.steps):
        return lost
    unmeasured = run.held_out is not None and cadence.evaluate and run.measured < cadence.steps
    return Done(max(start, cadence.steps), reason_to_stop(run) if unmeasured else "")


def in_float64(sums: Sums) -> Sums:
    """Sums that come back the same from a checkpoint, whose numbers are Python's."""
    return {name: v.double() if v.is_floating_point() else v for name, v in sums.items()}


def due(step: int, every: int, last: int) -> bool:
    """Whether something that happens every so many steps, and at the end, happens now."""
    return bool(every) and (step % every == 0 or step == last)


def one_update(run: Training, step: int, batch: Any) -> tuple[Update, Action]:
    """Move the weights by one global batch, if the guard lets them."""
    judged = Action.GO

    def may_move(loss: float, norm: float) -> bool:
        nonlocal judged
        judged = run.guard.judge(step, loss, norm)
        return judged is Action.GO

    return one_gradient(run, step, batch, may_move), judged


def one_gradient(run: Training, step: int, batch: Any, may_move: May = NEVER) -> Update:
    """The gradient of one global batch, in micro-batches; the weights move if they may."""
    cuts = cut_rows(run.engine.rows(run.task.batch_size), run.micro_batch)
    return update(
        run.wrapped,
        run.optimizer,
        [run.task.tensors(batch.rows(start, stop)) for start, stop in cuts],
        run.task.totals(batch),
        run.rate(step),
        run.clip,
        engine=run.engine,
        may_move=may_move,
        before=lambda number: seed_dropout(run.seed, step, cuts[number][0]),
        spent=run.spent if run.spent.is_due() else None,
    )


def cut_rows(rows: range, micro_batch: int) -> list[tuple[int, int]]:
    """The first row, and the one after the last, of each micro-batch; 0 is all rows at once."""
    size = micro_batch or len(rows)
    return [(i, min(i + size, rows.stop)) for i in range(rows.start, rows.stop, size)]


def seed_dropout(seed: int, step: int, row: int) -> None:
    """Dropout is a function of the seed, the step and the first row of the micro-batch."""
    torch.manual_seed(int(key_of(seed, f"dropout {row}", step)) >> 1)


def reason_to_stop(run: Training, step_seconds: float = 0.0) -> str:
    """Why all processes stop now, if they do, rather than take a step of so many seconds."""
    writing = run.writer.seconds if run.writer is not None else 0.0
    mine = run.stop.why(step_seconds + writing)
    if float(run.engine.total(torch.tensor(float(bool(mine))))) == 0:
        return ""
    return mine or "another process was asked to stop"


def by_the_clock(run: Training, clock: Clock, cadence: Cadence) -> bool:
    """Whether it is time to save, by the first process's clock."""
    mine = run.engine.first and clock.save_is_due(cadence.save_seconds)
    return float(run.engine.total(torch.tensor(float(mine)))) > 0


def log(run: Training, step: int, clock: Clock) -> None:
    """Say how the steps since the last line went."""
    if run.summed:
        metrics = run.task.metrics(run.engine.totals(run.sums), run.summed)
        metrics["learning_rate"] = run.rate(step - 1)
        for alarm in run.guard.observe(step, metrics):
            run.warn(alarm)
        run.told("train", step, metrics, clock.timings())
    run.sums, run.summed = {}, 0


def hold_out(run: Training, step: int) -> None:
    """Measure on text that is not trained on, unless that is done or there is reason to stop."""
    if run.held_out is None or run.measured >= step:
        return
    metrics = evaluate(
        run.model,
        run.engine,
        held_out_micro_batches(run, run.held_out),
        run.held_out.metrics,
        run.held_out_batches,
    )
    if reason_to_stop(run):
        return  # perhaps in the middle; it is done again when the run goes on
    run.measured = step
    run.told("validation", step, metrics, {})


def held_out_micro_batches(run: Training, task: Task) -> Iterator[tuple[Any, Any]]:
    """Pairs of a micro-batch of this process and the totals of its batch; none after a stop."""
    rows = run.engine.share(task.batch_size)
    for number in range(run.held_out_batches):
        if reason_to_stop(run):
            return
        batch = task.batches[number]
        for start, stop in cut_rows(rows, run.micro_batch):
            yield task.tensors(batch.rows(start, stop)), task.totals(batch)


def lost_weights(run: Training, step: int) -> Done | None:
    """Where training ends if the weights at a step are not finite; None if they are.

    They can be infinite although no loss was: by the very last update, or in the embeddings of
    tokens that no batch has had.
    """
    if isfinite(weights_norm(run.model)):
        return None
    action = run.guard.condemn()
    run.warn(run.guard.why)
    return Done(step, ENDS[action])


def save(run: Training, step: int) -> Done | None:
    """Write a checkpoint in the background; a failure is told now or at the next save.

    Weights that are not finite are not written: then it returns where training ends.
    """
    if lost := lost_weights(run, step):
        return lost
    sums = {name: value.tolist() for name, value in run.engine.totals(run.sums).items()}
    model = run.engine.whole(model_tensors(run.model))
    moments = run.engine.whole(optimizer_tensors(run.model, run.optimizer))
    if run.writer is None:
        return None

    def take() -> Snapshot:
        state = {
            "step": step,
            "guard": run.guard.state(),
            "scale": run.engine.scale_state(),
            "sums": sums,
            "summed": run.summed,
        }
        return snapshot(step, model, moments, state)

    writer = run.writer

    def write() -> None:
        try:
            run.synced()
        except OSError as error:
            raise NotSaved(error) from error
        # While the loss is not finite these weights may be why: older checkpoints are kept.
        writer.save(take, prune=run.guard.loss_is_finite)

    unless_unsaved(run, write)
    return None


def unless_unsaved(run: Training, work: Callable[[], None]) -> None:
    """Do something that raises if a checkpoint could not be written: stop, or warn and go on."""
    try:
        work()
    except NotSaved as error:
        if run.stop_if_unsaved:
            raise
        run.warn(f"{error.what}: {error.got}; training goes on, the next save is tried as usual")
