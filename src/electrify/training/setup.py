"""Build the objective of a run, its optimizer and its stepper from settings and data."""

from collections.abc import Callable
from contextlib import nullcontext

from electrify.batches.mixture import Mixture
from electrify.models.fast import use_attention
from electrify.objectives.objective import Objective, build_objective
from electrify.planning.fits import check_fits
from electrify.planning.memory import most_slots
from electrify.recipes.schedules import reaches_zero
from electrify.recipes.schema import Recipe
from electrify.tokens.store import Shards
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training import checkpoint
from electrify.training.clock import Spent
from electrify.training.data import training_task, vocabulary_of
from electrify.training.engine import Engine
from electrify.training.folder import RunFolder
from electrify.training.networks import (
    check_micro_batches,
    check_one_shape,
    checkpoint_activations,
    compile_networks,
    not_compiled,
    start_at_data,
)
from electrify.training.optim import build_optimizer, named_owners
from electrify.training.options import Pretrain
from electrify.training.self_check import check_packing, self_check
from electrify.training.sharding import shard
from electrify.training.training import Progress, Stepper


def set_up(
    settings: Pretrain,
    recipe: Recipe,
    folder: RunFolder,
    engine: Engine,
    tokenizer: LoadedTokenizer,
    shards: Shards,
    examples: Shards | Mixture,
) -> tuple[Objective, Stepper]:
    """Build and check the objective with its starting weights, and its optimizer."""
    vocabulary, sized = vocabulary_of(tokenizer), folder.with_own_sizes(recipe)
    sizes = {recipe.run.batch_size, *(int(size) for _, size in recipe.schedules.batch_size)}
    share = max(len(engine.rows(size)) for size in sizes)
    if settings.compile:
        check_one_shape(recipe.schedules)
        check_micro_batches(share, settings.micro_batch, engine.world)
    rows = min(settings.micro_batch or share, share)
    check_fits(
        sized,
        vocabulary,
        engine.device,
        rows,
        sharded_by=engine.world if settings.shard else 1,
        checkpointed=settings.checkpoint_activations,
    )
    objective = build_objective(sized, vocabulary)
    for network in objective.networks.values():
        use_attention(network, recipe.run.attn_implementation, engine.precision)
    if not checkpoint.stored(folder.checkpoints):  # else the weights come from a checkpoint
        start_at_data(objective, recipe, shards, tokenizer)
    if settings.checkpoint_activations:
        checkpoint_activations(objective)
    objective.to(engine.device).train()
    flash = "flash" in recipe.run.attn_implementation  # which needs 16 bits
    if recipe.run.packing:  # before sharding, after which only the whole objective can be called
        with engine.autocast() if flash else nullcontext():
            for network in objective.networks.values():
                check_packing(network, vocabulary, recipe.run.length)
    if settings.shard:
        shard(objective, engine.device)
    scale, dtype = generator_scale(objective, recipe), engine.muon_dtype
    optimizer = build_optimizer(objective, recipe.optimizer, scale, dtype)
    with engine.autocast() if flash else nullcontext():
        unused = self_check(objective, optimizer, recipe, vocabulary, tokenizer.special.mask)
    if settings.compile:
        compiled = compile_networks(objective)
        if engine.is_main:
            print(f"compiling before the first step: {', '.join(compiled)}", flush=True)
            for note in not_compiled(objective, rows, most_slots(recipe)):
                print(note, flush=True)
    untrained = [role for role in objective.networks if not objective.weight_of(role)]
    progress = Progress()
    stepper = Stepper(
        model=objective,
        wrapped=engine.prepare(objective, [*unused, *untrained, *reaches_zero(recipe.schedules)]),
        optimizer=optimizer,
        engine=engine,
        task=training_task(recipe, examples, tokenizer, engine, progress, settings.compile),
        clip=recipe.optimizer.clip,
        seed=recipe.run.seed,
        micro_batch=settings.micro_batch,
        spent=Spent(engine.synchronize),
        progress=progress,
        begin=objective.set_progress,
    )
    return objective, stepper


def generator_scale(objective: Objective, recipe: Recipe) -> Callable[[str], float]:
    """Return the factor of the learning rate of each parameter, by name."""
    main = {id(parameter) for parameter in objective.networks[objective.main].parameters()}
    others = {name for name, _, parameter in named_owners(objective) if id(parameter) not in main}
    return lambda name: recipe.optimizer.generator_lr if name in others else 1.0
