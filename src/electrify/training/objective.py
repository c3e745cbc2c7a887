"""What a recipe trains, and on what: networks under their objective, and tasks from shards."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from electrify.batches.loader import Batch, Batches
from electrify.batches.masking import Masking, most_slots
from electrify.errors import UserError
from electrify.models.fast import quicken
from electrify.models.initialise import start_at_frequencies
from electrify.models.inputs import Inputs, Totals
from electrify.models.mlm import MaskedLanguageModel
from electrify.models.pair import Vocabulary, build_masked_lm, build_pair
from electrify.models.rtd import ReplacedTokenDetection, Weights, metrics
from electrify.models.sharing import encoder_of
from electrify.planning.flops import flops_per_step
from electrify.planning.hardware import GIGA
from electrify.planning.sketch import sketch
from electrify.recipes.schema import Recipe
from electrify.storage.verified import Verified
from electrify.tokens.store import Shards, check_split
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.loop import Task
from electrify.training.optim import is_norm
from electrify.training.sharding import layers

HELD_OUT_SEED = 20_200_323  # of the masks and samples of held-out text: the same in every run


class Objective(NamedTuple):
    """A model that gives a loss for a batch, its networks by role, and notes on them."""

    model: nn.Module
    networks: dict[str, Any]
    """As they are exported: discriminator and generator, or model."""
    notes: list[str]


def vocabulary_of(tokenizer: LoadedTokenizer) -> Vocabulary:
    """What networks must know of a tokenizer."""
    special = tokenizer.special
    return Vocabulary(tokenizer.vocab_size, special.pad, special.cls, special.sep)


def build_objective(recipe: Recipe, vocabulary: Vocabulary, fast: bool = True) -> Objective:
    """The networks of a recipe with their starting weights, under its objective."""
    objective = _built(recipe, vocabulary)
    if fast:
        for network in objective.networks.values():
            quicken(network)
    return objective


def _built(recipe: Recipe, vocabulary: Vocabulary) -> Objective:
    objective = recipe.objective
    sketch(recipe, vocabulary)  # which refuses what cannot be built, before memory is taken
    if objective.kind == "mlm":
        network, notes = build_masked_lm(recipe, vocabulary)
        return Objective(MaskedLanguageModel(network), {"model": network}, notes)
    pair = build_pair(recipe, vocabulary)
    weights = Weights(
        objective.generator_weight,
        objective.discriminator_weight,
        objective.temperature,
        objective.disallow_correct,
    )
    networks = {"discriminator": pair.discriminator, "generator": pair.generator}
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, weights)
    return Objective(model, networks, pair.notes)


def start_at_data(
    objective: Objective, recipe: Recipe, shards: Shards, tokenizer: LoadedTokenizer
) -> None:
    """Set what starting weights take from the data, if the recipe wants it."""
    if recipe.run.output_bias == "frequencies":
        counts_V = shards.counts(tokenizer.vocab_size, COUNTED_EXAMPLES)
        special = tokenizer.special
        counts_V[[special.pad, special.cls, special.sep, special.mask]] = 0  # never masked
        mask_rate = recipe.objective.mask_rate
        start_at_frequencies(objective.networks, torch.from_numpy(counts_V), mask_rate)


COUNTED_EXAMPLES = 20_000


def checkpoint_activations(objective: Objective) -> None:
    """Let the layers keep no activations for the backward pass, but compute them again in it."""
    for role, network in objective.networks.items():
        if not network.supports_gradient_checkpointing:
            raise UserError(
                f"--checkpoint-activations: {network.config.model_type} does not support it",
                got=f"{role} {type(network).__name__}",
                fix="leave it out; --micro-batch needs less memory, too",
            )
        network.gradient_checkpointing_enable()


def compile_networks(objective: Objective) -> list[str]:
    """Compile what is called with the same shapes in every step; returns what that is, by role."""
    compiled = []
    for role, network in objective.networks.items():
        # Other networks' heads see another set of rows each time, through a hook on the body.
        parts = [network] if role == "discriminator" else encoder_parts(network)
        if not parts:
            raise UserError(
                "--compile finds no layers to compile",
                got=f"{role} {type(network).__name__}",
                fix="leave out --compile",
            )
        for part in parts:
            part.compile()
        kinds = Counter(type(part).__name__ for part in parts)
        names = [f"{count} x {name}" if count > 1 else name for name, count in kinds.items()]
        compiled.append(f"{role} {', '.join(names)}")
    return compiled


def encoder_parts(network: Any) -> list[nn.Module]:
    """The encoder, where it is a module that is called, and the layers that are not in it.

    A list of layers is never called, so that compiling it would do nothing.
    """
    encoder = encoder_of(network)
    called = [] if encoder is None or isinstance(encoder, nn.ModuleList) else [encoder]
    inside = {id(module) for part in called for module in part.modules()}
    outside = [layer for layer in layers(network.base_model) if id(layer) not in inside]
    return called + [layer for layer in outside if not is_norm(layer)]


def open_data(
    data: Path, recipe: Recipe, verified: Verified | None = None
) -> tuple[LoadedTokenizer, Shards]:
    """The tokenizer and the training examples of a folder of shards that fits the recipe."""
    shards = check_split(data, "train", verified)
    if shards.length != recipe.run.length:
        raise UserError(
            "the shards have another length than the recipe",
            got=f"{shards.length} tokens in {data}, run.length = {recipe.run.length}",
            fix=f"--run.length {shards.length}, or prepare with --length {recipe.run.length}",
        )
    tokenizer = shards.tokenizer()
    unverified = shards.unverified()
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if sum(unverified) > MANY_BYTES and not (distributed and torch.distributed.get_rank()):
        size = f"{sum(unverified) / GIGA:,.1f} GB"
        print(f"verifying {len(unverified):,} shards, {size}, before they are used", flush=True)
    shards.verify_ahead()
    return tokenizer, shards


MANY_BYTES = 500e6  # some seconds of hashing: batches are taken from all shards, so step 0 waits


def task(recipe: Recipe, shards: Shards, tokenizer: LoadedTokenizer, device: torch.device) -> Task:
    """To learn from the training examples."""
    batches = Batches(shards, tokenizer, masking_of(recipe), recipe.run.batch_size, recipe.run.seed)
    return Task(batches, recipe.run.batch_size, on(device), totals, metrics)


def held_out_task(
    recipe: Recipe,
    data: Path,
    tokenizer: LoadedTokenizer,
    device: torch.device,
    world: int = 1,
    alike: bool = False,
    verified: Verified | None = None,
) -> tuple[Task, int] | None:
    """To measure on the validation examples, and in how many batches; None if there are too few.

    Batches are the same for any number of processes (`world`), unless all must have as many rows.
    """
    shards = Shards(data, "validation", verified)
    size = min(recipe.run.batch_size, len(shards))
    if size < world:  # a process without rows would wait for the others in vain
        return None
    if alike:
        size = size // world * world
    batches = Batches(shards, tokenizer, masking_of(recipe), size, HELD_OUT_SEED, shuffled=False)
    count = max(1, min(recipe.run.eval_batches, len(shards) // size))
    shards.verify(count * size)  # now, not at the first evaluation
    return Task(batches, size, on(device), totals, metrics), count


def masking_of(recipe: Recipe) -> Masking:
    """How a recipe hides tokens."""
    objective = recipe.objective
    return Masking(
        objective.mask_rate,
        recipe.run.length,
        objective.shown_as_mask,
        objective.with_replacement,
        objective.whole_words,
    )


def on(device: torch.device) -> Callable[[Batch], Inputs]:
    """From arrays to tensors on a device."""
    return lambda batch: Inputs._make(
        torch.from_numpy(array).to(device, non_blocking=True) for array in batch
    )


def totals(batch: Batch) -> Totals:
    """What the losses of a global batch are divided by."""
    return Totals(float(batch.weights_BN.sum()), float(batch.attention_BL.sum()))


def objective_flops(objective: Objective, recipe: Recipe) -> float:
    """FLOPs of one step: heads of masked LMs see the slots, a discriminator's every token."""
    run = recipe.run
    slots = most_slots(recipe.objective.mask_rate, run.length)
    return float(flops_per_step(objective.networks, run.batch_size, run.length, slots))
