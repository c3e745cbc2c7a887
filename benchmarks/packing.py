"""Measure training with packed rows against padded ones: `python benchmarks/packing.py`.

Full updates of a recipe on random tokens, whose lengths have a mean of 40 % of the maximum. Rounds
alternate between padded and packed batches of the same number of rows, and which comes first
alternates too. Only real tokens count, and as many as a row has on average: few padded rows are a
poor sample, whose tokens differ by 10 %.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from electrify.batches.loader import Batches
from electrify.batches.packing import PackedRows
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import build_objective
from electrify.recipes import schema
from electrify.tokens.store import StoredExample
from electrify.tokens.tokenizer import from_vocabulary
from electrify.training.data import masking_of, to_device
from electrify.training.engine import Engine
from electrify.training.optim import build_optimizer
from electrify.training.update import accumulate, apply_update

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = Vocabulary(30_522, 0, 2, 3)


class RandomExamples:
    """Examples of random tokens in memory, in place of shards."""

    folder, split = Path("random"), "train"

    def __init__(self, length: int, mean: float, count: int = 20_000) -> None:
        rng = np.random.default_rng(0)
        self.length, self.manifest = length, {"identity": {"settings": {"layout": "electra"}}}
        sizes = rng.lognormal(np.log(0.84 * mean * length), 0.7, count)  # 0.84: some are cut
        self.lengths = np.clip(sizes, 8, length).astype(np.int64)
        self.ids = rng.integers(len(SPECIAL), VOCABULARY.size, length)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> StoredExample:
        size = int(self.lengths[index])
        ids = np.roll(self.ids, index)[:size]
        ids[[0, size // 2, -1]] = VOCABULARY.cls, VOCABULARY.sep, VOCABULARY.sep
        return StoredExample(ids, np.array([size // 2 + 1]))

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of tokens and of segment starts of every example."""
        return self.lengths, np.ones_like(self.lengths)


def main() -> None:
    """Print tokens per second and their ratio, as the median of the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="electra-small")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--mean", type=float, default=0.4, help="mean length / maximum")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="float32")
    settings = parser.parse_args()
    recipe = schema.override(schema.load(settings.recipe), {"run.length": settings.length})
    tokenizer = from_vocabulary([*SPECIAL, *(f"w{n}" for n in range(VOCABULARY.size - 5))])
    examples = RandomExamples(settings.length, settings.mean)
    rows = PackedRows(examples)
    filled = rows.tokens / (len(rows) * settings.length)
    print(
        f"{settings.recipe}, length {settings.length}, mean {examples.lengths.mean():.1f} tokens; "
        f"packed rows are {filled:.1%} full; {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads, {settings.precision}"
    )
    model = build_objective(recipe, VOCABULARY).train()
    optimizer = build_optimizer(model, recipe.optimizer)
    engine, tensors = Engine(settings.precision, "cpu"), to_device(torch.device("cpu"))
    masking = masking_of(recipe)
    batches = {
        name: Batches(source, tokenizer, masking, settings.rows, 0)
        for name, source in (("padded", examples), ("packed", rows))
    }
    tokens = {"padded": examples.lengths.mean(), "packed": rows.tokens / len(rows)}
    speeds: dict[str, list[float]] = {name: [] for name in batches}
    for step in range(settings.rounds + 1):
        for name in sorted(batches, reverse=step % 2 == 0):
            start = time.perf_counter()
            batch = batches[name][step]
            accumulate(model, optimizer, [tensors(batch)], batch.totals(), 1.0, engine)
            apply_update(optimizer, 1e-5)
            if step:  # the first round warms up
                speeds[name].append(settings.rows * tokens[name] / (time.perf_counter() - start))
    for name, values in speeds.items():
        seconds = settings.rows * tokens[name] / statistics.median(values)
        print(f"{name}: {statistics.median(values):,.0f} tokens/s, {seconds:.2f} s per update")
    ratios = [new / old for old, new in zip(*speeds.values(), strict=True)]
    print(
        f"packed is {statistics.median(ratios):.2f} x as fast "
        f"(from {min(ratios):.2f} to {max(ratios):.2f})"
    )


if __name__ == "__main__":
    main()
