"""The lines that a run prints before its first step and after its last."""

import math
from pathlib import Path
from typing import NamedTuple

from electrify.batches.mixture import Mixture
from electrify.batches.packing import PackedRows
from electrify.objectives.bands import sizes_of
from electrify.objectives.objective import Objective, objective_class
from electrify.objectives.verdict import run_verdict
from electrify.progress import duration
from electrify.recipes.schema import Recipe
from electrify.tokens.examples import notes
from electrify.tokens.store import Shards
from electrify.training.clock import Spent
from electrify.training.engine import Engine
from electrify.training.folder import RunFolder
from electrify.training.journal import read_metrics, seconds_trained
from electrify.training.loop import Done
from electrify.training.signals import parse_duration
from electrify.training.training import GENERAL, Training


def beginning(recipe: Recipe, objective: Objective, run: Training, start: int) -> str:
    """Return a few lines that describe the run."""
    steps, batches = run.cadence.steps, run.stepper.task.batches
    examples, epochs = batches.examples, batches.plan(steps).first / len(batches.examples)
    networks = ", ".join(
        f"{role} {type(net).__name__} ({net.num_parameters():,} parameters)"
        for role, net in objective.networks.items()
    )
    total = sum(parameter.numel() for parameter in objective.parameters())
    lines = [
        networks,
        f"{total:,} parameters in total, shared weights counted once",
        f"precision: {_precision(recipe, run.stepper.engine)}",
        f"{_described(examples)}; {steps:,} steps at batch size {_sizes(recipe)}"
        f" = {epochs:.1f} epochs",
    ]
    if start:
        lines.append(f"resuming from step {start:,}")
    if recipe.optimizer.warmup > recipe.run.steps:
        lines.append(
            f"note: the learning rate warms up for {recipe.optimizer.warmup:,} steps, longer than "
            "the run (--optimizer.warmup)"
        )
    lines += notes(examples.manifest, recipe.run.packing)
    if run.validation is None:
        lines.append(
            "note: too few validation examples to evaluate; prepare with a larger --validation"
        )
    lines += [f"note: {note}" for note in objective.notes]
    return "\n".join(lines)


def _sizes(recipe: Recipe) -> str:
    points = recipe.schedules.batch_size
    return " → ".join(f"{value:g}" for _, value in points) or f"{recipe.run.batch_size}"


def _described(examples: Shards | PackedRows | Mixture) -> str:
    if isinstance(examples, Mixture):
        main, general = len(examples.main), len(examples.general)
        return (
            f"{main:,} training examples, mixed with {examples.share:.0%} general text "
            f"({general:,} examples)"
        )
    if not isinstance(examples, PackedRows):
        return f"{len(examples):,} training examples"
    filled = examples.tokens / (len(examples) * examples.length)
    return (
        f"{len(examples.shards):,} training examples in {len(examples):,} rows, {filled:.1%} full"
    )


def _precision(recipe: Recipe, engine: Engine) -> str:
    muon = f", Muon in {engine.choice.muon}" if recipe.optimizer.kind == "muon" else ""
    reason = f" ({engine.choice.reason})" if engine.choice.reason else ""
    return f"{recipe.run.precision}{muon}{reason}"


def verdict_text(run: Path) -> str:
    """Return what a run has learned in plain words; empty if there is nothing to judge."""
    folder = RunFolder(run)
    recipe = folder.recipe
    objective = objective_class(recipe.objective.kind)
    sizes = sizes_of(recipe, folder.about["shards"]["identity"]["tokenizer"]["vocab_size"])
    records = read_metrics(run, objective.former_names)
    return str(run_verdict(objective, sizes, records, folder.steps) or "")


class GeneralChange(NamedTuple):
    """The validation loss on general text at the first and the last evaluation."""

    label: str
    start: int
    before: float
    end: int
    after: float
    untrained: bool = False
    """Whether the masked-LM head knew nothing at the start: any training then lowers the loss."""


def general_change(run: Path) -> GeneralChange | None:
    """Return how the loss on general text changed; None if it was not evaluated."""
    objective = objective_class(RunFolder(run).recipe.objective.kind)
    name, label = f"{GENERAL}{objective.judged}", objective.shown[objective.judged].label
    records = [r for r in read_metrics(run, objective.former_names) if r.get(name) is not None]
    if not records:
        return None
    first, last = records[0], records[-1]
    untrained = first[name] >= first.get("unigram_loss", math.inf)
    return GeneralChange(label, first["step"], first[name], last["step"], last[name], untrained)


def forgetting_text(run: Path) -> str:
    """Return how the loss on general text changed; empty if it was not evaluated."""
    if (change := general_change(run)) is None:
        return ""
    text = (
        f"general text: {change.label} {change.before:.3f} at step {change.start:,}, "
        f"{change.after:.3f} at step {change.end:,} ({change.after - change.before:+.3f})"
    )
    if change.untrained:
        text += "\n  The masked-LM head was new at the start, so this does not measure forgetting."
    return text


def end(done: Done, out: Path, budget: str, spent: Spent) -> str:
    """Return how the time was spent, what was done, and what to run next."""
    lines = []
    if spent.updates:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in spent.shares().items())
        lines.append(f"time spent: {shares}")
    if done.why:
        lines.append(
            f"stopped at step {done.step:,} ({done.why}) and saved; rerun the command to resume"
        )
        return "\n".join(lines)
    if budget:
        asked = duration(parse_duration(budget, "--budget"))
        lines.append(f"time budget {asked}; trained for {duration(seconds_trained(out))}")
    lines.append(f"done: {done.step:,} steps in {out}")
    lines += filter(None, [verdict_text(out), forgetting_text(out)])
    lines.append(f"next: electrify export {out} --out MODEL")
    lines.append(f"to train longer: electrify pretrain --resume {out} --more 1h")
    return "\n".join(lines)
