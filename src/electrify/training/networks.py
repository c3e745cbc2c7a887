"""Prepare the networks of an objective for training: starting biases, compiling, checkpointing."""

from collections.abc import Iterator

import torch

from electrify.batches.masking import max_slots
from electrify.errors import UserError
from electrify.objectives.masked_lm import slot_chunks
from electrify.objectives.objective import Objective
from electrify.planning.flops import flops_per_step
from electrify.recipes.schedules import SHAPE_SCHEDULES, Schedules, has_shapes
from electrify.recipes.schema import Recipe
from electrify.tokens.store import Shards
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.data import token_counts


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
        if getattr(network.config, "use_cache", False):
            network.config.use_cache = False  # else a warning in every step, which breaks graphs
        network.gradient_checkpointing_enable()


def compile_networks(objective: Objective) -> list[str]:
    """Compile every network, once for training and once for evaluation; returns their names."""
    # torch compiles a function at most eight times, also for networks that no longer exist.
    torch._dynamo.reset()
    for network in objective.networks.values():
        network.compile(dynamic=False)
    return [f"{role} {type(net).__name__}" for role, net in objective.networks.items()]


def not_compiled(objective: Objective, rows: int, slots: int) -> Iterator[str]:
    """Yield notes on networks that run uncompiled, because their logits are computed in chunks."""
    for role, network in objective.networks.items():
        chunked = len(slot_chunks(rows * slots, network.config.vocab_size)) > 1
        if chunked and not objective.roles[role].every_token:
            yield (
                f"note: the {role} is not compiled, because the logits of {rows:,} rows are "
                f"computed in chunks; a smaller --micro-batch avoids that"
            )


def check_micro_batches(rows: int, micro_batch: int, world: int = 1) -> None:
    """Raise an error if the micro-batches of a rank's rows differ in size."""
    if micro_batch and rows > micro_batch and rows % micro_batch:
        largest = next(size for size in range(micro_batch, 0, -1) if rows % size == 0)
        raise UserError(
            "--compile needs micro-batches of the same size",
            got=f"--micro-batch {micro_batch} for {rows} examples",
            fix=f"use --micro-batch {largest}, or a batch size that {micro_batch * world} divides",
        )


def check_one_shape(schedules: Schedules) -> None:
    """Raise an error if batches change their shape, for which networks would be compiled again."""
    if has_shapes(schedules):
        changing = " and ".join(
            f"schedules.{name}" for name in SHAPE_SCHEDULES if getattr(schedules, name)
        )
        raise UserError(
            "--compile needs batches of one shape",
            got=changing,
            fix="leave out --compile, or the schedule",
        )


def objective_flops(objective: Objective, recipe: Recipe) -> float:
    """Return the FLOPs of one step."""
    run = recipe.run
    slots = max_slots(recipe.objective.mask_rate, run.length)
    return float(flops_per_step(objective, run.batch_size, run.length, slots))
