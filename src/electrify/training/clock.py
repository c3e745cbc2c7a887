"""Measure the wall-clock time of a run, for reporting only: training does not depend on it."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

Item = TypeVar("Item")

IN_UPDATES = ("forward", "backward", "optimizer")
TIME_PARTS = ("data", *IN_UPDATES, "evaluation", "saving")
"""What the time of a run is spent on."""


class Clock:
    """Measures step times, throughput and the time since the last save."""

    def __init__(self) -> None:
        self.last_log = self.last_step = self.last_save = time.monotonic()
        self.tokens = self.steps = 0
        self.longest = 0.0
        """The longest time between two steps in seconds, including evaluation and saving."""

    def ticked(self, tokens: int) -> None:
        """Count a finished step."""
        now = time.monotonic()
        self.longest, self.last_step = max(self.longest, now - self.last_step), now
        self.tokens += tokens
        self.steps += 1

    def timings(self) -> dict[str, float]:
        """Return the throughput and the time since the last call."""
        seconds = max(time.monotonic() - self.last_log, 1e-9)
        rates = {
            "tokens_per_second": self.tokens / seconds,
            "steps_per_second": self.steps / seconds,
            "seconds": seconds,
        }
        self.last_log, self.tokens, self.steps = time.monotonic(), 0, 0
        return rates

    def save_is_due(self, seconds: float) -> bool:
        """Return whether more than `seconds` have passed since the last save; never if it is 0."""
        return 0 < seconds < time.monotonic() - self.last_save

    def saved(self) -> None:
        """Restart the time since the last save."""
        self.last_save = time.monotonic()


class Spent:
    """Measures how the time divides into data, forward, backward, optimizer, evaluation, saving."""

    EVERY = 16
    """One in this many updates is measured: on a GPU measuring means waiting, which costs time."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.wait = wait
        """Waits for the device to finish its work."""
        self.updates = 0
        self.measuring = False
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._logged: dict[str, float] = {}
        self.started = time.monotonic()

    def restart(self) -> None:
        """Start from zero: setting up and measuring the budget are not part of training."""
        self.updates, self.measuring = 0, False
        self.seconds.clear()
        self._logged.clear()
        self.started = time.monotonic()

    def begin_update(self) -> None:
        """Count an update, and decide whether it is measured; the first one is."""
        self.updates += 1
        self.measuring = self.updates % self.EVERY == 1

    def in_update(self, what: str) -> AbstractContextManager[None]:
        """Count the time inside the context, if this update is measured."""
        return self.on(what) if self.measuring else nullcontext()

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside the context as spent on `what`."""
        self.wait()
        begin = time.monotonic()
        yield
        self.wait()
        self.seconds[what] += time.monotonic() - begin

    def waiting(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, and count the time spent waiting for them as data time."""
        iterator = iter(items)
        while True:
            begin = time.monotonic()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self.seconds["data"] += time.monotonic() - begin
            yield item

    def since_last_log(self) -> dict[str, float]:
        """Return the seconds that were measured for each part since the last call."""
        new = {f"{n}_seconds": s - self._logged.get(n, 0.0) for n, s in self.seconds.items()}
        self._logged = dict(self.seconds)
        return new

    def shares(self) -> dict[str, float]:
        """Return the fraction of the time spent on each part."""
        return time_shares(self.seconds, time.monotonic() - self.started)


def time_shares(seconds: Mapping[str, float], total: float) -> dict[str, float]:
    """Return the fraction of the time spent on each part, extrapolated for the updates.

    >>> time_shares({"data": 1, "forward": 0.2, "backward": 0.2}, 10)["backward"]
    0.45
    """
    found = {name: seconds.get(name, 0.0) / max(total, 1e-9) for name in TIME_PARTS}
    measured = sum(found[name] for name in IN_UPDATES)
    updates = 1 - sum(share for name, share in found.items() if name not in IN_UPDATES)
    scale = updates / measured if measured else 0.0
    return {name: found[name] * (scale if name in IN_UPDATES else 1) for name in TIME_PARTS}
