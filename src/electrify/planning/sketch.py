"""Build a recipe's networks without weights, to check and count them before allocating memory."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.errors import UserError
from electrify.models.inputs import padding_position
from electrify.models.pair import EMBEDDING_WIDTH_FIELD, FEED_FORWARD, Vocabulary
from electrify.models.sharing import embeddings_module
from electrify.objectives.objective import Objective, build_objective
from electrify.planning.flops import Shape
from electrify.recipes.schema import Recipe, check

POSITION_EMBEDDINGS = ("position_embeddings", "embed_positions")


class Parts(NamedTuple):
    """The trained parameters of one network by part; each parameter is counted once."""

    embeddings: int
    """Word, position and type embeddings and their normalisation."""
    encoder: int
    """From the projection after the embeddings to the last layer."""
    head: int


def sketch(recipe: Recipe, vocabulary: Vocabulary) -> Objective:
    """Check a recipe completely and build its objective on the meta device."""
    check(recipe)
    with torch.device("meta"):
        objective = build_objective(recipe, vocabulary)
    for role, network in objective.networks.items():
        section = objective.roles[role].section
        _check_sizes(section, network.config)
        _check_length(section, network, recipe)
    return objective


def parts_of(network: Any) -> Parts:
    """Count the trained parameters of each part of a network."""
    seen: set[int] = set()
    modules = (embeddings_module(network), network.base_model, network)
    return Parts(*(_count(module.parameters(), seen) for module in modules))


def trained(networks: Iterable[nn.Module]) -> int:
    """Count the trained parameters of several networks, shared ones once."""
    seen: set[int] = set()
    return sum(_count(network.parameters(), seen) for network in networks)


def _count(parameters: Iterable[nn.Parameter], seen: set[int]) -> int:
    """Count the trained parameters that are not in `seen`, and add them to it."""
    total = 0
    for parameter in parameters:
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            total += parameter.numel()
    return total


def shape_of(network: Any) -> Shape:
    """Return the sizes of a network that the paper's script uses."""
    config = network.config
    width = config.hidden_size
    embeddings = getattr(config, EMBEDDING_WIDTH_FIELD.get(config.model_type, "hidden_size"), None)
    feed_forward = (getattr(config, name, None) for name in FEED_FORWARD)
    return Shape(
        width,
        config.num_hidden_layers,
        getattr(config, "num_attention_heads", 0),
        next((size for size in feed_forward if isinstance(size, int)), 4 * width),
        embeddings or width,
        config.vocab_size,
    )


def _check_sizes(role: str, config: Any) -> None:
    """Refuse sizes that some architectures can build but not run."""
    width, heads = config.hidden_size, getattr(config, "num_attention_heads", None)
    if config.num_hidden_layers < 1:
        raise UserError(
            f"the {role} has no layers",
            got=f"num_hidden_layers = {config.num_hidden_layers}",
            fix="use 1 or more",
        )
    if heads and width % heads and not getattr(config, "head_dim", None):
        raise UserError(
            f"the {role}'s hidden_size is not a multiple of its attention heads",
            got=f"hidden_size = {width}, num_attention_heads = {heads}",
            fix="use a hidden_size that is a multiple of num_attention_heads",
        )


def _check_length(role: str, network: Any, recipe: Recipe) -> None:
    """Refuse examples that are longer than the position embeddings, if there are any."""
    names = {name.rpartition(".")[2] for name, _ in network.base_model.named_modules()}
    if names.isdisjoint(POSITION_EMBEDDINGS):
        return
    rows, length = network.config.max_position_embeddings, recipe.run.length
    padding = padding_position(network)
    unused = 0 if padding is None else padding + 1  # RoBERTa numbers positions from 1 past padding
    if length > rows - unused:
        raise UserError(
            f"run.length is longer than the {role}'s position embeddings",
            got=f"run.length = {length}, {rows} positions"
            + (f" of which {unused} are never used" if unused else ""),
            fix=f"use --{role}.config.max-position-embeddings {length + unused} "
            f"or --run.length {rows - unused}",
        )
