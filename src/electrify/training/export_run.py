"""`electrify export RUN --out DIR`: a run's newest checkpoint as Hugging Face folders."""

from pathlib import Path
from typing import Any

from electrify.models.card import ROWS, Facts, card
from electrify.models.export import ENCODER, encoder_alone, export
from electrify.training.folder import RunFolder
from electrify.training.journal import read
from electrify.training.options import Export
from electrify.training.trained import load_trained

DETECTION = ("threshold", "replaced_rate", "false_alarm_rate")
"""What `inspect` needs to know about a discriminator; kept in its configuration."""


def export_run(settings: Export) -> None:
    """Write DIR/discriminator and DIR/generator, or DIR/model, and DIR/encoder."""
    about = RunFolder(settings.run).about
    step, recipe, tokenizer, objective = load_trained(settings.run, settings.step)
    record = validation_record(settings.run, step)
    measured = {name: value for name, value in record.items() if name in ROWS and value is not None}
    facts = Facts(recipe, step, about["shards"], measured, objective.notes)
    trained = objective.networks
    main = trained["discriminator"] if "discriminator" in trained else trained["model"]
    networks = {**trained, ENCODER: encoder_alone(main)}
    if "discriminator" in trained and record.get("threshold") is not None:
        main.config.replaced_token_detection = {name: record[name] for name in DETECTION}
    cards = {role: card(role, net, facts) for role, net in networks.items()}
    identity = {"run": about["identity"], "step": step}
    export(networks, cards, tokenizer, settings.out, identity, recipe.run.length)
    for role, network in networks.items():
        if (settings.out / role).is_dir():
            print(f"{settings.out / role}: {type(network).__name__}, step {step:,}")
        else:  # as in exports from before there was an encoder
            print(
                f"note: {settings.out} has no {role}: it is a finished export, which is not "
                "changed; give another --out to get one"
            )


def validation_record(run: Path, step: int) -> dict[str, Any]:
    """The newest evaluation on the validation set up to a step; empty if there was none."""
    records = [r for r in read(run) if r["split"] == "validation" and r["step"] <= step]
    return records[-1] if records else {}
