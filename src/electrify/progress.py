"""How far a long command is: a live bar on a terminal, plain lines where there is none."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS_BETWEEN_LINES = 10.0

Update = Callable[[float | None, str], None]
"""Takes the share that is done (None where unknown) and what to say of it."""


@contextmanager
def progress(title: str) -> Iterator[Update]:
    """Show the progress of what happens inside on standard error."""
    if sys.stderr.isatty():
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, said="")

        def update(share: float | None, said: str) -> None:
            if share is not None:
                bar.update(task, total=1.0, completed=share)
            bar.update(task, said=said)

        yield update


def _lines(title: str) -> Update:
    begin = last = time.monotonic()

    def update(share: float | None, said: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        left = f", about {duration((now - begin) * (1 - share) / share)} left" if share else ""
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
