"""Kill a suite at random moments, and compare it with the same suite without interruption.

    python -m tests.finetuning.suite_kills SUITE.toml MODEL… --data DATA --out DIR

DIR/unbroken and DIR/killed must have the same bytes apart from the seconds in the results.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.test_jobs import wait_until

KILLS = 10


class Kill(NamedTuple):
    """When a suite was killed, and how many of its jobs had finished by then."""

    seconds: float
    finished: int


def suite_command(
    file: Path, models: Sequence[str], out: Path, *options: object, workers: str = "2"
) -> list[str]:
    """Return the command of a suite."""
    parts = ["-m", "electrify", "suite", file, *models, "--out", out, "--device", "cpu"]
    return [sys.executable, *map(str, [*parts, "--workers", workers, *options])]


def content(out: Path) -> dict[str, bytes]:
    """Return the bytes of all files; the times that results have are removed."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        text = path.read_bytes()
        if path.name == "result.json":
            result = json.loads(text)
            text = json.dumps({k: v for k, v in result.items() if "second" not in k}).encode()
        found[path.relative_to(out).as_posix()] = text
    for name, text in found.items():  # where the random weights are is not part of the result
        found[name] = text.replace(str(out.absolute()).encode(), b"OUT")
    return found


def finished_jobs(out: Path) -> int:
    """Return the number of jobs with a result."""
    return len(list(out.glob("jobs/*/*/result.json")))


def kill_at_random(command: Sequence[str], out: Path, longest: float, kills: int) -> list[Kill]:
    """Start a suite again and again, and kill it and its workers after up to `longest` seconds.

    The time starts when the suite has checked its files and holds its lock.
    """
    rng, done = Random(kills), []
    for _ in range(kills):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        wait_until(lambda p=process: p.poll() is not None or _holds(out / "lock", p.pid), 600)
        seconds = rng.uniform(0, longest)
        time.sleep(seconds)
        assert process.poll() is None, "the suite ended before it was killed: kill it sooner"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done.append(Kill(seconds, finished_jobs(out)))
    return done


def _holds(lock: Path, pid: int) -> bool:
    """Return whether a process holds a lock; that of a killed process stays."""
    return lock.is_file() and lock.read_text().startswith(f"process {pid} ")


def compare_killed(
    file: Path, models: Sequence[str], out: Path, kills: int = KILLS, *options: object
) -> list[Kill]:
    """Run a suite twice, the second time with kills; refuse a difference of a single byte."""
    commands = [suite_command(file, models, out / n, *options) for n in ("unbroken", "killed")]
    began = time.monotonic()
    subprocess.run(commands[0], check=True, stdout=subprocess.DEVNULL)
    # On average half of the suite runs before the last kill.
    longest = (time.monotonic() - began) / kills
    done = kill_at_random(commands[1], out / "killed", longest, kills)
    subprocess.run(commands[1], check=True, stdout=subprocess.DEVNULL)
    unbroken, killed = content(out / "unbroken"), content(out / "killed")
    different = [n for n in unbroken.keys() | killed.keys() if unbroken.get(n) != killed.get(n)]
    assert not different, f"different after {kills} kills: {', '.join(sorted(different))}"
    return done


def main() -> None:
    """Compare the suite of the command line, and print when it was killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--train-limit", default="64")
    given = parser.parse_args()
    options = ["--data", given.data, "--train-limit", given.train_limit]
    done = compare_killed(given.file, given.models, given.out, KILLS, *options)
    for kill in done:
        print(f"killed after {kill.seconds:.1f} s with {kill.finished} finished jobs")
    files, jobs = len(content(given.out / "killed")), finished_jobs(given.out / "killed")
    print(f"{jobs} jobs, {files} files: the same bytes")


if __name__ == "__main__":
    main()
