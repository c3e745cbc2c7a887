"""Measure pre-training beside busy processes: `python benchmarks/contention.py`.

electrify     threads that wait for each other spin, but sleep while other programs use the cores
torch         torch's own default: they spin for milliseconds
passive       they sleep at once (OMP_WAIT_POLICY=PASSIVE)
one thread    no thread waits for another

Each runs in its own process, one at a time, beside 0, 1 and 2 Python loops that never wait. The
order changes every round. `--spin 1000` adds a variant that spins so often before it sleeps.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from statistics import median
from unittest.mock import patch

import torch
from precision import Rival
from rich.console import Console
from rich.table import Table
from side_by_side import where

from electrify.recipes import schema
from electrify.training.threads import POLICIES

# It ends with this process, even if that is killed.
SPIN_LOOP = [sys.executable, "-c", f"import os\nwhile os.getppid() == {os.getpid()}: pass"]
OURS, TORCH = "electrify", "torch"
SETTLE_SECONDS = 1.5  # before each measurement


class Variant:
    """A process that trains with an environment of its own when it is asked to."""

    def __init__(self, recipe: str, environment: dict[str, str]) -> None:
        self.pipe, child = Pipe()
        with patch.dict(os.environ, environment):
            for name in {"OMP_NUM_THREADS", *POLICIES} - set(environment):
                os.environ.pop(name, None)
            get_context("spawn").Process(target=_serve, args=(recipe, child), daemon=True).start()
        child.close()
        self.threads = self.pipe.recv()  # when it has warmed up

    def steps_per_second(self, seconds: float) -> float:
        """Train for some seconds."""
        self.pipe.send(seconds)
        return float(self.pipe.recv())


def _serve(recipe: str, pipe: Connection) -> None:
    rival = Rival(schema.load(recipe), "auto")
    pipe.send(torch.get_num_threads())
    while seconds := pipe.recv():
        _train(rival, SETTLE_SECONDS)
        pipe.send(_train(rival, seconds))


def _train(rival: Rival, seconds: float) -> float:
    steps, begin = 0.0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        steps += rival.run(1)
    return steps / (time.perf_counter() - begin)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run some processes that never wait inside the context."""
    loops = [subprocess.Popen(SPIN_LOOP) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--spin", type=int, nargs="*", default=[], help="more GOMP_SPINCOUNTs")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    environments = {
        OURS: {},
        TORCH: {"GOMP_SPINCOUNT": "300000"},  # also the default, but as a choice of the user
        "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
        "one thread": {"OMP_NUM_THREADS": "1"},
        **{f"spin {count}": {"GOMP_SPINCOUNT": str(count)} for count in args.spin},
    }
    variants = {name: Variant(args.recipe, env) for name, env in environments.items()}
    instructions = torch.backends.cpu.get_cpu_capability()
    print(f"{args.recipe}, {variants[OURS].threads} threads, {instructions}, {where()}")
    names = list(variants)
    rates: dict[tuple[str, int], list[float]] = {(n, k): [] for n in names for k in args.busy}
    for number in range(args.rounds):
        first = number % len(names)
        for level in args.busy:
            with busy(level):
                for name in names[first:] + names[:first]:
                    rates[name, level].append(variants[name].steps_per_second(args.seconds))
    for variant in variants.values():
        variant.pipe.send(0)
    free = median(rates[TORCH, min(args.busy)])
    table = Table("variant", *(f"{level} busy processes" for level in args.busy))
    for name in names:
        table.add_row(name, *(_cell(rates[name, level], free) for level in args.busy))
    Console(width=140).print(table)
    print(f"steps/s (lowest to highest), and the share of {TORCH}'s {free:.2f} on a free machine")


def _cell(rates: list[float], free: float) -> str:
    low, middle, high = min(rates), median(rates), max(rates)
    return f"{middle:.2f} ({low:.2f} to {high:.2f}), {middle / free:.0%}"


if __name__ == "__main__":
    main()
