"""Run independent jobs in this process, in a process pool or on a Dask cluster."""

import multiprocessing
import os
import platform
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import chdir, contextmanager, nullcontext
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from electrify import __version__
from electrify.errors import UserError, needs

SECONDS_TO_SAVE = 30.0
"""Time that workers get to save after an interrupt or an error; a second Ctrl-C ends them."""

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class InProcessExecutor(Executor):
    """Runs each job immediately in this process; used for one worker."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the job and return its result as a finished future."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Pool(ProcessPoolExecutor):
    """A process pool whose workers cannot be interrupted while they start."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a job, which may start a worker for it."""
        in_script = getattr(fn, "func", fn).__module__ == "__main__"
        with _interrupts_blocked(), nullcontext() if in_script else _without_main():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this process until the block ends, and in the workers that it starts.

    A worker inherits the signal mask through fork and exec, and `_start_worker` resets it.
    Otherwise an interrupt during the imports of a worker would print a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started inside, it would unblock SIGINT for the workers
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start workers without importing the user's script in them.

    A spawned worker imports the main module, so a script without `if __name__ == "__main__"` would
    run again in every worker. Only jobs that are defined in the script need it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def is_number(workers: str) -> bool:
    """Return whether a text is a number of processes, not the address of a scheduler.

    >>> is_number("2"), is_number("-1"), is_number("²"), is_number("tcp://host:8786")
    (True, True, False, False)
    """
    return re.fullmatch(r"-?[0-9]+", workers) is not None


@contextmanager
def executor(workers: int | str, gpus: Sequence[str] = ()) -> Iterator[Executor]:
    """Yield an executor with `workers` processes (0: one per core), or for a Dask scheduler.

    A text that is no number is the address of a scheduler, or the path of its scheduler file.
    If there are GPUs, named as in CUDA_VISIBLE_DEVICES, each process sees one of them.
    """
    if isinstance(workers, str) and not is_number(workers):
        with _dask(workers) as cluster:
            yield cluster
        return
    count = int(workers) or available_cores()
    if count < 0:
        raise UserError("workers must be 0 or more", got=f"{count}", fix="use 0 for every core")
    if count == 1:
        yield InProcessExecutor()
        return
    # Spawned, not forked: Arrow and tokenizers have threads, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    arguments = context.Value("i", 0), gpus
    pool = _Pool(count, mp_context=context, initializer=_start_worker, initargs=arguments)
    try:
        with _second_interrupt_kills():
            yield pool
    except BrokenProcessPool as error:
        _stop(pool)
        raise UserError(
            "a worker process died",
            got="it was killed, most often because memory ran out",
            fix="run the same command again, perhaps with fewer --workers; finished parts are kept",
        ) from error
    except BaseException:
        _stop(pool)
        raise
    finally:
        # Wait here: the interpreter would wait at exit, when a worker's pipe may be closed already.
        pool.shutdown(wait=True, cancel_futures=True)


def _stop(pool: ProcessPoolExecutor) -> None:
    """Stop the workers; fine-tuning runs save first, and half-written files are not committed."""
    alive = list((pool._processes or {}).values())
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while alive and time.monotonic() < deadline:
        for process in alive:
            process.terminate()  # repeatedly, because a worker may have started its next job
        alive[0].join(0.2)
        alive = [process for process in alive if process.is_alive()]
    for process in alive:
        process.kill()
    # Python before 3.11.5 would wait forever for a large job that no worker reads (gh-94777).
    pool._call_queue._reader.close()  # type: ignore[attr-defined]


@contextmanager
def _second_interrupt_kills() -> Iterator[None]:
    """Make the first Ctrl-C raise as usual, and a second one end this process and its workers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_first_interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_first_interrupt)
    try:
        yield
    finally:  # after an interrupt the default stays, so that a second one can cut cleanup short
        if signal.getsignal(signal.SIGINT) is on_first_interrupt:
            signal.signal(signal.SIGINT, before)


def available_cores() -> int:
    """Return the cores this process may use; in a container, fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    function: Callable[[_Job], _Result], jobs: Iterable[_Job], pool: Executor, ahead: int
) -> Iterator[_Result]:
    """Yield results in the order of the jobs; at most `ahead` are pending, to bound memory."""
    waiting: deque[Future[_Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(function, job))
            while waiting and (len(waiting) >= ahead or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except GeneratorExit:  # the caller stopped early, and nothing may keep writing after that
        wait([future for future in waiting if not future.cancel()])
        raise


def device_of_worker(worker: int, gpus: Sequence[str]) -> str:
    """Return the GPU of a worker; if there are more workers than GPUs, they share them in turn.

    >>> [device_of_worker(worker, ["0", "3"]) for worker in range(5)]
    ['0', '3', '0', '3', '0']
    """
    return gpus[worker % len(gpus)]


def _start_worker(started: "Synchronized[int]", gpus: Sequence[str]) -> None:
    with started.get_lock():
        worker = started.value
        started.value += 1
    if gpus:  # before torch looks for devices
        os.environ["CUDA_VISIBLE_DEVICES"] = device_of_worker(worker, gpus)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:  # a parent that gets SIGKILL cannot stop its workers
        threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


class _DaskExecutor(Executor):
    """Runs jobs on a Dask cluster, in this process's working directory, so relative paths work."""

    def __init__(self, pool: Executor) -> None:
        self._pool, self._folder = pool, str(Path.cwd())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a job; if its worker dies, another one runs it again."""
        return self._pool.submit(_on_worker, self._folder, __version__, fn, *args, **kwargs)


_ONE_AT_A_TIME = threading.Lock()


def _on_worker(
    folder: str, version: str, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any
) -> _Result:
    """Run a job in a Dask worker, after checking that it has the same folder and electrify.

    Jobs are not thread-safe, so a worker with several threads runs one at a time.
    """
    if version != __version__:
        raise UserError(
            "the Dask workers have another version of electrify",
            got=f"{__version__} on {platform.node()}, {version} here",
            fix="use one environment for all of them",
        )
    if not Path(folder).is_dir():
        raise UserError(
            "a Dask worker does not have the working directory of this command",
            got=f"{folder}, on {platform.node()}",
            fix="run the command in a folder that all workers share, at the same path",
        )
    with _ONE_AT_A_TIME, chdir(folder):
        return fn(*args, **kwargs)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    why = f"--workers {address}, the address of a Dask cluster (a number means local processes),"
    distributed = needs("distributed", extra="cluster", why=why)
    at = {"scheduler_file" if Path(address).is_file() else "address": address}
    try:
        client = distributed.Client(**at, timeout=10)
    except (OSError, ValueError) as error:
        raise UserError(
            "cannot connect to the Dask scheduler",
            got=f"{address}: {error}",
            fix="start one with `dask scheduler`, and give its address or its scheduler file",
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            print(f"waiting for Dask workers at {address}", file=sys.stderr, flush=True)
        try:
            # Not pure: Dask would return the result of an earlier job instead of writing its files.
            yield _DaskExecutor(client.get_executor(pure=False))
        except (CancelledError, distributed.CommClosedError) as error:
            raise UserError(
                "the connection to the Dask scheduler was lost",
                got=f"{address}: {type(error).__name__}",
                fix="start the scheduler and run the same command again; it resumes",
            ) from error
        except distributed.KilledWorker as error:
            raise UserError(
                "Dask workers died of the same job several times",
                got=f"{error}".partition("\n")[0],
                fix="give each worker more memory and run the same command again; it resumes",
            ) from error
