"""The progress output of long commands on terminals."""

import os
import pty
import subprocess
import sys

import pytest

BAR = """
import time
from electrify.progress import progress
with progress("fine-tuning") as update:
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < 3:
        update(elapsed / 3, f"seed 0, step {elapsed:.3f}, loss {elapsed:.3f}")
        time.sleep(0.002)
"""
SCREEN = """
import time
from electrify.training.screen import Screen, Sight
with Screen() as screen:
    start = time.monotonic()
    while (t := time.monotonic() - start) < 3:
        screen.show(Sight(int(1000 * t), 3000, {"loss": t}, 12345.6, 0.5, 1e9, 3 - t))
        time.sleep(0.002)
    screen.show(Sight(3000, 3000, {"loss": 1.0}))
"""


def on_a_terminal(program: str, **variables: str) -> str:
    """Return the output of a program whose standard output and error are a terminal."""
    master, terminal = pty.openpty()
    without = {name: value for name, value in os.environ.items() if name != "CI"}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**without, "TERM": "xterm-256color", "COLUMNS": "100", **variables},
    )
    os.close(terminal)
    written = b""
    try:
        while block := os.read(master, 65536):
            written += block
    except OSError:  # on Linux, the other end was closed
        pass
    os.close(master)
    assert process.wait(timeout=20) == 0
    return written.decode()


@pytest.mark.parametrize("program", [BAR, SCREEN])
def test_a_terminal_is_not_flooded(program):
    """Hundreds of updates per second for three seconds cause a few redraws of about 100 bytes."""
    written = on_a_terminal(program)
    assert 2 <= written.count("step ") <= 6
    assert len(written) < 3 * 600


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, {"CI": "true"}])
@pytest.mark.parametrize("program", [BAR, SCREEN])
def test_dumb_terminals_and_ci_get_plain_lines(program, variables):
    short = program.replace("< 3:", "< 0.1:")
    assert "\x1b" not in on_a_terminal(short, **variables)
