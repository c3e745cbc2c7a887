"""Wall-clock times of a run, for people; nothing that is trained depends on them."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

Item = TypeVar("Item")


class Clock:
    """Measures steps, rates, and the time since the last save."""

    def __init__(self) -> None:
        self.last_log = self.last_step = self.last_save = time.monotonic()
        self.tokens = self.steps = 0
        self.longest = 0.0
        """Seconds between two steps, with what came between: evaluation, saving."""

    def ticked(self, tokens: int) -> None:
        """A step is over."""
        now = time.monotonic()
        self.longest, self.last_step = max(self.longest, now - self.last_step), now
        self.tokens += tokens
        self.steps += 1

    def timings(self) -> dict[str, float]:
        """Rates since the last call."""
        seconds = max(time.monotonic() - self.last_log, 1e-9)
        rates = {
            "tokens_per_second": self.tokens / seconds,
            "steps_per_second": self.steps / seconds,
        }
        self.last_log, self.tokens, self.steps = time.monotonic(), 0, 0
        return rates

    def save_is_due(self, seconds: float) -> bool:
        """Whether so much time has passed since the last save; 0 is never."""
        return 0 < seconds < time.monotonic() - self.last_save

    def saved(self) -> None:
        """A save was begun."""
        self.last_save = time.monotonic()


class Spent:
    """Where the wall clock goes: on data, forward, backward, optimizer, evaluation, saving."""

    IN_UPDATES = ("forward", "backward", "optimizer")
    EVERY = 16
    """Updates of which one is measured: on a GPU that means to wait for it, which costs time."""

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.wait = wait
        """Waits for the device to finish its work."""
        self.updates = 0
        self.measuring = False
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.started = time.monotonic()

    def restart(self) -> None:
        """Forget what was counted: setting up and measuring are not part of the training."""
        self.updates, self.measuring = 0, False
        self.seconds.clear()
        self.started = time.monotonic()

    def begin_update(self) -> None:
        """Count an update; some are measured, the first one among them."""
        self.updates += 1
        self.measuring = self.updates % self.EVERY == 1

    def in_update(self, what: str) -> AbstractContextManager[None]:
        """Count the time inside, if this update is measured."""
        return self.on(what) if self.measuring else nullcontext()

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Count the time inside as spent on something."""
        self.wait()
        begin = time.monotonic()
        yield
        self.wait()
        self.seconds[what] += time.monotonic() - begin

    def waiting(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items; the time they took to come was spent on data."""
        iterator = iter(items)
        while True:
            begin = time.monotonic()
            try:
                item = next(iterator)
            except StopIteration:
                return
            self.seconds["data"] += time.monotonic() - begin
            yield item

    def shares(self) -> dict[str, float]:
        """Of all time since the beginning; updates are shared out as those that were measured."""
        total = max(time.monotonic() - self.started, 1e-9)
        beside = {name: self.seconds[name] / total for name in ("data", "evaluation", "saving")}
        measured = sum(self.seconds[name] for name in self.IN_UPDATES)
        updates = 1 - sum(beside.values())
        inside = {
            name: self.seconds[name] / measured * updates if measured else 0.0
            for name in self.IN_UPDATES
        }
        return {"data": beside.pop("data"), **inside, **beside}
