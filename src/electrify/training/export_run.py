"""`electrify export RUN --out DIR`: a run's newest checkpoint as Hugging Face folders."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from electrify.errors import DamagedError, UserError
from electrify.models.card import ROWS, Facts, card
from electrify.models.export import export
from electrify.tokens import tokenizer as tokenizers
from electrify.training import checkpoint
from electrify.training.checkpoint import Stored
from electrify.training.folder import RunFolder
from electrify.training.journal import read
from electrify.training.objective import build_objective
from electrify.training.state import load_model


@dataclass(frozen=True)
class Export:
    """A run's networks as folders that transformers loads, with tokenizer and model card."""

    run: tyro.conf.Positional[Path]
    """The folder of a run."""
    out: Path
    """The folder to make."""
    step: int = -1
    """Which checkpoint; -1: the newest that is whole."""


def export_run(settings: Export) -> None:
    """Write DIR/discriminator and DIR/generator, or DIR/model for a masked-LM run."""
    folder = RunFolder(settings.run)
    about, recipe = folder.about, folder.recipe
    chosen = _chosen(folder, settings.step)
    tokenizer = tokenizers.load(folder.tokenizer)
    objective = build_objective(folder.with_own_sizes(recipe), tokenizer)
    load_model(objective.model, checkpoint.load(chosen).model, str(chosen.folder))
    measured = _held_out_metrics(settings.run, chosen.step)
    facts = Facts(recipe, chosen.step, about["shards"], measured, objective.notes)
    cards = {role: card(role, net, facts) for role, net in objective.networks.items()}
    identity = {"run": about["identity"], "step": chosen.step}
    export(objective.networks, cards, tokenizer, settings.out, identity, recipe.run.length)
    for role, network in objective.networks.items():
        print(f"{settings.out / role}: {type(network).__name__}, step {chosen.step:,}")


def _chosen(folder: RunFolder, step: int) -> Stored:
    if step < 0:
        found = checkpoint.newest(folder.checkpoints, lambda text: print(text, file=sys.stderr))
        if found is not None:
            return found
    known = checkpoint.stored(folder.checkpoints)
    for one in known:
        if one.step == step and not (wrong := checkpoint.faults(one.folder)):
            return one
        if one.step == step:
            raise DamagedError(
                f"{one.folder} is damaged", got="; ".join(wrong), fix="take another --step"
            )
    raise UserError(
        f"{folder.path} has no such checkpoint",
        got=f"--step {step}" if step >= 0 else "no checkpoint at all",
        fix=f"there are: {', '.join(str(one.step) for one in known)}" if known else "train first",
    )


def _held_out_metrics(run: Path, step: int) -> dict[str, float]:
    """The newest measurement on held-out text up to a step, as far as it is defined."""
    records = [r for r in read(run) if r["split"] == "validation" and r["step"] <= step]
    newest = records[-1] if records else {}
    return {name: value for name, value in newest.items() if name in ROWS and value is not None}
