"""How long one waits before anything happens: `python benchmarks/startup.py [--shards DIR]`.

Whole commands in fresh processes, in rounds that change their order, beside a bare interpreter and
beside the import that any program on transformers begins with. With shards, also a run of one step,
from the command to the end.
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
    "python, nothing": ["-c", "pass"],
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
    asked = argparse.ArgumentParser()
    asked.add_argument("--shards", type=Path)
    asked.add_argument("--rounds", type=int, default=5)
    given = asked.parse_args()
    rivals = {name: partial(run, arguments) for name, arguments in COMMANDS.items()}
    if given.shards:
        rivals["electrify pretrain tiny, one step"] = partial(one_step, given.shards)
    for work in rivals.values():
        work()  # so that files are in memory
    rates = measure(rivals, given.rounds)
    print(where())
    for name, some in rates.items():
        seconds = sorted(1 / rate for rate in some)
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
