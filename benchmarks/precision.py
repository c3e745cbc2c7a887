"""Compare precisions of the CPU recipes: `python benchmarks/precision.py [--recipe tiny]`.

auto             what `electrify pretrain` chooses on this machine, for matmuls and for Muon
Muon in bf16     float32, with Newton-Schulz iterations in bfloat16 as in torch's Muon
all in bf16      matmuls in bfloat16 too

The order changes every round. On a CPU with AVX-512 or AMX, try what most computers have with
`MKL_ENABLE_INSTRUCTIONS=AVX2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`.
"""

import argparse
from statistics import median

import torch
from pretrain import batch
from side_by_side import measure, report, where

from electrify.models.pair import Vocabulary
from electrify.objectives.objective import build_objective
from electrify.recipes import schema
from electrify.recipes.schema import Recipe
from electrify.training.clock import Spent
from electrify.training.engine import Engine
from electrify.training.optim import build_optimizer
from electrify.training.precision import Asked
from electrify.training.update import accumulate, apply_update

VOCABULARY = Vocabulary(8_192, 0, 101, 102)


class Rival:
    """A recipe's networks and optimizer in some precision."""

    def __init__(self, recipe: Recipe, precision: Asked, muon: torch.dtype | None = None) -> None:
        self.recipe, self.engine = recipe, Engine(precision, "cpu")
        self.model = build_objective(recipe, VOCABULARY).train()
        dtype = muon or self.engine.muon_dtype
        self.optimizer = build_optimizer(self.model, recipe.optimizer, muon_dtype=dtype)
        self.step = 0
        self.optimizer_shares: list[float] = []
        self.run(1)  # warm up

    def run(self, steps: int) -> float:
        """Run some optimizer steps."""
        spent = Spent()
        for _ in range(steps):
            inputs = batch(self.recipe, self.step, VOCABULARY)
            self.step += 1
            totals = inputs.totals()
            spent.measuring = True
            accumulate(self.model, self.optimizer, [inputs], totals, 1.0, self.engine, spent=spent)
            apply_update(self.optimizer, 1e-4, engine=self.engine, spent=spent)
        self.optimizer_shares.append(spent.seconds["optimizer"] / sum(spent.seconds.values()))
        return float(steps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="cram-cpu")
    parser.add_argument("--steps", type=int, default=2, help="steps of each rival per round")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    recipe = schema.load(args.recipe)
    rivals = {
        "auto": Rival(recipe, "auto"),
        "Muon in bf16": Rival(recipe, "float32", torch.bfloat16),
        "all in bf16": Rival(recipe, "bf16", torch.bfloat16),
    }
    instructions = torch.backends.cpu.get_cpu_capability()
    print(f"{args.recipe}, {torch.get_num_threads()} threads, {instructions}")
    print(f"{rivals['auto'].engine.choice.reason}; {where()}")
    runs = {name: lambda rival=rival: rival.run(args.steps) for name, rival in rivals.items()}
    report(measure(runs, args.rounds), "auto", "steps/s")
    for name, rival in rivals.items():
        print(f"{name:14} optimizer {median(rival.optimizer_shares[1:]):.1%} of a step")


if __name__ == "__main__":
    main()
