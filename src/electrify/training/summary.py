"""What a run prints before its first step and after its last."""

from pathlib import Path

from electrify.objectives.objective import Objective
from electrify.progress import duration
from electrify.recipes.schema import Recipe
from electrify.tokens.examples import notes
from electrify.training.clock import Spent
from electrify.training.engine import Engine
from electrify.training.journal import seconds_trained
from electrify.training.loop import Done
from electrify.training.training import Training


def beginning(recipe: Recipe, objective: Objective, run: Training, start: int) -> str:
    """Return what is about to happen, in a few lines."""
    steps, size = recipe.run.steps, recipe.run.batch_size
    examples = run.stepper.task.batches.examples
    sizes = ", ".join(
        f"{role} {type(net).__name__} {net.num_parameters():,}"
        for role, net in objective.networks.items()
    )
    together = sum(parameter.numel() for parameter in objective.parameters())
    epochs = steps * size / len(examples)
    lines = [
        f"{sizes}; together {together:,} parameters",
        f"precision {_precision(recipe, run.stepper.engine)}",
        f"{len(examples):,} examples; {steps:,} steps of {size}: {epochs:.1f} epochs",
    ]
    if start:
        lines.append(f"going on from step {start:,}")
    if recipe.optimizer.warmup > steps:
        lines.append(
            f"note: the rate rises for {recipe.optimizer.warmup:,} steps, which is longer than "
            "the run (--optimizer.warmup)"
        )
    lines += notes(examples.manifest)
    if run.validation is None:
        lines.append(
            "note: too few validation examples to evaluate on; prepare with a larger --validation"
        )
    lines += [f"note: not shared: {note}" for note in objective.notes]
    return "\n".join(lines)


def _precision(recipe: Recipe, engine: Engine) -> str:
    muon = f", Muon in {engine.choice.muon}" if recipe.optimizer.kind == "muon" else ""
    reason = f" ({engine.choice.reason})" if engine.choice.reason else ""
    return f"{recipe.run.precision}{muon}{reason}"


def end(done: Done, recipe: Recipe, out: Path, budget: str, spent: Spent) -> str:
    """Return where the time went, what was done, and what to do next."""
    lines = []
    if spent.updates:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in spent.shares().items())
        lines.append(f"time: {shares}")
    if done.why:
        lines.append(
            f"stopped at step {done.step:,} ({done.why}) and saved; the same command goes on"
        )
        return "\n".join(lines)
    if budget:
        lines.append(f"budget {budget}, its steps took {duration(seconds_trained(out))}")
    lines.append(f"done: {recipe.run.steps:,} steps in {out}")
    lines.append(f"next: electrify export {out} --out MODEL")
    return "\n".join(lines)
