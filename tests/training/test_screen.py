"""What the terminal shows."""

import io
import math
import sys
import time
from pathlib import Path

import pytest
import torch

from electrify.objectives.bands import Sizes
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.training import screen
from electrify.training.screen import Screen, Sight, progress_line, validation_lines

BY_FREQUENCY = "The model still predicts tokens mostly by frequency (normal early on)."


def test_a_line_omits_unknown_values():
    assert progress_line(Sight(1, 10, {"loss": 10.4321})) == "step 1/10  loss 10.4"
    assert progress_line(Sight(1, 10, {}, memory=12.34e9)) == "step 1/10  12.3 GB"
    assert progress_line(Sight(1, 10, {"loss": math.nan}, share_of_peak=0.0)) == (
        "step 1/10  loss nan  0% of peak"
    )


def test_plain_lines_are_printed_every_few_seconds_and_at_both_ends(capsys, monkeypatch):
    clock = iter(range(100, 200))  # one second per step
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with Screen() as shown:
        for step in range(1, 26):
            shown.show(Sight(step, 25, {}))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"step {step}/25" for step in (1, 11, 21, 25)]


def test_a_terminal_shows_one_line_that_changes(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with Screen() as screen:
        print("a result")
        for step in range(1, 501):
            screen.show(Sight(step, 500, {"loss": 1.5}))
    shown = terminal.getvalue()
    assert "step 500/500  loss 1.5" in shown
    assert shown.count("\n") == 1
    assert capsys.readouterr().out == "a result\n"
    assert shown.count("step") < 500  # not every step is drawn


@pytest.mark.parametrize(
    ("loss", "reading"),
    [
        (7.0, f"\n  {BY_FREQUENCY}"),
        (math.nan, ""),
    ],
)
def test_validation_metrics_come_first_and_their_reading_on_a_second_line(loss, reading):
    metrics = {"mlm_loss": loss, "mlm_accuracy": 0.1}
    lines = validation_lines(MaskedLanguageModel, Sizes(8_192), 1_200, metrics)
    assert lines == (
        f"validation  step 1,200  masked-LM loss {loss:.2f} (uniform guessing 9.01){reading}"
    )


def test_the_peak_is_that_of_the_device_in_use():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    peak = screen.matmul_peak(device, "float32")
    assert peak is not None
    assert peak > 1e8  # any CPU of this century
    assert screen.matmul_peak(torch.device("meta"), "float32") is None


@pytest.mark.parametrize(("flops", "seconds", "peak"), [(None, 1, 1), (1, 0, 1), (1, 1, None)])
def test_a_share_of_an_unknown_peak_is_unknown(flops, seconds, peak):
    assert screen.share_of_peak(flops, seconds, peak) is None


@pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux's own count")
def test_memory_is_the_peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert screen.peak_memory(torch.device("cpu")) == pytest.approx(kilobytes * 1024, rel=0.05)
