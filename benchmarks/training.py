"""Measure the cost of checkpoints and the growth of memory: `python benchmarks/training.py`.

save     electra-small with both networks and optimizer state: seconds that training is blocked by a
         checkpoint (the copy), seconds of the write in the background, and the fraction of training
         time with one checkpoint every 15 minutes
memory   resident memory of a small run at step 200 and after 1,000 more steps with checkpoints
         (needs --shards DIR)
"""

import argparse
import gc
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from electrify.batches.loader import Batches
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import build_objective
from electrify.recipes import schema
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.store import Shards
from electrify.training.checkpoint import Policy, Writer, snapshot
from electrify.training.data import masking_of, to_device, vocabulary_of
from electrify.training.optim import build_optimizer
from electrify.training.state import model_tensors, optimizer_tensors
from electrify.training.update import accumulate, apply_update

SECONDS_BETWEEN_SAVES = 15 * 60
ROUNDS = 5


def save_cost() -> None:
    """Measure the cost of a checkpoint of electra-small."""
    recipe = schema.load("electra-small")
    model = build_objective(recipe, Vocabulary(30_522, 0, 101, 102))
    optimizer = build_optimizer(model, recipe.optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    blocking, writing = [], []
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder), Policy())
        for step in range(ROUNDS):

            def take(step=step):
                tensors = optimizer_tensors(model, optimizer)
                return snapshot(step, model_tensors(model), tensors, {})

            before = writer.blocked
            writer.save(take)
            blocking.append(writer.blocked - before)
            writer.wait()
            writing.append(writer.seconds)
        size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / 2e6
        writer.close()
    blocked, write = statistics.median(blocking), statistics.median(writing)
    print(
        f"checkpoint of electra-small: {size:.0f} MB; blocks training for {blocked:.3f} s, ", end=""
    )
    fraction = blocked / SECONDS_BETWEEN_SAVES
    print(f"written in {write:.2f} s; {fraction:.4%} of training with one every 15 minutes")


def resident_memory() -> float:
    """Return the resident memory of this process in megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory_growth(shards: Path) -> None:
    """Measure memory after 200 and 1,200 steps of a small pair, with a checkpoint every 50."""
    recipe = schema.load("tiny")
    tokenizer = tokenizers.load_tokenizer(shards / "tokenizer")
    model = build_objective(recipe, vocabulary_of(tokenizer)).train()
    optimizer = build_optimizer(model, recipe.optimizer)
    batches = Batches(Shards(shards), tokenizer, masking_of(recipe), 4, 0)
    tensors = to_device(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(Path(folder), Policy())
        for step in range(1_200):
            batch = batches[step]
            gradient = accumulate(model, optimizer, [tensors(batch)], batch.totals(), 1.0)
            apply_update(optimizer, 1e-4)
            model.metrics(gradient.sums)
            if step % 50 == 0:
                writer.save(
                    lambda step=step: snapshot(
                        step, model_tensors(model), optimizer_tensors(model, optimizer), {}
                    )
                )
            if step == 199:
                writer.wait()
                before = resident_memory()
        writer.close()
    print(f"memory: {before:.0f} MB at step 200, {resident_memory():.0f} MB after 1,000 more")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=Path)
    args = parser.parse_args()
    started = time.monotonic()
    save_cost()
    if args.shards:
        memory_growth(args.shards)
    print(f"({time.monotonic() - started:.0f} s)")
