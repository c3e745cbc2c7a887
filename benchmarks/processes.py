"""Compare two processes of one thread with one of two: `python benchmarks/processes.py SHARDS`.

Runs `electrify pretrain` with and without torchrun, with the same global batch, in rounds that
change their order. Steps per second are from timing.jsonl, without the first steps.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from side_by_side import report, where

from electrify.training.journal import TIMING_FILE, read_records

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WARM_UP_LINES = 2
"""Lines of timing.jsonl to skip."""
LAYOUTS = {"two processes of one thread": (TORCHRUN, "1"), "one process of two": ([], "2")}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shards", type=Path)
    parser.add_argument("--recipe", default="electra-small")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    print(f"{args.recipe}, batch {args.batch_size}, {where()}")
    names, rates = list(LAYOUTS), {name: [] for name in LAYOUTS}
    for number in range(args.rounds):
        for name in names if number % 2 else reversed(names):
            rates[name].append(steps_per_second(args, *LAYOUTS[name]))
    report(rates, names[0], "steps/s")


def steps_per_second(args: argparse.Namespace, launcher: list[str], threads: str) -> float:
    """Return the steps per second of a short run."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        flags = {
            "--data": args.shards,
            "--out": run,
            "--run.batch-size": args.batch_size,
            "--run.steps": args.steps,
            "--run.eval-every": 0,
            "--run.log-every": 1,
            "--optimizer.warmup": 1,
            "--device": "cpu",
        }
        subprocess.run(
            [sys.executable, *launcher, "-m", "electrify", "pretrain", args.recipe]
            + [str(word) for pair in flags.items() for word in pair],
            env={**os.environ, "OMP_NUM_THREADS": threads},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines = read_records(run / TIMING_FILE)[WARM_UP_LINES:]
    return median(line["steps_per_second"] for line in lines)


if __name__ == "__main__":
    main()
