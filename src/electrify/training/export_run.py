"""Implement `electrify export RUN --out DIR`: write a checkpoint as Hugging Face models."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from electrify.models.export import ENCODER_ROLE, encoder_alone, export_networks
from electrify.objectives.card import CardInputs, card
from electrify.training.extension import REPLANNED, begun_before, planned_ends
from electrify.training.folder import RunFolder
from electrify.training.journal import NO_NAMES, read_metrics
from electrify.training.options import Export
from electrify.training.trained import load_trained


class Exported(NamedTuple):
    """An exported checkpoint."""

    step: int
    folders: dict[str, Path]
    """The folders by role."""
    networks: dict[str, Any]
    """The networks by role, as they are in the run."""
    facts: CardInputs


def export_run(settings: Export) -> dict[str, Path]:
    """Write a folder for each network and DIR/encoder; returns the folders by role."""
    return export_checkpoint(settings).folders


def export_checkpoint(settings: Export) -> Exported:
    """Write a folder for each network and DIR/encoder; returns them with the networks."""
    folder = RunFolder(settings.run)
    about = folder.about
    step, recipe, tokenizer, objective = load_trained(settings.run, settings.step)
    extensions = begun_before(folder.extensions, step)
    record = validation_record(settings.run, step, objective.former_names)
    main = objective.networks[objective.main]
    networks = {**objective.networks, ENCODER_ROLE: encoder_alone(main)}
    for name, value in objective.config_fields(record).items():
        setattr(main.config, name, value)
    total = planned_ends(recipe, extensions)[-1]
    extended = tuple(str(e) for e in extensions if e.schedule != REPLANNED)
    facts = CardInputs(objective, recipe, step, about["shards"], record, total, extended)
    cards = {role: card(role, net, facts) for role, net in networks.items()}
    identity = {"run": about["identity"], "step": step}
    if extensions:
        identity["extensions"] = [asdict(extension) for extension in extensions]
    export_networks(networks, cards, tokenizer, settings.out, identity, recipe.run.length)
    for role, network in networks.items():
        if (settings.out / role).is_dir():
            print(f"{settings.out / role}: {type(network).__name__}, step {step:,}")
        else:  # an export made before the encoder was exported
            print(
                f"note: {settings.out} has no {role}: a finished export is not changed; "
                "use another --out to get one"
            )
    folders = {role: settings.out / role for role in networks if (settings.out / role).is_dir()}
    return Exported(step, folders, networks, facts)


def validation_record(run: Path, step: int, former: Mapping[str, str] = NO_NAMES) -> dict[str, Any]:
    """Return the last validation metrics up to a step; empty if there are none."""
    records = read_metrics(run, former)
    validation = [r for r in records if r["split"] == "validation" and r["step"] <= step]
    return validation[-1] if validation else {}


def validation_metrics(run: Path, step: int) -> dict[str, float]:
    """Return the last validation metrics up to a step, without what identifies the record."""
    record = validation_record(run, step)
    return {name: value for name, value in record.items() if name not in ("step", "split")}
