"""Many independent jobs through a `concurrent.futures.Executor`: here, a pool, or Dask."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeVar

from electrify.errors import UserError, needs

SECONDS_TO_SAVE = 30.0
"""That workers have after an interrupt or an error; a second Ctrl-C leaves immediately."""

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class InProcessExecutor(Executor):
    """Runs each job immediately in this process: what one worker means."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the job and return its result as a future that is done."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Pool(ProcessPoolExecutor):
    """A pool whose workers cannot be interrupted while they start."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue a job, and perhaps start a worker for it."""
        ours = getattr(fn, "func", fn).__module__ != "__main__"
        with _interrupts_blocked(), _without_main() if ours else nullcontext():
            return super().submit(fn, *args, **kwargs)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C pending, in this process until the end and in the workers started inside.

    A worker inherits the signal mask through fork and exec, and `_start_worker` lifts it. Without
    it an interrupt ends in a traceback from the worker's imports.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock signals before the workers
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start workers that do not run the user's script again.

    A spawned worker imports the main module; a script without `if __name__ == "__main__"` would do
    its work again there. A job that is defined elsewhere does not need it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def executor(workers: int | str) -> Iterator[Executor]:
    """`workers` processes on this machine (0: one per core), or the address of a Dask scheduler."""
    if isinstance(workers, str) and not workers.lstrip("-").isdigit():
        with _dask(workers) as cluster:
            yield cluster
        return
    count = int(workers) or available_cores()
    if count < 0:
        raise UserError("workers must be 0 or more", got=f"{count}", fix="0 takes every core")
    if count == 1:
        yield InProcessExecutor()
        return
    # Spawned, not forked: Arrow and the tokenizers keep threads that do not survive a fork.
    pool = _Pool(count, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker)
    try:
        with _second_interrupt_kills():
            yield pool
    except BrokenProcessPool as error:
        _end(pool)
        raise UserError(
            "a worker process died",
            got="killed from outside, most often because memory ran out",
            fix="run the same command again, perhaps with fewer --workers: finished parts are kept",
        ) from error
    except BaseException:
        _end(pool)
        raise
    finally:
        # The interpreter waits at its end anyway, and there may write to a pipe just closed.
        pool.shutdown(wait=True, cancel_futures=True)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers: a fit saves first, and what others were writing is not committed."""
    living = list((pool._processes or {}).values())
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while living and time.monotonic() < deadline:
        for process in living:
            process.terminate()  # again and again: a worker may have the next job in hand already
        living[0].join(0.2)
        living = [process for process in living if process.is_alive()]
    for process in living:
        process.kill()


@contextmanager
def _second_interrupt_kills() -> Iterator[None]:
    """The first Ctrl-C is an exception as ever; a second one ends this process and its workers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_first_interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_first_interrupt)
    try:
        yield
    finally:  # after an interrupt it stays as it is: the cleaning up may be cut short
        if signal.getsignal(signal.SIGINT) is on_first_interrupt:
            signal.signal(signal.SIGINT, before)


def available_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    function: Callable[[_Job], _Result], jobs: Iterable[_Job], pool: Executor, ahead: int
) -> Iterator[_Result]:
    """Results in the order of the jobs, at most `ahead` of them under way: memory stays flat."""
    waiting: deque[Future[_Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(function, job))
            while waiting and (len(waiting) >= ahead or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except GeneratorExit:  # the caller has enough: nothing may go on writing behind its back
        wait([future for future in waiting if not future.cancel()])
        raise


def _start_worker() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:  # a parent that is killed outright cannot tell us: do not outlive it
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    why = f"--workers {address}, the address of a Dask cluster (a number means processes here),"
    distributed = needs("distributed", extra="cluster", why=why)
    try:
        client = distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise UserError(
            "no Dask scheduler answers",
            got=f"{address}: {error}",
            fix="start one with `dask scheduler`",
        ) from error
    with client:
        yield client.get_executor()
