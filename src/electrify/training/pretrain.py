"""`electrify pretrain RECIPE --data DIR --out RUN`; the same again goes on where it stopped."""

import gc
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from electrify.config import check_least
from electrify.errors import EXIT_INTERRUPTED, DamagedError
from electrify.planning.fits import check_fits
from electrify.progress import duration
from electrify.recipes.schema import Recipe, check, only_recipe
from electrify.storage.verified import Verified
from electrify.tokens.examples import notes
from electrify.training import checkpoint
from electrify.training.bands import Metrics, sizes_of, verdict
from electrify.training.budget import SET_BY_BUDGET, announcement, fit_to_budget
from electrify.training.checkpoint import Policy, Writer
from electrify.training.clock import Spent
from electrify.training.engine import Engine
from electrify.training.folder import RunFolder
from electrify.training.guard import Guard, GuardSettings
from electrify.training.journal import Journal, read, seconds_trained
from electrify.training.loop import Cadence, Done, Training, to_stderr
from electrify.training.objective import (
    Objective,
    build_objective,
    checkpoint_activations,
    compile_networks,
    held_out_task,
    objective_flops,
    open_data,
    start_at_data,
    task,
    vocabulary_of,
)
from electrify.training.optim import build_optimizer
from electrify.training.options import Pretrain
from electrify.training.resume import begin_or_restore, train_to_the_end
from electrify.training.schedule import factor
from electrify.training.screen import Screen, Sight, matmul_peak, peak_memory, share_of_peak
from electrify.training.self_check import self_check
from electrify.training.sharding import check_can_shard, shard
from electrify.training.signals import Stop, seconds_of, watching
from electrify.training.tracking import tracker
from electrify.training.upload import Uploads

SECONDS_FOR_UPLOADS, SECONDS_IF_STOPPED = 600.0, 5.0


def pretrain(settings: Pretrain, checkpoint_fn: Callable[[Path], None] | None = None) -> int:
    """Train, or go on; returns the exit code.

    From Python, `checkpoint_fn` is called in the background with the folder of every checkpoint, in
    the place of `upload`.
    """
    check(settings)
    check_least(settings, micro_batch=0, workers=0, save_minutes=0)
    stop = Stop(seconds_of(settings.max_time, "--max-time") if settings.max_time else None)
    folder = RunFolder(settings.out)
    engine = Engine(device=settings.device)
    asked = settings.run.precision
    engine.use(engine.first_then_others(lambda: folder.choice(asked, engine.device.type)))
    stop.launcher = os.getppid() if engine.world > 1 else None
    if settings.shard:
        check_can_shard(settings.optimizer.kind, engine.precision, settings.compile, engine.world)
    with watching(stop), ExitStack() as stack:
        stack.callback(engine.close)
        engine.first_then_others(lambda: _lock(folder, stack))
        if settings.budget and engine.first and not folder.begun:
            print(announcement(seconds_of(settings.budget, "--budget")), flush=True)
        assembled = _assembled(settings, engine, folder, stop, stack)
        if assembled is None:
            return _code(stop.why(), engine)
        recipe, run, objective = assembled
        target = checkpoint_fn or settings.upload
        engine.first_then_others(lambda: _write(target, recipe, run, folder, stack))
        engine.first_then_others(lambda: _refuse_if_lost(folder))
        start = begin_or_restore(run, folder.checkpoints)
        engine.first_then_others(lambda: _tell(settings, recipe, run, folder, start, stack))
        run.measured = engine.agreed(run.measured)
        if engine.first:
            print(_summary(recipe, run, objective, start), flush=True)
        run.spent = Spent(engine.finish)
        done = train_to_the_end(run, folder.checkpoints, _cadence(recipe, settings), start)
        stop.finished = not done.why
    if engine.first:
        _say_end(done, recipe, settings, run.spent)
    return _code(done.why, engine)


def _code(why: str, engine: Engine) -> int:
    # A launcher of many processes takes any other code for a crash, and starts them again.
    return EXIT_INTERRUPTED if why.startswith("SIG") and engine.world == 1 else 0


def _lock(folder: RunFolder, stack: ExitStack) -> None:
    stack.enter_context(folder.lock())
    checkpoint.clear_leftovers(folder.checkpoints)


def _refuse_if_lost(folder: RunFolder) -> None:
    """A run that got somewhere and has no checkpoint any more does not start over silently."""
    steps = [record["step"] for record in read(folder.path)]
    if not checkpoint.stored(folder.checkpoints) and max(steps, default=0) > 0:
        raise DamagedError(
            f"the checkpoints of {folder.path} are gone",
            got=f"metrics up to step {max(steps):,}, and nothing in {folder.checkpoints}",
            fix="restore them from a copy, or give another --out to start over",
        )


def _unwrap(run: Training) -> None:
    """Let go of what joins the processes before their group ends: the other order can hang."""
    run.wrapped = run.model
    gc.collect()


def _assembled(
    settings: Pretrain, engine: Engine, folder: RunFolder, stop: Stop, stack: ExitStack
) -> tuple[Recipe, Training, Objective] | None:
    """Everything the loop moves, checked, with its starting weights; and the recipe it follows.

    None if it was asked to stop before it knew how many steps there are.
    """
    recipe = only_recipe(settings)
    recipe = replace(recipe, run=replace(recipe.run, precision=engine.precision))
    tokenizer, shards = open_data(settings.data, recipe, Verified(folder.verified))
    sized = folder.with_own_sizes(recipe)
    rows = settings.micro_batch or len(engine.share(recipe.run.batch_size))
    check_fits(
        sized,
        vocabulary_of(tokenizer),
        engine.device,
        rows=0 if settings.checkpoint_activations else rows,
        sharded_by=engine.world if settings.shard else 1,
    )
    objective = build_objective(sized, vocabulary_of(tokenizer))
    if not checkpoint.stored(folder.checkpoints):  # which have the weights
        start_at_data(objective, recipe, shards, tokenizer)
    if settings.checkpoint_activations:
        checkpoint_activations(objective)
    model = objective.model.to(engine.device).train()
    if settings.shard:
        shard(model, engine.device)
    optimizer = build_optimizer(model, recipe.optimizer, muon_dtype=engine.muon_dtype)
    vocabulary = vocabulary_of(tokenizer)
    unused = self_check(model, optimizer, recipe.sharing, vocabulary, tokenizer.special.mask)
    if settings.compile:
        compiled = compile_networks(objective)
        if engine.first:
            print(f"compiling in the first steps: {'; '.join(compiled)}", flush=True)
    # Weights that are dealt out are gathered by all processes alike, so none may have more rows.
    alike = settings.shard
    held_out = held_out_task(
        recipe, settings.data, tokenizer, engine.device, engine.world, alike, shards.verified
    )
    guard_settings = GuardSettings(on_spike=settings.on_spike)
    sizes = sizes_of(recipe, tokenizer.vocab_size)
    run = Training(
        model=model,
        wrapped=engine.prepare(model, unused),
        optimizer=optimizer,
        engine=engine,
        task=task(recipe, shards, tokenizer, engine.device),
        held_out=held_out[0] if held_out else None,
        held_out_batches=held_out[1] if held_out else 0,
        rate=lambda step: 0.0,
        clip=recipe.optimizer.clip,
        seed=recipe.run.seed,
        micro_batch=settings.micro_batch,
        workers=settings.workers,
        guard=Guard(guard_settings, sizes, scaled=engine.precision == "fp16"),
        stop=stop,
        stop_if_unsaved=settings.on_save_error == "stop",
        flops_per_step=objective_flops(objective, recipe),
        warn=to_stderr if engine.first else lambda text: None,
    )
    stack.callback(_unwrap, run)
    if settings.budget:
        fitted = _budgeted(recipe, run, folder, seconds_of(settings.budget, "--budget"))
        if fitted is None:
            run.warn("asked to stop while the budget was measured: nothing is begun")
            return None
        recipe = fitted
    run.rate = rates(recipe)
    engine.first_then_others(
        lambda: folder.begin_or_go_on(
            recipe,
            settings.data,
            tokenizer,
            objective.networks,
            settings.budget,
            engine.choice.muon,
            run.warn,
        )
    )
    if engine.first:
        shards.verified.keep(folder.verified)
    return recipe, run, objective


def _budgeted(recipe: Recipe, run: Training, folder: RunFolder, seconds: float) -> Recipe | None:
    """The steps that fit were found when the run began; going on, they are not found again."""
    if not run.engine.agreed(folder.begun):
        return fit_to_budget(recipe, run, seconds)
    before: Recipe = run.engine.agreed(folder.recipe if run.engine.first else None)
    found = {name: getattr(before.run, name) for name in SET_BY_BUDGET}
    return replace(
        recipe,
        optimizer=replace(recipe.optimizer, warmup=before.optimizer.warmup),
        run=replace(recipe.run, **found),
    )


def rates(recipe: Recipe) -> Callable[[int], float]:
    """The learning rate of every step."""
    optimizer, steps = recipe.optimizer, recipe.run.steps
    return lambda step: optimizer.lr * factor(optimizer.schedule, step, steps, optimizer.warmup)


def _cadence(recipe: Recipe, settings: Pretrain) -> Cadence:
    run = recipe.run
    seconds = settings.save_minutes * 60
    kept = steps_kept(recipe)
    return Cadence(run.steps, run.log_every, run.eval_every, run.save_every, seconds, kept)


def steps_kept(recipe: Recipe) -> frozenset[int]:
    """The steps whose checkpoints stay for good: some percents of the training, and its end."""
    steps = recipe.run.steps
    return frozenset(max(1, round(steps * p / 100)) for p in (*recipe.run.keep_percent, 100))


def _write(
    target: str | Callable[[Path], None],
    recipe: Recipe,
    run: Training,
    folder: RunFolder,
    stack: ExitStack,
) -> None:
    """Let the loop write checkpoints, and upload them if asked to."""
    policy = Policy(recipe.run.keep_last, steps_kept(recipe))
    if not target:
        run.writer = Writer(folder.checkpoints, policy, run=folder.fingerprint)
        return
    uploads = Uploads(target)
    uploads.resume(folder.path)
    stack.callback(_close_uploads, uploads, run.stop)
    run.writer = Writer(folder.checkpoints, policy, uploads.committed, folder.fingerprint)


def _tell(
    settings: Pretrain,
    recipe: Recipe,
    run: Training,
    folder: RunFolder,
    start: int,
    stack: ExitStack,
) -> None:
    """Let the loop tell the journal, the screen and the trackers."""
    journal, screen = Journal(folder.path, start), stack.enter_context(Screen())
    stack.callback(journal.close)
    trackers = [
        stack.enter_context(tracker(name, folder.path, start, run.warn)) for name in settings.track
    ]
    device = run.engine.device
    peak = matmul_peak(device, recipe.run.precision)
    flops = run.flops_per_step / run.engine.world
    sizes, steps = run.guard.sizes, recipe.run.steps
    assert sizes is not None  # pre-training has them

    def record(step: int, split: str, metrics: Metrics, timings: Metrics) -> None:
        try:
            journal.record(step, split, metrics)
            if timings:
                journal.timing(step, timings)
        except OSError as error:
            if run.stop_if_unsaved:
                raise
            run.warn(f"the metrics of step {step:,} could not be written: {error}")

    def told(split: str, step: int, metrics: Metrics, timings: Metrics) -> None:
        record(step, split, metrics, timings)
        for track in trackers:
            track(step, split, {**metrics, **timings})
        if split != "train":
            print(f"held-out at step {step:,}: {verdict(sizes, step, metrics)}", flush=True)
            return
        seconds = 1 / timings["steps_per_second"]
        screen.show(
            Sight(
                step,
                steps,
                {words: metrics[name] for name, words in SHOWN.items() if name in metrics},
                timings["tokens_per_second"],
                share_of_peak(flops, seconds, peak),
                peak_memory(device),
                (steps - step) * seconds,
            )
        )

    run.told, run.synced, run.rewound = told, journal.sync, journal.rewind
    told_before = [r["step"] for r in read(folder.path) if r["split"] == "validation"]
    run.measured = max(told_before, default=0)


SHOWN = {"generator_loss": "generator", "discriminator_loss": "discriminator", "auc": "AUC"}


def _close_uploads(uploads: Uploads, stop: Stop) -> None:
    # Whoever asked to stop will not wait; what is left is taken up at the next start.
    patience = SECONDS_FOR_UPLOADS if stop.finished else SECONDS_IF_STOPPED
    hurry = lambda: stop.finished and stop.signal is not None  # noqa: E731
    for line in uploads.close(min(patience, max(0.0, stop.left)), hurry):
        print(f"not uploaded: {line}", file=sys.stderr)


def _summary(recipe: Recipe, run: Training, objective: Objective, start: int) -> str:
    """What is about to happen, in a few lines."""
    steps, size = recipe.run.steps, recipe.run.batch_size
    examples = len(run.task.batches.examples)
    sizes = ", ".join(
        f"{role} {type(net).__name__} {net.num_parameters():,}"
        for role, net in objective.networks.items()
    )
    together = sum(parameter.numel() for parameter in run.model.parameters())
    reason = run.engine.choice.reason
    muon = f", Muon in {run.engine.choice.muon}" if recipe.optimizer.kind == "muon" else ""
    lines = [
        f"{sizes}; together {together:,} parameters",
        f"precision {recipe.run.precision}{muon}" + (f" ({reason})" if reason else ""),
        f"{examples:,} examples; {steps:,} steps of {size}: {steps * size / examples:.1f} epochs",
    ]
    if start:
        lines.append(f"going on from step {start:,}")
    if recipe.optimizer.warmup > steps:
        lines.append(
            f"note: the rate rises for {recipe.optimizer.warmup:,} steps, which is longer than "
            "the run (--optimizer.warmup)"
        )
    lines += notes(run.task.batches.examples.manifest)
    if run.held_out is None:
        lines.append(
            "note: too few validation examples to evaluate on; prepare with a larger --validation"
        )
    lines += [f"note: not shared: {note}" for note in objective.notes]
    return "\n".join(lines)


def _say_end(done: Done, recipe: Recipe, settings: Pretrain, spent: Spent) -> None:
    out = settings.out
    if spent.updates:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in spent.shares().items())
        print(f"time: {shares}")
    if done.why:
        print(f"stopped at step {done.step:,} ({done.why}) and saved; the same command goes on")
        return
    if settings.budget:
        print(f"budget {settings.budget}, its steps took {duration(seconds_trained(out))}")
    print(f"done: {recipe.run.steps:,} steps in {out}")
    print(f"next: electrify export {out} --out MODEL")
