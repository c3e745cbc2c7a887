"""Reasons to stop before the end: a signal, or the time that was given."""

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from electrify.errors import EXIT_INTERRUPTED, UserError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STOP_MARGIN = 30.0
"""Seconds before the limit at which a run has stopped: schedulers kill on the second."""
LONGEST = 100 * 365 * 86_400.0  # seconds; "inf" and "nan" are numbers to Python, too
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Stop:
    """Whether this process was asked to stop, and why."""

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and seconds <= STOP_MARGIN:
            raise UserError(
                "--max-time leaves no time to train",
                got=f"{seconds:.0f} s, of which the last {STOP_MARGIN:.0f} s are kept free",
                fix="give some minutes",
            )
        self.begin = time.monotonic()
        self.seconds = seconds
        self.signal: int | None = None
        self.finished = False
        """Whether the run came to its end."""
        self.launcher: int | None = None
        """The process that started all of a group: without it nobody would end them."""

    def why(self, step_and_save: float = 0.0) -> str:
        """The reason, or nothing; `step_and_save` is how many seconds those take."""
        if self.signal is not None:
            return signal.Signals(self.signal).name
        if self.launcher is not None and os.getppid() != self.launcher:
            return "the launcher is gone"
        return "the time is used up" if self.left < STOP_MARGIN + step_and_save else ""

    @property
    def left(self) -> float:
        """Seconds of the time that was given."""
        return math.inf if self.seconds is None else self.seconds - (time.monotonic() - self.begin)


@contextmanager
def watching(stop: Stop) -> Iterator[None]:
    """Inside, signals ask to stop; a second Ctrl-C leaves at once. Threads get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.signal == signal.SIGINT == number:
            os.write(sys.stderr.fileno(), b"\nleft at once; the last checkpoint is whole\n")
            os._exit(EXIT_INTERRUPTED)
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds_of(text: str, setting: str) -> float:
    """Seconds from "45m", "1.5h", "90s", "2d" or a combination such as "1h30m".

    >>> seconds_of("45m", "--budget"), seconds_of("1h30m", "--budget")
    (2700.0, 5400.0)
    """
    rest, total, number = text.strip().lower(), 0.0, ""
    try:
        for character in rest:
            if character in _UNITS:
                total += float(number) * _UNITS[character]
                number = ""
            else:
                number += character
        if number or not 0 < total <= LONGEST:
            raise ValueError
    except ValueError:
        raise UserError(f"{setting} is no time", got=text, fix="45m, 1h30m, 90s or 2d") from None
    return total
