"""Open a folder of shards as the training task and the validation task of a recipe."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electrify.batches.batch import Batch
from electrify.batches.loader import ArrayBatch, Batches
from electrify.batches.masking import Masking
from electrify.batches.mixture import Mixture
from electrify.batches.packing import PackedRows
from electrify.errors import UserError
from electrify.models.inputs import batch_to_device
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import fraction, objective_class
from electrify.planning.hardware import GIGA
from electrify.planning.memory import most_slots
from electrify.recipes.schema import Recipe
from electrify.storage.verified import Verified
from electrify.tokens.store import Shards, check_split
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.batch_plan import BatchPlans
from electrify.training.engine import Engine
from electrify.training.training import Progress, Task, Validation

VALIDATION_SEED = 20_200_323  # masks and samples of the validation set are the same in every run
COUNTED_EXAMPLES = 20_000
MANY_BYTES = 500e6  # takes seconds to hash, and the first batch needs almost every shard


def vocabulary_of(tokenizer: LoadedTokenizer) -> Vocabulary:
    """Return the vocabulary size and the special tokens that the networks need."""
    special = tokenizer.special
    return Vocabulary(tokenizer.vocab_size, special.pad, special.cls, special.sep, tokenizer)


def open_data(
    data: Path, recipe: Recipe, verified: Verified | None = None
) -> tuple[LoadedTokenizer, Shards]:
    """Open the tokenizer and the training shards in a folder, whose length the recipe must have."""
    shards = check_split(data, "train", verified)
    if shards.length != recipe.run.length:
        raise UserError(
            "the shards have another length than the recipe",
            got=f"{shards.length} tokens in {data}, run.length = {recipe.run.length}",
            fix=f"use --run.length {shards.length}, or prepare shards with --length "
            f"{recipe.run.length}",
        )
    tokenizer = shards.tokenizer()
    unverified = shards.unverified()
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if sum(unverified) > MANY_BYTES and not (distributed and torch.distributed.get_rank()):
        size = f"{sum(unverified) / GIGA:,.1f} GB"
        print(f"verifying {len(unverified):,} shards ({size}) before training", flush=True)
    shards.verify_ahead()
    return tokenizer, shards


def open_general(
    folder: Path, share: float, shards: Shards, recipe: Recipe, verified: Verified | None = None
) -> Shards | Mixture:
    """Return the training examples with a share of general text, after checking its shards."""
    if not 0 <= share < 1:
        raise UserError(
            "--general-share must be at least 0 and less than 1",
            got=f"{share}",
            fix="use 0.1 to take 10 % of the examples from --general",
        )
    general = check_split(folder, "train", verified)
    for name in ("length", "tokenizer"):
        ours, theirs = (_prepared_with(each, name) for each in (shards, general))
        if ours != theirs:
            raise UserError(
                f"--general was prepared with another {name} than --data",
                got=f"{theirs} in {folder}, {ours} in {shards.folder}",
                fix=f"electrify prepare DOCS --tokenizer {shards.folder / 'tokenizer'} "
                f"--length {shards.length} --out GENERAL",
            )
    check_split(folder, "validation", verified)
    if share and recipe.run.packing:
        raise UserError(
            "packed rows cannot be mixed with general text",
            got=f"--general-share {share} with run.packing = true",
            fix="use --run.no-packing, or --general-share 0",
        )
    return Mixture(shards, general, share) if share else shards


def _prepared_with(shards: Shards, name: str) -> str:
    identity = shards.manifest["identity"]
    if name == "length":
        return f"{shards.length} tokens"
    return f"{shards.vocab_size:,} tokens ({identity['tokenizer']['sha256'][:12]})"


def training_task(
    recipe: Recipe,
    shards: Shards | Mixture,
    tokenizer: LoadedTokenizer,
    engine: Engine,
    progress: Progress | None = None,
    fixed_shapes: bool = False,
) -> Task:
    """Return this rank's rows of the training batches as a task.

    With `fixed_shapes`, which compiled networks need, all batches have the same length, and either
    all of them have an attention mask or none.
    """
    size, seed = recipe.run.batch_size, recipe.run.seed
    examples, masking = rows_of(recipe, shards), masking_of(recipe)
    slots, plan = most_slots(recipe) if fixed_shapes else 0, BatchPlans(recipe, progress)
    batches = Batches(
        *(examples, tokenizer, masking._replace(slots=slots), size, seed),
        share=engine.rows,
        fixed_length=fixed_shapes,
        plan=plan,
    )
    metrics = objective_class(recipe.objective.kind).metrics
    tensors = to_device(engine.device, keep_mask=fixed_shapes and not shards.full)
    return Task(batches, size, tensors, metrics, lambda step: plan(step).size)


def validation_task(
    recipe: Recipe,
    data: Path,
    tokenizer: LoadedTokenizer,
    engine: Engine,
    same_rows: bool = False,
    verified: Verified | None = None,
    fixed_shapes: bool = False,
) -> Validation | None:
    """Return this rank's rows of the validation batches; None if there are too few for all ranks.

    Batches are the same for any number of ranks, unless all ranks must have `same_rows`.
    """
    shards = Shards(data, "validation", verified)
    examples = rows_of(recipe, shards)
    size = min(recipe.run.batch_size, len(examples))
    if size < engine.world:  # a rank without rows would never call the collectives
        return None
    if same_rows:
        size = size // engine.world * engine.world
    settings = (examples, tokenizer, masking_of(recipe), size, VALIDATION_SEED, False)
    batches = Batches(*settings, share=engine.share, fixed_length=fixed_shapes)
    count = max(1, min(recipe.run.eval_batches, len(examples) // size))
    shards.verify(count * size)  # so that damage is reported now, not at the first evaluation
    metrics = objective_class(recipe.objective.kind).validation_metrics

    @cache
    def baselines() -> dict[str, float]:
        counts_V = token_counts(Shards(data, "train", verified), tokenizer)
        whole = Batches(*settings)
        return {"unigram_loss": unigram_loss((whole[n] for n in range(count)), counts_V)}

    tensors = to_device(engine.device, keep_mask=fixed_shapes and not shards.full)
    task = Task(batches, size, tensors, metrics)
    return Validation(task, count, baselines)


def rows_of(recipe: Recipe, shards: Shards | Mixture) -> Shards | PackedRows | Mixture:
    """Return what the rows of a batch are: examples, or several of them packed into one row."""
    return PackedRows(shards) if recipe.run.packing and isinstance(shards, Shards) else shards


def token_counts(shards: Shards, tokenizer: LoadedTokenizer) -> NDArray[np.int64]:
    """Return how often each token occurs in some of the examples; 0 for those never masked."""
    counts_V = shards.counts(tokenizer.vocab_size, COUNTED_EXAMPLES)
    special = tokenizer.special
    counts_V[[special.pad, special.cls, special.sep, special.mask]] = 0
    return counts_V


def unigram_loss(batches: Iterable[ArrayBatch], counts_V: NDArray[np.int64]) -> float:
    """Return the loss of predicting masked tokens by their frequency, regardless of the context."""
    loss_V = np.log((counts_V + 0.5).sum()) - np.log(counts_V + 0.5)
    total = slots = 0.0
    for batch in batches:
        original_BN = np.take_along_axis(batch.ids_BL, batch.positions_BN, axis=1)
        total += float((loss_V[original_BN] * batch.weights_BN).sum())
        slots += float(batch.weights_BN.sum())
    return fraction(total, slots)


def masking_of(recipe: Recipe) -> Masking:
    """Return the masking settings of a recipe."""
    objective = recipe.objective
    return Masking(
        objective.mask_rate,
        recipe.run.length,
        objective.shown_as_mask,
        objective.with_replacement,
        objective.whole_words,
    )


def to_device(
    device: torch.device, keep_mask: bool = False
) -> Callable[[ArrayBatch], Batch[Tensor]]:
    """Return a function that turns arrays into tensors on a device."""
    return lambda batch: batch_to_device(batch.map(torch.from_numpy), device, keep_mask)
