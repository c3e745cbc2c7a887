"""A recipe's networks without their weights: what they are and weigh, before memory is spent."""

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
    """The trained parameters of one network by part; each parameter is in one of them."""

    tables: int
    """Words, positions and types, and what normalises them."""
    body: int
    """From the projection after the tables to the last layer."""
    head: int


def sketch(recipe: Recipe, vocabulary: Vocabulary) -> Objective:
    """Check a recipe wholly, and build its objective with networks without weights."""
    check(recipe)
    with torch.device("meta"):
        objective = build_objective(recipe, vocabulary)
    for role, network in objective.networks.items():
        section = objective.roles[role].section
        _check_sizes(section, network.config)
        _check_length(section, network, recipe)
    return objective


def parts_of(network: Any) -> Parts:
    """How many parameters of a network are where."""
    seen: set[int] = set()
    places = (embeddings_module(network), network.base_model, network)
    return Parts(*(_count(place.parameters(), seen) for place in places))


def trained(networks: Iterable[nn.Module]) -> int:
    """The parameters that are trained in all networks together, shared ones counted once."""
    seen: set[int] = set()
    return sum(_count(network.parameters(), seen) for network in networks)


def _count(parameters: Iterable[nn.Parameter], seen: set[int]) -> int:
    """The size of the trained parameters that were not seen before."""
    total = 0
    for parameter in parameters:
        if parameter.requires_grad and id(parameter) not in seen:
            seen.add(id(parameter))
            total += parameter.numel()
    return total


def shape_of(network: Any) -> Shape:
    """A network's sizes, for the paper's counting."""
    settings = network.config
    width = settings.hidden_size
    tables = getattr(settings, EMBEDDING_WIDTH_FIELD.get(settings.model_type, "hidden_size"), None)
    feed_forward = (getattr(settings, name, None) for name in FEED_FORWARD)
    return Shape(
        width,
        settings.num_hidden_layers,
        getattr(settings, "num_attention_heads", 0),
        next((wide for wide in feed_forward if isinstance(wide, int)), 4 * width),
        tables or width,
        settings.vocab_size,
    )


def _check_sizes(role: str, settings: Any) -> None:
    """Refuse sizes that some architectures build, and cannot run."""
    width, heads = settings.hidden_size, getattr(settings, "num_attention_heads", None)
    if settings.num_hidden_layers < 1:
        raise UserError(
            f"the {role} has no layers",
            got=f"num_hidden_layers = {settings.num_hidden_layers}",
            fix="give 1 or more",
        )
    if heads and width % heads and not getattr(settings, "head_dim", None):
        raise UserError(
            f"the {role}'s width cannot be dealt out to its heads",
            got=f"hidden_size = {width}, num_attention_heads = {heads}",
            fix="take a width that is a multiple of the heads",
        )


def _check_length(role: str, network: Any, recipe: Recipe) -> None:
    """An example must not be longer than the table of positions, where there is one."""
    names = {name.rpartition(".")[2] for name, _ in network.base_model.named_modules()}
    if names.isdisjoint(POSITION_EMBEDDINGS):
        return
    rows, length = network.config.max_position_embeddings, recipe.run.length
    padding = padding_position(network)
    unused = 0 if padding is None else padding + 1  # RoBERTa counts places from 1 past padding
    if length > rows - unused:
        raise UserError(
            f"run.length is longer than the {role}'s table of positions",
            got=f"run.length = {length}, {rows} rows"
            + (f" of which {unused} are never used" if unused else ""),
            fix=f"--{role}.config.max-position-embeddings {length + unused}, "
            f"or --run.length {rows - unused}",
        )
