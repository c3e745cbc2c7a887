"""`electrify export RUN --out DIR`: a run's newest checkpoint as Hugging Face folders."""

from pathlib import Path

from electrify.models.card import ROWS, Facts, card
from electrify.models.export import export
from electrify.training.folder import RunFolder
from electrify.training.journal import read
from electrify.training.options import Export
from electrify.training.trained import load_trained


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
