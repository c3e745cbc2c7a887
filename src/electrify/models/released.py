"""Weights that somebody released, to go on from: a folder or a Hub name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electrify.errors import UserError
from electrify.models.pretrained import open_config, open_model
from electrify.recipes.schema import FieldValue

HEADS = ("classifier", "score", "discriminator_predictions", "lm_head", "cls", "predictions")
"""What a released body may lack, because it was trained for something else."""


def released_config(
    source: str, architecture: str, fields: Mapping[str, FieldValue], role: str
) -> Any:
    """The configuration of a released model, with the fields of the recipe in place of its own."""
    try:
        config = open_config(source)
    except UserError as error:
        here = "no such folder here, and " if not Path(source).exists() else ""
        raise UserError(
            f"no model at {role}.init_from",
            got=f"{source}: {here}{error.got}",
            fix=error.fix,
        ) from error
    if config.model_type != architecture:
        raise UserError(
            f"{role}.init_from is another architecture than the recipe's",
            got=f"{source} is {config.model_type}, the recipe says {architecture}",
            fix=f"set {role}.architecture to {config.model_type}, or take another model",
        )
    heads = fields.get("num_attention_heads", getattr(config, "num_attention_heads", None))
    if heads != getattr(config, "num_attention_heads", None):
        raise UserError(
            f"the heads of {role}.init_from are not the recipe's",
            got=f"{config.num_attention_heads} in {source}, {heads} by the recipe",
            fix=f"leave num_attention_heads out of [{role}.config]",
        )
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def released_fields(config: Any) -> dict[str, Any]:
    """The fields in which a released model differs from its architecture's defaults."""
    given: dict[str, Any] = config.to_diff_dict()
    return {name: value for name, value in given.items() if name not in NOT_SIZES}


# What a configuration file says beside the network's own fields.
NOT_SIZES = (
    {"architectures", "dtype", "id2label", "label2id", "model_type", "transformers_version"}
    | {f"{token}_token_id" for token in ("pad", "bos", "eos", "cls", "sep", "mask")}
    | {"vocab_size", "_name_or_path"}
)


def check_vocabulary(config: Any, size: int, source: str) -> None:
    """A released model speaks the tokens it was trained with, and no others."""
    if config.vocab_size != size:
        raise UserError(
            "the shards were not prepared for this released model",
            got=f"{size:,} tokens in the shards' tokenizer, {config.vocab_size:,} in {source}",
            fix=f"electrify prepare DOCS --tokenizer {source} --out SHARDS",
        )


def load_released(kind: Any, config: Any, source: str, role: str) -> tuple[Any, list[str]]:
    """A network with released weights, and in words what of it was not among them.

    A folder with a configuration alone, as a run keeps it, gives a network without weights: they
    come from a checkpoint.
    """
    if Path(source).is_dir() and not any(Path(source).glob("*model*")):
        return (kind.from_config if hasattr(kind, "from_config") else kind)(config), []
    try:
        network, loaded = open_model(kind, source, config=config, ignore_mismatched_sizes=True)
    except UserError as error:
        raise UserError(
            f"the weights of {role}.init_from cannot be loaded",
            got=f"{source}: {error.got}",
            fix=error.fix,
        ) from error
    if loaded["mismatched_keys"]:
        name, there, here = sorted(loaded["mismatched_keys"])[0]
        raise UserError(
            f"the sizes of {role}.init_from are not the recipe's",
            got=f"{name} is {tuple(there)} in {source}, {tuple(here)} by the recipe",
            fix=f"leave out the fields of [{role}.config], or set them to the released model's",
        )
    prefix = f"{network.base_model_prefix}."
    if surplus := sorted(name for name in loaded["unexpected_keys"] if name.startswith(prefix)):
        raise UserError(
            f"{role}.init_from has more than the recipe's network",
            got=f"{surplus[0]} and {len(surplus) - 1} more weights that have no place",
            fix=f"leave the fields of [{role}.config] out, or set them to the released model's",
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
