"""Measure start-up times: `python benchmarks/startup.py [--shards DIR]`.

Runs complete commands in new processes, in rounds that change their order; for comparison, a bare
interpreter and the imports of any program that uses transformers. With shards, also a complete run
of one step.
"""

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from side_by_side import measure, where

from electrify.tokens.store import Shards

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "electrify --help": ["-m", "electrify", "--help"],
    "electrify recipes": ["-m", "electrify", "recipes"],
    "electrify pretrain tiny --help": ["-m", "electrify", "pretrain", "tiny", "--help"],
    "electrify glue --help": ["-m", "electrify", "glue", "--help"],
    "import torch and transformers' classes": [
        "-c",
        "import torch; from transformers import AutoModelForMaskedLM, AutoTokenizer",
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rivals = {name: partial(run, arguments) for name, arguments in COMMANDS.items()}
    if args.shards:
        rivals["electrify pretrain tiny, one step"] = partial(one_step, args.shards)
    for work in rivals.values():
        work()  # so that files are cached
    rates = measure(rivals, args.rounds)
    print(where())
    for name, values in rates.items():
        seconds = sorted(1 / rate for rate in values)
        print(f"{name:40} {median(seconds):6.2f} s  ({seconds[0]:.2f} to {seconds[-1]:.2f})")


def run(arguments: list[str]) -> float:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return 1


def one_step(shards: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        length = str(Shards(shards).length)
        flags = ["--run.steps", "1", "--run.length", length, "--out", f"{folder}/run"]
        run(["-m", "electrify", "pretrain", "tiny", "--data", str(shards), *flags])
    return 1


if __name__ == "__main__":
    main()
