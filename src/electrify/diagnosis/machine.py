"""Check the machine: CPU, threads, contention, memory, disk, and whether the Hub answers."""

import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from electrify.diagnosis.finding import Finding
from electrify.jobs import available_cores
from electrify.planning.hardware import GIGA, bytes_text, memory_of

LITTLE_MEMORY, LITTLE_DISK = 4 * GIGA, 5 * GIGA
SPIN_SECONDS = 0.3
BUSY_SHARE = 0.8
"""Share of the CPU time of all cores; below it, other programs slow training down."""
HUB_SECONDS = 4.0


def find_cpu() -> Iterator[Finding]:
    """Find the CPU, its cores, and the limits of a container or batch job."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):  # only on Linux
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        name = found[1] if found else name
    cores, quota = available_cores(), cpu_quota()
    limit = f", limited to {quota:.3g} by the container" if quota else ""
    yield Finding("CPU", f"{name}, {cores} of {os.cpu_count()} cores{limit}")
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    yield Finding("instructions", capability)
    yield _threads(torch.get_num_threads(), cores, quota)


def _threads(threads: int, cores: int, quota: float | None) -> Finding:
    """Compare torch's threads with the cores.

    >>> _threads(8, 8, 2.0).fix
    'export OMP_NUM_THREADS=2'
    """
    setting = os.environ.get("OMP_NUM_THREADS")
    value = f"{threads}, OMP_NUM_THREADS={setting}" if setting else f"{threads}"
    if quota is not None and threads > max(1, round(quota)):
        fix = f"export OMP_NUM_THREADS={max(1, round(quota))}"
        return Finding("threads", f"{value}; only {quota:.3g} cores are allowed", "warn", fix)
    if threads < cores and setting:
        fix = "unset OMP_NUM_THREADS to use all cores"
        return Finding("threads", f"{value}; there are {cores} cores", "warn", fix)
    return Finding("threads", value)


# Of the control group of a container or batch job: version 2, then version 1.
CPU_QUOTAS = (
    (Path("/sys/fs/cgroup/cpu.max"),),
    (Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")),
)


def cpu_quota() -> float | None:
    """Return the number of cores' time that the control group allows; None without a limit."""
    for paths in CPU_QUOTAS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = map(int, " ".join(path.read_text() for path in paths).split())
            if quota > 0:  # -1: no limit
                return quota / period
    return None


def find_contention() -> Finding:
    """Measure how much CPU time this process gets if it keeps all of its cores busy."""
    cores, quota = available_cores(), cpu_quota()
    cores = min(cores, max(1, round(quota))) if quota else cores
    share = share_of_cores(cores)
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    value = f"{share:.0%} of the time of {cores} cores{load}"
    if share < BUSY_SHARE:
        fix = "stop other programs, or expect a slower run: --budget measures what is left"
        return Finding("contention", value, "warn", fix)
    return Finding("contention", value)


def share_of_cores(threads: int, seconds: float = SPIN_SECONDS) -> float:
    """Return the CPU time that threads get, as a fraction of what as many free cores would give."""
    block = bytes(1 << 20)  # hashing it releases the interpreter's lock

    def spin() -> None:
        while time.perf_counter() < end:
            hashlib.sha256(block)

    workers = [Thread(target=spin) for _ in range(threads)]
    begin, cpu_begin = time.perf_counter(), time.process_time()
    end = begin + seconds
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    used, elapsed = time.process_time() - cpu_begin, time.perf_counter() - begin
    return min(1.0, used / (elapsed * threads))


def find_memory() -> Finding:
    """Find how much memory this process may use, and how much is free now."""
    total, free = memory_of("cpu"), None
    with suppress(OSError):  # only on Linux
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        free = min(total, int(found[1]) * 1024.0) if found else None
    value = bytes_text(total) if free is None else f"{bytes_text(free)} of {bytes_text(total)} free"
    if (total if free is None else free) < LITTLE_MEMORY:
        fix = "use a small recipe or --micro-batch; `electrify plan RECIPE` estimates the memory"
        return Finding("memory", value, "warn", fix)
    return Finding("memory", value)


def find_disk() -> Finding:
    """Find the free space of the working directory."""
    usage = shutil.disk_usage(Path.cwd())
    value = f"{bytes_text(usage.free)} of {bytes_text(usage.total)} free in the working directory"
    if usage.free < LITTLE_DISK:
        fix = "`electrify plan RECIPE` estimates the size of a checkpoint; use another disk"
        return Finding("disk", value, "warn", fix)
    return Finding("disk", value)


def find_hub() -> Finding:
    """Find whether the Hugging Face Hub answers, within seconds."""
    from huggingface_hub import constants, get_session, get_token

    if constants.HF_HUB_OFFLINE:
        return Finding("Hub", "not tried: HF_HUB_OFFLINE is set")
    host = urlsplit(constants.ENDPOINT).hostname
    answers: list[str] = []

    def ask() -> None:
        try:
            response = get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
            answers.append(f"HTTP {response.status_code}" * (response.status_code >= 400))
        except Exception as error:  # every library below has its own kinds
            answers.append(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")

    asking = Thread(target=ask, daemon=True)  # looking a name up has no timeout
    asking.start()
    asking.join(HUB_SECONDS + 1)
    failure = answers[0] if answers else f"no answer in {HUB_SECONDS:.0f} s"
    if failure:
        fix = "only downloads need it; without a network, set HF_HUB_OFFLINE=1"
        return Finding("Hub", f"{host} cannot be reached: {failure}", "warn", fix)
    login = "logged in" if get_token() else "not logged in, which only private data needs"
    return Finding("Hub", f"{host} answers; {login}")
