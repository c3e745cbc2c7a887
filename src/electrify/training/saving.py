"""Save the state of a run in checkpoints, and restore it."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

import numpy as np
import torch

from electrify.training import checkpoint
from electrify.training.checkpoint import SaveError, Snapshot, Stored, Writer, snapshot
from electrify.training.engine import Engine
from electrify.training.journal import NO_NAMES, renamed
from electrify.training.observer import Observer
from electrify.training.replicas import check_replicas
from electrify.training.state import (
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
    weights_norm,
)
from electrify.training.training import Training


def weights_are_finite(run: Training) -> bool:
    """Return whether every weight is finite."""
    return isfinite(weights_norm(run.stepper.model))


def save(run: Training, step: int) -> None:
    """Write a checkpoint in the background; an error is reported now or later in the loop.

    Ranks whose weights differ save nothing, so that the last good checkpoint is kept.
    """
    engine, model = run.stepper.engine, run.stepper.model
    check_replicas(engine, model)
    # Gathering is collective, so every rank takes part before those that do not write return.
    sums = {name: value.tolist() for name, value in engine.all_reduce_sums(run.sums).items()}
    weights = engine.gather_full_tensors(model_tensors(model))
    moments = engine.gather_full_tensors(optimizer_tensors(model, run.stepper.optimizer))
    writer = run.writer
    if writer is None:
        return

    def take() -> Snapshot:
        state = {
            "step": step,
            "guard": run.guard.state(),
            "scale": engine.scale_state(),
            "sums": sums,
            "summed": run.summed,
        }
        return snapshot(step, weights, moments, state)

    with save_errors_handled(run):
        try:
            run.observer.on_save()
        except OSError as error:
            raise SaveError(error) from error
        # If the loss is not finite, these weights may be the cause, so older checkpoints stay.
        writer.save(take, prune=run.guard.loss_is_finite)


@contextmanager
def save_errors_handled(run: Training) -> Iterator[None]:
    """Turn a checkpoint that cannot be written into a warning, unless it must stop the run."""
    try:
        yield
    except SaveError as error:
        if run.stop_if_unsaved:
            raise
        run.observer.on_warning(
            f"{error.what}: {error.got}; training continues, and the next save is tried as usual"
        )


def newest_checkpoint(engine: Engine, writer: Writer | None, observer: Observer) -> Stored | None:
    """Return the newest intact checkpoint of a run, the same on every rank."""
    found: Stored | None = engine.main_first(
        lambda: writer and checkpoint.newest(writer.folder, observer.on_warning, writer.run)
    )
    return found


def restore(run: Training, found: Stored) -> None:
    """Restore weights, optimizer state, guard and sums from a checkpoint."""
    engine, model = run.stepper.engine, run.stepper.model
    taken, source = checkpoint.read_checkpoint(found), str(found.folder)
    load_model(model, taken.model, source)
    load_optimizer(model, run.stepper.optimizer, taken.optimizer, source)
    run.guard.load(taken.state["guard"])
    engine.load_scale(taken.state["scale"])
    run.summed = taken.state["summed"]
    sums = renamed(taken.state["sums"], getattr(model, "former_names", NO_NAMES))
    # The sums are those of all ranks, so only the main rank restores them.
    run.sums = {
        name: torch.from_numpy(np.asarray(value)).to(engine.device) * engine.is_main
        for name, value in sums.items()
    }
