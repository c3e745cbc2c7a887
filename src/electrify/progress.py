"""Progress of long commands: a live bar on a terminal, plain lines elsewhere.

Some terminals record every byte (`script`, CI with a pty), so the bar is redrawn at most once a
second, and only after an update.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from electrify.errors import visible

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_REDRAWS = 1.0

Update = Callable[[float | None, str], None]
"""Takes the fraction that is done (None if unknown) and a status text."""


class Throttle:
    """Allows one call per interval; the first is allowed immediately unless `wait_first` is set."""

    def __init__(self, seconds: float, wait_first: bool = False) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + seconds if wait_first else 0.0

    def ready(self) -> bool:
        """Return whether the interval has passed, and if so start the next one."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def has_live_terminal() -> bool:
    """Return whether standard error is an interactive terminal that can redraw a line."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return sys.stderr.isatty() and not dumb and not in_ci


@contextmanager
def progress(title: str) -> Iterator[Update]:
    """Show the progress of the block on standard error."""
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
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(),
    )
    console, throttle = Console(stderr=True), Throttle(SECONDS_BETWEEN_REDRAWS)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=None, status="")

        def update(fraction: float | None, status: str) -> None:
            if fraction is not None:
                bar.update(task, total=1.0, completed=fraction)
            bar.update(task, status=visible(status))
            if throttle.ready():
                bar.refresh()

        yield update


def _lines(title: str) -> Update:
    start, throttle = time.monotonic(), Throttle(SECONDS_BETWEEN_LINES, wait_first=True)

    def update(fraction: float | None, status: str) -> None:
        if not throttle.ready():
            return
        elapsed = time.monotonic() - start
        remaining = duration(elapsed * (1 - fraction) / fraction) if fraction else ""
        percent = f"{fraction:.0%} " if fraction is not None else ""
        suffix = f", about {remaining} left" if remaining else ""
        print(f"{title}: {percent}{visible(status)}{suffix}", file=sys.stderr, flush=True)

    return update


def duration(seconds: float) -> str:
    """Return a number of seconds in readable units.

    >>> duration(42), duration(200), duration(90_000)
    ('42 s', '3 min', '25 h 0 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
