"""What long commands write to a terminal that nobody looks at."""

import os
import pty
import subprocess
import sys

import pytest

BAR = """
import time
from electrify.progress import progress
with progress("fine-tuning") as update:
    begin = time.monotonic()
    while (taken := time.monotonic() - begin) < 3:
        update(taken / 3, f"seed 0, step {taken:.3f}, loss {taken:.3f}")
        time.sleep(0.002)
"""
SCREEN = """
import time
from electrify.training.screen import Screen, Sight
with Screen() as screen:
    begin = time.monotonic()
    while (taken := time.monotonic() - begin) < 3:
        screen.show(Sight(int(1000 * taken), 3000, {"loss": taken}, 12345.6, 0.5, 1e9, 3 - taken))
        time.sleep(0.002)
    screen.show(Sight(3000, 3000, {"loss": 1.0}))
"""


def on_a_terminal(program: str, **variables: str) -> str:
    """Return all that a program writes while its standard output and error are a terminal."""
    ours, theirs = pty.openpty()
    without = {name: value for name, value in os.environ.items() if name != "CI"}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**without, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    )
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 65536):
            written += block
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=20) == 0
    return written.decode()


@pytest.mark.parametrize("program", [BAR, SCREEN])
def test_a_terminal_is_not_flooded(program):
    """Three seconds of updates, hundreds a second: a few redraws of some hundred bytes."""
    written = on_a_terminal(program)
    assert 2 <= written.count("step ") <= 6
    assert len(written) < 3 * 600


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "true"}])
@pytest.mark.parametrize("program", [BAR, SCREEN])
def test_terminals_that_nobody_looks_at_get_plain_lines(program, variables):
    short = program.replace("< 3:", "< 0.1:")
    assert "\x1b" not in on_a_terminal(short, **variables)
