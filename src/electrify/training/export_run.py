"""`electrify export RUN --out DIR`: a run's newest checkpoint as Hugging Face folders."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from electrify.models.card import ROWS, Facts, card
from electrify.models.export import export
from electrify.training.folder import RunFolder
from electrify.training.journal import read
from electrify.training.trained import NEWEST, load_trained


@dataclass(frozen=True)
class Export:
    """A run's networks as folders that transformers loads, with tokenizer and model card."""

    run: tyro.conf.Positional[Path]
    """The folder of a run."""
    out: Path
    """The folder to make."""
    step: int = NEWEST
    """Which checkpoint; -1: the newest that is whole."""


def export_run(settings: Export) -> None:
    """Write DIR/discriminator and DIR/generator, or DIR/model for a masked-LM run."""
    about = RunFolder(settings.run).about
    step, recipe, tokenizer, objective = load_trained(settings.run, settings.step)
    measured = _held_out_metrics(settings.run, step)
    facts = Facts(recipe, step, about["shards"], measured, objective.notes)
    cards = {role: card(role, net, facts) for role, net in objective.networks.items()}
    identity = {"run": about["identity"], "step": step}
    export(objective.networks, cards, tokenizer, settings.out, identity, recipe.run.length)
    for role, network in objective.networks.items():
        print(f"{settings.out / role}: {type(network).__name__}, step {step:,}")


def _held_out_metrics(run: Path, step: int) -> dict[str, float]:
    """The newest measurement on held-out text up to a step, as far as it is defined."""
    records = [r for r in read(run) if r["split"] == "validation" and r["step"] <= step]
    newest = records[-1] if records else {}
    return {name: value for name, value in newest.items() if name in ROWS and value is not None}
