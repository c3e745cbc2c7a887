"""Going on where a run stopped, and going back where the guard asks for it."""

from pathlib import Path

import numpy as np
import torch

from electrify.training import checkpoint
from electrify.training.loop import Cadence, Done, Training, save, train, unless_unsaved
from electrify.training.state import load_model, load_optimizer


def begin_or_restore(run: Training, checkpoints: Path) -> int:
    """Put the newest whole checkpoint in place, or write the first one; returns its step."""
    step = restore(run, checkpoints)
    if step is not None:
        return step
    run.guard.load({})
    save(run, 0)
    return 0


def restore(run: Training, checkpoints: Path) -> int | None:
    """Put the newest whole checkpoint in place; returns its step, None if there is none."""
    engine = run.engine
    of_run = run.writer.run if run.writer is not None else ""
    found = engine.first_then_others(lambda: checkpoint.newest(checkpoints, run.warn, of_run))
    if found is None:
        return None
    taken = checkpoint.load(found)
    source = str(found.folder)
    load_model(run.model, taken.model, source)
    load_optimizer(run.model, run.optimizer, taken.optimizer, source)
    run.guard.load(taken.state["guard"])
    engine.load_scale(taken.state["scale"])
    run.summed = taken.state["summed"]
    # Sums are those of all processes: the first has them, so that they count once.
    run.sums = {
        name: torch.from_numpy(np.asarray(value)).to(engine.device) * engine.first
        for name, value in taken.state["sums"].items()
    }
    return taken.step


def train_to_the_end(run: Training, checkpoints: Path | None, cadence: Cadence, start: int) -> Done:
    """Train to the end, going back to a checkpoint where the guard asks for it, if there is one."""
    while True:
        done = train(run, start, cadence)
        if run.writer is not None and done.why == "reload":
            unless_unsaved(run, run.writer.wait)
        elif run.writer is not None:
            run.writer.close()
        run.engine.wait()
        if done.why == "guard":
            raise run.guard.error()
        if done.why != "reload":
            return done
        run.warn(f"{run.guard.why}; going back to the last checkpoint, without the bad batches")
        back = None if checkpoints is None else restore(run, checkpoints)
        if back is None:  # no save has succeeded: there is nothing to go back to
            raise run.guard.error()
        start, run.measured = back, min(run.measured, back)
        run.rewound(start)
