"""Two processes of one thread beside one of two: `python benchmarks/processes.py SHARDS`.

`electrify pretrain` itself, started by torchrun or by hand, with the same global batch, in rounds
that change their order. Steps a second are those of timing.jsonl, without the first steps.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from side_by_side import report, where

from electrify.training.journal import TIMING_FILE, records_of

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
WARM = 2
"""Lines of timing.jsonl to leave out."""
LAYOUTS = {"two processes of one thread": (TORCHRUN, "1"), "one process of two": ([], "2")}


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("shards", type=Path)
    asked.add_argument("--recipe", default="electra-small")
    asked.add_argument("--batch-size", type=int, default=32)
    asked.add_argument("--steps", type=int, default=16)
    asked.add_argument("--rounds", type=int, default=4)
    given = asked.parse_args()
    print(f"{given.recipe}, batch {given.batch_size}, {where()}")
    names, rates = list(LAYOUTS), {name: [] for name in LAYOUTS}
    for number in range(given.rounds):
        for name in names if number % 2 else reversed(names):
            rates[name].append(steps_a_second(given, *LAYOUTS[name]))
    report(rates, names[0], "steps/s")


def steps_a_second(given: argparse.Namespace, launcher: list[str], threads: str) -> float:
    """Of a short run of the command."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        flags = {
            "--data": given.shards,
            "--out": run,
            "--run.batch-size": given.batch_size,
            "--run.steps": given.steps,
            "--run.eval-every": 0,
            "--run.log-every": 1,
            "--optimizer.warmup": 1,
            "--device": "cpu",
        }
        subprocess.run(
            [sys.executable, *launcher, "-m", "electrify", "pretrain", given.recipe]
            + [str(word) for pair in flags.items() for word in pair],
            env={**os.environ, "OMP_NUM_THREADS": threads},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines = records_of(run / TIMING_FILE)[WARM:]
    return median(line["steps_per_second"] for line in lines)


if __name__ == "__main__":
    main()
