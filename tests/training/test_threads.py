"""OpenMP threads spin on a free machine and sleep on a busy one."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from electrify.training import threads

EFFECT = """
import os, threading, time, torch
from electrify.training.threads import _idle_threads

def count(expected):
    for _ in range(100):
        found = len(os.listdir("/proc/self/task"))
        if found == expected:
            break
        time.sleep(0.05)
    return found

torch.zeros(1 << 17).add_(1.0)
before = count(-1)
end = threading.Event()
threading.Thread(target=_idle_threads, args=(end,)).start()
print(count(before + 2) - before)
end.set()
print(count(before) - before)
"""


@pytest.fixture
def watched(monkeypatch):
    """Return a function from the waiting times of each check to whether threads are idle after it."""

    def watch(*waited: float) -> list[bool]:
        total, ends, states = [0.0], [], []
        values = iter(waited)

        def idle(end: threading.Event) -> None:
            ends.append(end)

        def sleep(seconds: float) -> None:
            if total[1:]:
                states.append(bool(ends) and not ends[-1].is_set())
            total.append(total[-1] + next(values))

        clock = SimpleNamespace(sleep=sleep, perf_counter=lambda: float(len(total)))
        started = SimpleNamespace(Event=threading.Event, Thread=ImmediateThread)
        monkeypatch.setattr(threads, "time", clock)
        monkeypatch.setattr(threads, "threading", started)
        monkeypatch.setattr(threads, "_idle_threads", idle)
        monkeypatch.setattr(threads, "seconds_waited", lambda: total[-1])
        with pytest.raises(StopIteration):
            threads._watch()
        return states

    return watch


class ImmediateThread:
    def __init__(self, target, args, daemon) -> None:
        self.start = lambda: target(*args)


def test_threads_sleep_while_others_use_the_cores(watched):
    assert watched(0.01, 0.2, 0.7, 0.5, 0.2, 0.02, 0.2, 1.0) == [
        False,
        False,
        True,
        True,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize("chosen", [*threads.POLICIES, ""])
def test_the_choice_of_the_user_stays(chosen, monkeypatch):
    started = []
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "seconds_waited", lambda: 1.0)
    monkeypatch.setattr(
        threads.threading,
        "Thread",
        lambda **what: SimpleNamespace(start=lambda: started.append(what)),
    )
    for name in threads.POLICIES:
        monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv(chosen, "PASSIVE")
    threads.sleep_when_busy.__wrapped__()
    assert bool(started) is (chosen == "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_idle_threads_come_and_go():
    done = subprocess.run(
        [sys.executable, "-c", EFFECT],
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["2", "0"], "the one that asks and another OpenMP thread"
