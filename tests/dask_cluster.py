"""A real Dask scheduler and workers on loopback, as processes that a test can kill."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.test_jobs import wait_until

DASK = Path(sys.executable).with_name("dask")
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class DaskCluster(NamedTuple):
    """The address of a scheduler, its scheduler file, and the processes of its workers."""

    address: str
    scheduler_file: Path
    workers: list["subprocess.Popen[bytes]"]


@contextmanager
def dask_cluster(folder: Path, workers: int = 2, threads: int = 1) -> Iterator[DaskCluster]:
    """Start a scheduler and workers, in a folder of their own; all are killed at the end."""
    scheduler_file, elsewhere = folder / "scheduler.json", folder / "workers"
    elsewhere.mkdir()
    options = ["--scheduler-file", str(scheduler_file), "--no-dashboard"]
    start = [str(DASK), "scheduler", "--host", "127.0.0.1", "--port", "0", *options]
    processes = [subprocess.Popen(start, **QUIET)]
    try:
        wait_until(scheduler_file.exists)
        worker = [str(DASK), "worker", *options, "--nthreads", str(threads), "--no-nanny"]
        processes += [subprocess.Popen(worker, cwd=elsewhere, **QUIET) for _ in range(workers)]
        address = json.loads(scheduler_file.read_text())["address"]
        yield DaskCluster(address, scheduler_file, processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def holds_a_lock(out: Path, pid: int) -> bool:
    """Return whether a process is in the middle of a job of a results folder."""
    locks = [path.read_text() for path in out.glob("jobs/**/*lock") if path.exists()]
    return any(text.startswith(f"process {pid} ") for text in locks)
