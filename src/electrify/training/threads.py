"""Let OpenMP threads sleep instead of spin while other programs use the cores.

Threads of libgomp, torch's OpenMP on Linux, spin for milliseconds before they sleep when they wait
for each other. On a free machine nothing is faster. On a busy one a thread that spins takes the
core that the thread it waits for needs: beside one busy process, training keeps a quarter of its
speed, and with sleeping threads 60 % (benchmarks/contention.py).

libgomp has no function to change that, but its threads sleep almost immediately while a process has
more OpenMP threads than cores (see GOMP_SPINCOUNT in its manual). So a background thread measures
how long the threads of this process wait for a core, and keeps idle OpenMP threads while they do.
Numbers do not change: the number of threads that compute stays the same.
"""

import os
import threading
import time
from functools import cache
from pathlib import Path

import torch

CHECK_SECONDS = 0.5
CONTENDED, UNCONTENDED = 0.25, 0.1  # seconds that threads wait for a core, in a second
GRAIN = 1 << 15  # elements that torch gives to a thread at least
POLICIES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@cache
def sleep_when_busy() -> None:
    """Start to look for other programs, once in a process; not if the user chose how to wait."""
    chosen = any(name in os.environ for name in POLICIES)
    if torch.get_num_threads() > 1 and not chosen and seconds_waited() is not None:
        threading.Thread(target=_watch, name="contention", daemon=True).start()


def seconds_waited() -> float | None:
    """Return how long the threads of this process have waited for a core; None if unknown."""
    waited = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            waited += int(task.read_text().split()[1])
        except (OSError, ValueError, IndexError):  # the thread has ended, or another kernel
            continue
    return waited / 1e9 if waited else None


def _watch() -> None:
    end: threading.Event | None = None
    before, begin = seconds_waited() or 0.0, time.perf_counter()
    while True:
        time.sleep(CHECK_SECONDS)
        waited, now = seconds_waited() or 0.0, time.perf_counter()
        share = (waited - before) / (now - begin)
        before, begin = waited, now
        if end is None and share > CONTENDED:
            end = threading.Event()
            for _ in range(teams_needed(torch.get_num_threads(), len(os.sched_getaffinity(0)))):
                threading.Thread(target=_idle_threads, args=(end,), daemon=True).start()
        elif end is not None and share < UNCONTENDED:
            end.set()
            end = None


def teams_needed(threads: int, cores: int) -> int:
    """Return how many idle teams make more OpenMP threads than cores.

    Every team has as many threads as torch uses, one of which is not OpenMP's own.

    >>> teams_needed(2, 2), teams_needed(8, 16), teams_needed(4, 64)
    (1, 2, 21)
    """
    return max(1, -(-(cores + 1 - threads) // max(1, threads - 1)))


def _idle_threads(end: threading.Event) -> None:
    """Make OpenMP start threads for this one, which end with it."""
    torch.zeros(torch.get_num_threads() * GRAIN).add_(1.0)  # a piece for each thread
    end.wait()
