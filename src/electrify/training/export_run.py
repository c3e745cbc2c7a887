"""`electrify export RUN --out DIR`: a run's newest checkpoint as Hugging Face folders."""

from pathlib import Path
from typing import Any

from electrify.models.card import ROWS, Facts, card
from electrify.models.export import export
from electrify.training.folder import RunFolder
from electrify.training.journal import read
from electrify.training.options import Export
from electrify.training.trained import load_trained

DETECTION = ("threshold", "replaced_rate", "false_alarm_rate")
"""What `inspect` needs to know about a discriminator; kept in its configuration."""


def export_run(settings: Export) -> None:
    """Write DIR/discriminator and DIR/generator, or DIR/model for a masked-LM run."""
    about = RunFolder(settings.run).about
    step, recipe, tokenizer, objective = load_trained(settings.run, settings.step)
    record = validation_record(settings.run, step)
    measured = {name: value for name, value in record.items() if name in ROWS and value is not None}
    facts = Facts(recipe, step, about["shards"], measured, objective.notes)
    cards = {role: card(role, net, facts) for role, net in objective.networks.items()}
    if "discriminator" in objective.networks and record.get("threshold") is not None:
        kept = {name: record[name] for name in DETECTION}
        objective.networks["discriminator"].config.replaced_token_detection = kept
    identity = {"run": about["identity"], "step": step}
    export(objective.networks, cards, tokenizer, settings.out, identity, recipe.run.length)
    for role, network in objective.networks.items():
        print(f"{settings.out / role}: {type(network).__name__}, step {step:,}")


def validation_record(run: Path, step: int) -> dict[str, Any]:
    """The newest evaluation on the validation set up to a step; empty if there was none."""
    records = [r for r in read(run) if r["split"] == "validation" and r["step"] <= step]
    return records[-1] if records else {}
