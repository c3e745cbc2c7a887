"""Reasons to stop before the end: a signal, the time limit, or a launcher that has exited."""

import math
import os
import re
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
"""A run stops this many seconds before its time limit, because schedulers kill at the limit."""
LONGEST = 100 * 365 * 86_400.0  # seconds; rejects "inf" and "nan", which float() accepts
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Stop:
    """Tells whether this process has been asked to stop, and why."""

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and seconds <= STOP_MARGIN:
            raise UserError(
                "--max-time leaves no time to train",
                got=f"{seconds:.0f} s, of which the last {STOP_MARGIN:.0f} s are reserved",
                fix="use at least a few minutes, such as 10m",
            )
        self.begin = time.monotonic()
        self.seconds = seconds
        self.signal: int | None = None
        self.finished = False
        """Whether the run has reached its last step."""
        self.launcher: int | None = None
        """Process id of the launcher; if it exits, no other process would stop this one."""

    def why(self, step_and_save: float = 0.0) -> str:
        """Return the reason to stop, or ""; a step and a save take `step_and_save` seconds."""
        if self.signal is not None:
            return signal.Signals(self.signal).name
        if self.launcher is not None and os.getppid() != self.launcher:
            return "the launcher has exited"
        return "time limit reached" if self.remaining < STOP_MARGIN + step_and_save else ""

    @property
    def remaining(self) -> float:
        """Return the seconds until the time limit; infinite without one."""
        return math.inf if self.seconds is None else self.seconds - (time.monotonic() - self.begin)


@contextmanager
def watching(stop: Stop) -> Iterator[None]:
    """Let signals set `stop.signal`; a second Ctrl-C exits. Only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.signal == signal.SIGINT == number:
            os.write(sys.stderr.fileno(), b"\nexited immediately; the last checkpoint is intact\n")
            os._exit(EXIT_INTERRUPTED)
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.signal == signal.SIGUSR1 and before[signal.SIGUSR1] == signal.SIG_DFL:
            # A scheduler may send it again while the process exits, which it would kill by default.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def parse_duration(text: str, setting: str) -> float:
    """Return the seconds of a duration such as "45m", "1.5h", "90s", "2d" or "1h30m".

    >>> parse_duration("45m", "--budget"), parse_duration("1h30m", "--budget")
    (2700.0, 5400.0)
    """
    *parts, rest = re.split(r"(?<=[smhd])", text.strip().lower())
    try:
        seconds = float(sum(float(part[:-1]) * _UNITS[part[-1]] for part in parts))
    except ValueError:
        seconds = math.nan
    if rest or not 0 < seconds <= LONGEST:
        raise UserError(
            f"{setting} is not a valid duration", got=text, fix="write 45m, 1h30m, 90s or 2d"
        )
    return seconds
