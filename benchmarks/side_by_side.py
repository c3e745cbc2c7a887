"""Rounds of rival programs, one after another in one run, and the ratios between them.

These machines are noisy: a rate by itself says little. In every round each rival runs once, in an
order that changes, and what is reported is the median over the rounds of the ratio within a round.
"""

import argparse
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from electrify.jobs import available_cores

Run = Callable[[], float]
"""Does the work once and returns how much it did (megabytes, steps, …)."""


def measure(rivals: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """The rate of every rival in every round."""
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    names = list(rivals)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            begin = time.perf_counter()
            done = rivals[name]()
            rates[name].append(done / (time.perf_counter() - begin))
    return rates


def report(rates: Mapping[str, list[float]], ours: str, unit: str) -> None:
    """Print each rival's median rate and how many times faster we are, with the spread."""
    table = Table("program", unit, f"{ours} against it", "from", "to")
    for name, some in rates.items():
        ratios = sorted(a / b for a, b in zip(rates[ours], some, strict=True))
        table.add_row(
            name,
            f"{median(some):.2f}",
            f"{median(ratios):.2f} ×",
            f"{ratios[0]:.2f}",
            f"{ratios[-1]:.2f}",
        )
    Console().print(table)


def asked_for_glue(task: str) -> argparse.ArgumentParser:
    """Arguments of what fine-tunes an encoder on a GLUE task; more can be added."""
    asked = argparse.ArgumentParser()
    asked.add_argument("model")
    asked.add_argument("glue", type=Path)
    asked.add_argument("--task", default=task)
    return asked


def where() -> str:
    """The machine, the versions and the commit, for results.md."""
    here = Path(__file__).parent
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=here
    )
    machine = f"{available_cores()} cores of {platform.machine()}"
    versions = f"Python {platform.python_version()}, torch {version('torch')}"
    return f"{machine}, {versions}, commit {described.stdout.strip()}"
