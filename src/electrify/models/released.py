"""Start a network from released weights: a folder or a Hub name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from electrify.errors import UserError
from electrify.models.initialise import NEW_WEIGHTS
from electrify.models.new_rows import NewEmbeddings, old_tokens, resize
from electrify.models.pretrained import open_config, open_model
from electrify.recipes.schema import TOKENIZER_FIELDS, FieldValue
from electrify.tokens.tokenizer import LoadedTokenizer


def released_config(
    source: str, architecture: str, fields: Mapping[str, FieldValue], role: str
) -> Any:
    """Return the configuration of a released model with the recipe's fields set on it."""
    try:
        config = open_config(source)
    except UserError as error:
        no_folder = "no such folder, and " if not Path(source).exists() else ""
        raise UserError(
            f"cannot load the model of {role}.init_from",
            got=f"{source}: {no_folder}{error.got}",
            fix=error.fix,
        ) from error
    if config.model_type != architecture:
        raise UserError(
            f"{role}.init_from has a different architecture than the recipe",
            got=f"{source} is {config.model_type}, the recipe says {architecture}",
            fix=f"set {role}.architecture to {config.model_type}, or use another model",
        )
    released = getattr(config, "num_attention_heads", None)
    if (heads := fields.get("num_attention_heads", released)) != released:
        raise UserError(
            f"{role}.init_from has a different number of attention heads than the recipe",
            got=f"{released} in {source}, {heads} in the recipe",
            fix=f"leave num_attention_heads out of [{role}.config]",
        )
    for name, value in fields.items():
        setattr(config, name, value)
    return config


def released_fields(config: Any) -> dict[str, Any]:
    """Return the fields in which a released model differs from its architecture's defaults."""
    changed: dict[str, Any] = config.to_diff_dict()
    return {name: value for name, value in changed.items() if name not in NOT_SIZES}


# Fields of a configuration file that do not describe the network.
NOT_SIZES = TOKENIZER_FIELDS | {
    *("architectures", "dtype", "id2label", "label2id", "model_type", "transformers_version"),
    "_name_or_path",
}


def check_vocabulary(
    config: Any, size: int, tokenizer: LoadedTokenizer | None, source: str
) -> None:
    """Refuse shards whose tokenizer is neither that of the released model nor an extension of it.

    Embeddings may have more rows than the tokenizer has tokens: sizes are rounded up for speed. A
    run keeps the configuration only, with the size of its own vocabulary.
    """
    if config.vocab_size == size:
        return
    if tokenizer is None:
        raise UserError(
            "the shards were not prepared with the tokenizer of the released model",
            got=f"{size:,} tokens in the shards' tokenizer, {config.vocab_size:,} in {source}",
            fix=f"electrify prepare DOCS --tokenizer {source} --out SHARDS",
        )
    old_tokens(tokenizer, source)


class Start(NamedTuple):
    """How a network starts from released weights."""

    source: str
    role: str
    tokenizer: LoadedTokenizer | None = None
    new_embeddings: NewEmbeddings = "mean"
    first_layers: bool = False
    """Whether the network has only the first layers of the released one."""


def load_released(kind: Any, config: Any, start: Start) -> tuple[Any, list[str]]:
    """Load a network with released weights; returns notes on weights that were not among them.

    If the configuration has another vocabulary, the embeddings get rows for its new tokens, and
    lose those that no token has.

    A folder that holds only a configuration, as a run keeps it, gives a randomly initialised
    network: its weights come from a checkpoint.
    """
    source, role, size = start.source, start.role, config.vocab_size
    if Path(source).is_dir() and not any(Path(source).glob("*model*")):
        return (kind.from_config if hasattr(kind, "from_config") else kind)(config), []
    config.vocab_size = open_config(source).vocab_size
    try:
        network, loaded = open_model(kind, source, config=config, ignore_mismatched_sizes=True)
    except UserError as error:
        raise UserError(
            f"the weights of {role}.init_from cannot be loaded",
            got=f"{source}: {error.got}",
            fix=error.fix,
        ) from error
    if loaded["mismatched_keys"]:
        name, released, wanted = sorted(loaded["mismatched_keys"])[0]
        raise UserError(
            f"{role}.init_from has different sizes than the recipe",
            got=f"{name} is {tuple(released)} in {source}, {tuple(wanted)} in the recipe",
            fix=f"leave out the fields of [{role}.config], or set them as in the released model",
        )
    prefix = f"{network.base_model_prefix}."
    surplus = sorted(name for name in loaded["unexpected_keys"] if name.startswith(prefix))
    if surplus and not start.first_layers:
        raise UserError(
            f"{role}.init_from has more weights than the recipe's network",
            got=f"{surplus[0]} and {len(surplus) - 1} more that the recipe's network does not have",
            fix=f"leave out the fields of [{role}.config], or set them as in the released model",
        )
    missing = sorted(loaded["missing_keys"])
    # The model may have had another head.
    in_encoder = [name for name in missing if name.startswith(prefix)]
    if in_encoder:
        raise UserError(
            f"{role}.init_from lacks weights",
            got=f"no {in_encoder[0]} and {len(in_encoder) - 1} more in {Path(source).name}",
            fix="give a complete model of this architecture",
        )
    setattr(network, NEW_WEIGHTS, frozenset(missing))
    notes = [f"{role}: {name} is newly initialised" for name in missing]
    words, output = network.get_input_embeddings(), network.get_output_embeddings()
    same_shape = output is not None and output.weight.shape == words.weight.shape
    if same_shape and not torch.equal(output.weight, words.weight):
        notes.append(
            f"{role}: its released output embeddings, which differ from its input embeddings, are "
            "replaced by these"
        )
    if network.config.vocab_size != size and start.tokenizer is not None:
        notes += _resized(network, size, start)
    return network, notes


def _resized(network: Any, size: int, start: Start) -> list[str]:
    """Give the embeddings a row for each token of an extended tokenizer; returns notes."""
    assert start.tokenizer is not None
    pieces, unused = old_tokens(start.tokenizer, start.source), network.config.vocab_size - size
    resize(network, size, pieces, start.new_embeddings)
    notes = []
    if pieces:
        how = "the mean of its old tokens" if start.new_embeddings == "mean" else "random"
        notes.append(f"{start.role}: {len(pieces):,} new tokens; the embedding of each is {how}")
    if unused > 0:
        notes.append(f"{start.role}: {unused:,} embeddings that no token has are removed")
    return notes
