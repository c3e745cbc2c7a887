"""Weights that somebody released, to go on from: a folder or a Hub name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from electrify.errors import UserError
from electrify.recipe import Value

HEADS = ("classifier", "score", "discriminator_predictions", "lm_head", "cls", "predictions")
"""What a released body may lack, because it was trained for something else."""


def released_config(source: str, architecture: str, fields: Mapping[str, Value], role: str) -> Any:
    """The configuration of a released model, with the fields of the recipe in place of its own."""
    try:
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UserError(
            f"no model at {role}.init_from",
            got=f"{source}: {str(error).splitlines()[0]}",
            fix="give a folder with config.json and model.safetensors, or a name on the Hub",
        ) from error
    if config.model_type != architecture:
        raise UserError(
            f"{role}.init_from is another architecture than the recipe's",
            got=f"{source} is {config.model_type}, the recipe says {architecture}",
            fix=f"set {role}.architecture to {config.model_type}, or take another model",
        )
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def check_vocabulary(config: Any, size: int, source: str) -> None:
    """A released model speaks the tokens it was trained with, and no others."""
    if config.vocab_size != size:
        raise UserError(
            "the shards were not prepared for this released model",
            got=f"{size:,} tokens in the shards' tokenizer, {config.vocab_size:,} in {source}",
            fix=f"electrify prepare DOCS --tokenizer {source} --out SHARDS",
        )


def load_released(kind: Any, config: Any, source: str, role: str) -> tuple[Any, list[str]]:
    """A network with released weights, and in words what of it was not among them."""
    try:
        network, loaded = kind.from_pretrained(
            source, config=config, output_loading_info=True, ignore_mismatched_sizes=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"the weights of {role}.init_from cannot be loaded",
            got=f"{source}: {str(error).splitlines()[0]}",
            fix="give a folder that save_pretrained wrote, or a name on the Hub",
        ) from error
    if loaded["mismatched_keys"]:
        name, there, here = sorted(loaded["mismatched_keys"])[0]
        raise UserError(
            f"the sizes of {role}.init_from are not the recipe's",
            got=f"{name} is {tuple(there)} in {source}, {tuple(here)} by the recipe",
            fix=f"leave out the fields of [{role}.config], or set them to the released model's",
        )
    missing = sorted(loaded["missing_keys"])
    body = [name for name in missing if not name.startswith(HEADS)]
    if body:
        raise UserError(
            f"{role}.init_from lacks weights",
            got=f"no {body[0]} and {len(body) - 1} more in {Path(source).name}",
            fix="give a complete model of this architecture",
        )
    return network, [f"{role}: {name} is new" for name in missing]
