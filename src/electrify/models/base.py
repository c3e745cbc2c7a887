"""What a released model consists of: a pair, a discriminator, a masked LM or an encoder alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoModelForMaskedLM

from electrify.config import fill
from electrify.errors import UserError
from electrify.models.export import encoder_folder
from electrify.models.pair import REPLACED_LABELS
from electrify.models.pretrained import open_config, open_model
from electrify.recipes.schema import Recipe
from electrify.storage.commit import read_manifest

ROLES_IN_FOLDER = ("discriminator", "generator", "model")


class BaseModel(NamedTuple):
    """A released model: the folder or Hub name of each of its networks, empty if it has none."""

    encoder: str
    """What is fine-tuned; it has the tokenizer."""
    discriminator: str
    masked_lm: str
    """A network with a masked-LM head: beside a discriminator, its generator."""
    config: Any
    """Configuration of the encoder."""
    recipe: Recipe | None = None
    """How it was trained, if electrify exported it."""

    @property
    def description(self) -> str:
        """Return what it has and what it lacks, in one line."""
        if self.discriminator and self.masked_lm:
            return "a discriminator and a generator"
        if self.discriminator:
            return "a discriminator without a generator, which is made from its first layers"
        if self.masked_lm:
            return "a masked language model"
        return "an encoder without a masked-LM head, which starts from scratch"


def open_base(source: str, generator: str = "") -> BaseModel:
    """Find the networks of a model: an export of electrify, or one folder or Hub name."""
    folder = Path(source)
    if (folder / "run.json").is_file():
        raise UserError(
            f"{source} is a run, not an exported model",
            got="a folder with run.json",
            fix=f"electrify export {source} --out MODEL, and give MODEL",
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        found = {
            role: str(folder / role)
            for role in ROLES_IN_FOLDER
            if (folder / role / "config.json").is_file()
        }
        if found:
            return _exported(folder, found, generator)
    config = open_config(source)
    discriminator = source if is_discriminator(config) else ""
    masked_lm = generator or ("" if discriminator else _if_masked_lm(source))
    if generator and not (discriminator and _if_masked_lm(generator)):
        wrong = source if not discriminator else generator
        raise UserError(
            "--generator belongs to a discriminator, and must be a masked language model",
            got=f"{wrong} ({', '.join(open_config(wrong).architectures or ['no architecture'])})",
            fix="give MODEL the discriminator and --generator its generator, or leave it out",
        )
    return BaseModel(source, discriminator, masked_lm, config)


def _exported(folder: Path, found: Mapping[str, str], generator: str) -> BaseModel:
    """Return the networks of a folder that electrify exported, and its recipe."""
    if generator:
        raise UserError(
            f"{folder} has its own networks",
            got=f"--generator {generator}, and {', '.join(found)} in {folder}",
            fix="leave out --generator",
        )
    encoder = str(encoder_folder(folder))
    discriminator = found.get("discriminator", "")
    masked_lm = found.get("generator", "") or found.get("model", "")
    recipe = None
    if (folder / "manifest.json").is_file():
        table = read_manifest(folder, "model")["identity"].get("run", {}).get("recipe")
        recipe = None if table is None else fill(Recipe, table, str(folder), None)
    return BaseModel(encoder, discriminator, masked_lm, open_config(encoder), recipe)


def is_discriminator(config: Any) -> bool:
    """Return whether a model detects replaced tokens, according to its configuration."""
    architectures = list(config.architectures or [])
    if "ElectraForPreTraining" in architectures:
        return True
    classifies_tokens = any(name.endswith("ForTokenClassification") for name in architectures)
    return classifies_tokens and config.id2label == REPLACED_LABELS


def _if_masked_lm(source: str) -> str:
    """Return the source if it has a complete masked-LM head, otherwise nothing."""
    try:
        _, loaded = open_model(AutoModelForMaskedLM, source, ignore_mismatched_sizes=True)
    except UserError:
        return ""
    return "" if loaded["missing_keys"] or loaded["mismatched_keys"] else source
