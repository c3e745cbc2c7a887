"""Prepare the networks of an objective for training: starting biases, compiling, checkpointing."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from electrify.batches.masking import max_slots
from electrify.errors import UserError
from electrify.models.sharing import encoder_of
from electrify.objectives.objective import Objective
from electrify.planning.flops import flops_per_step
from electrify.recipes.schema import Recipe
from electrify.tokens.store import Shards
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.data import token_counts
from electrify.training.optim import is_norm
from electrify.training.sharding import layers


def start_at_data(
    objective: Objective, recipe: Recipe, shards: Shards, tokenizer: LoadedTokenizer
) -> None:
    """Initialize output biases from the token frequencies of the data, if the recipe says so."""
    if recipe.run.output_bias == "frequencies":
        counts_V = token_counts(shards, tokenizer)
        objective.set_output_biases(torch.from_numpy(counts_V), recipe.objective.mask_rate)


def checkpoint_activations(objective: Objective) -> None:
    """Recompute activations in the backward pass instead of storing them."""
    for role, network in objective.networks.items():
        if not network.supports_gradient_checkpointing:
            raise UserError(
                f"{network.config.model_type} does not support --checkpoint-activations",
                got=f"{role} {type(network).__name__}",
                fix="remove it; a smaller --micro-batch also saves memory",
            )
        network.gradient_checkpointing_enable()


def compile_networks(objective: Objective) -> list[str]:
    """Compile what is called with the same shapes in every step; returns descriptions by role."""
    compiled = []
    for role, network in objective.networks.items():
        # The heads of other networks see different rows in each step, through a hook.
        parts = [network] if objective.roles[role].every_token else encoder_parts(network)
        if not parts:
            raise UserError(
                "--compile found no layers to compile",
                got=f"{role} {type(network).__name__}",
                fix="remove --compile",
            )
        for part in parts:
            part.compile()
        kinds = Counter(type(part).__name__ for part in parts)
        names = [f"{count} x {name}" if count > 1 else name for name, count in kinds.items()]
        compiled.append(f"{role} {', '.join(names)}")
    return compiled


def encoder_parts(network: Any) -> list[nn.Module]:
    """Return the modules to compile: the encoder, if it is called, and the layers outside it.

    A ModuleList is never called, so compiling it would have no effect.
    """
    encoder = encoder_of(network)
    called = [] if encoder is None or isinstance(encoder, nn.ModuleList) else [encoder]
    inside = {id(module) for part in called for module in part.modules()}
    outside = [layer for layer in layers(network.base_model) if id(layer) not in inside]
    return called + [layer for layer in outside if not is_norm(layer)]


def objective_flops(objective: Objective, recipe: Recipe) -> float:
    """Return the FLOPs of one step."""
    run = recipe.run
    slots = max_slots(recipe.objective.mask_rate, run.length)
    return float(flops_per_step(objective, run.batch_size, run.length, slots))
