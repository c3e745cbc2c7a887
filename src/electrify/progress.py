"""How far a long command is: a live bar on a terminal, plain lines where there is none.

A terminal may be one that nobody looks at and that keeps every byte (`script`, CI with a pty), so a
bar is drawn again at most once a second, and only when there is something new.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_REDRAWS = 1.0

Update = Callable[[float | None, str], None]
"""Takes the share that is done (None where unknown) and what to say of it."""


class Throttle:
    """Lets one call through in so many seconds, the first at once unless it has to wait as well."""

    def __init__(self, seconds: float, wait_first: bool = False) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + seconds if wait_first else 0.0

    def ready(self) -> bool:
        """Return whether it is time again."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def has_live_terminal() -> bool:
    """Whether a line on standard error can be drawn over, and somebody may look at it."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and not dumb and not in_ci


@contextmanager
def progress(title: str) -> Iterator[Update]:
    """Show the progress of what happens inside on standard error."""
    if has_live_terminal():
        with _bar(title) as update:
            yield update
    else:
        yield _lines(title)


@contextmanager
def _bar(title: str) -> Iterator[Update]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
    )
    console, throttle = Console(stderr=True), Throttle(SECONDS_BETWEEN_REDRAWS)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=None, said="")

        def update(share: float | None, said: str) -> None:
            if share is not None:
                bar.update(task, total=1.0, completed=share)
            bar.update(task, said=said)
            if throttle.ready():
                bar.refresh()

        yield update


def _lines(title: str) -> Update:
    begin, throttle = time.monotonic(), Throttle(SECONDS_BETWEEN_LINES, wait_first=True)

    def update(share: float | None, said: str) -> None:
        if not throttle.ready():
            return
        taken = time.monotonic() - begin
        left = f", about {duration(taken * (1 - share) / share)} left" if share else ""
        done = f"{share:.0%} " if share is not None else ""
        print(f"{title}: {done}{said}{left}", file=sys.stderr, flush=True)

    return update


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(42), duration(200), duration(90_000)
    ('42 s', '3 min', '25 h 0 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
