"""Run rival programs in rounds and report the ratios of their speeds.

Shared machines are noisy, so a single rate means little. In every round each rival runs once, in an
order that changes; the report has the median over rounds of the ratio within a round.
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
"""Does the work once and returns its amount (megabytes, steps, …)."""


def measure(rivals: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
    """Return the rate of every rival in every round."""
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    names = list(rivals)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            started = time.perf_counter()
            amount = rivals[name]()
            rates[name].append(amount / (time.perf_counter() - started))
    return rates


def report(rates: Mapping[str, list[float]], ours: str, unit: str) -> None:
    """Print each rival's median rate and how many times faster ours is, with the range."""
    table = Table("program", unit, f"speed-up of {ours}", "lowest", "highest")
    for name, values in rates.items():
        ratios = sorted(a / b for a, b in zip(rates[ours], values, strict=True))
        table.add_row(
            name,
            f"{median(values):.2f}",
            f"{median(ratios):.2f} ×",
            f"{ratios[0]:.2f}",
            f"{ratios[-1]:.2f}",
        )
    Console().print(table)


def glue_parser(task: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments for fine-tuning a model on a GLUE task."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("glue", type=Path)
    parser.add_argument("--task", default=task)
    return parser


def where() -> str:
    """Return the machine, the versions and the commit, for results.md."""
    folder = Path(__file__).parent
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=folder
    )
    machine = f"{available_cores()} cores of {platform.machine()}"
    versions = f"Python {platform.python_version()}, torch {version('torch')}"
    return f"{machine}, {versions}, commit {described.stdout.strip()}"
