"""The faster precision is chosen, by measurement."""

import time

import pytest
import torch

from electrify.planning import hardware
from electrify.training import precision
from electrify.training.engine import Engine
from electrify.training.precision import choose_precision, chosen

NATIVE = {"float32": 100e9, "bf16": 190e9, "fp16": 1e9}
EMULATED = {"float32": 70e9, "bf16": 1.6e9, "fp16": 1.4e9}
ALIKE = {"float32": 100e9, "bf16": 110e9}


@pytest.mark.parametrize(
    ("asked", "speeds", "wanted", "fastest"),
    [
        ("auto", NATIVE, "bf16", "bf16"),
        ("auto", EMULATED, "float32", "float32"),
        ("auto", ALIKE, "float32", "float32"),
        ("float32", NATIVE, "float32", "bf16"),
        ("float32", EMULATED, "float32", "float32"),
        ("bf16", EMULATED, "bf16", "float32"),
        ("fp16", NATIVE, "fp16", "bf16"),
    ],
)
def test_the_requested_precision_or_the_faster_one(asked, speeds, wanted, fastest):
    choice = chosen(asked, speeds)
    assert (choice.precision, choice.muon) == (wanted, fastest)


def test_the_reason_has_both_numbers():
    reason = chosen("auto", EMULATED).reason
    assert reason == "auto: float32 matmuls run at 70 GFLOP/s per thread, bfloat16 at 1.6"


def test_a_slow_precision_is_named_and_others_are_not():
    assert chosen("bf16", EMULATED).slow
    assert "44 times slower than float32" in chosen("bf16", EMULATED).reason
    assert "float16 matmuls run 100 times slower" in chosen("fp16", NATIVE).reason
    for asked, speeds in (("bf16", NATIVE), ("float32", EMULATED), ("bf16", ALIKE)):
        assert not chosen(asked, speeds).slow
        assert chosen(asked, speeds).reason == ""


def test_choosing_is_fast_and_leaves_the_threads_and_random_state_alone():
    before, begin = torch.get_num_threads(), time.process_time()
    state = torch.get_rng_state()
    choice = choose_precision("auto", "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert time.process_time() - begin < 5  # about 0.05 s, 0.15 s where bfloat16 is emulated
    assert torch.get_num_threads() == before
    assert choice.precision == choice.muon
    assert "GFLOP/s" in choice.reason


def test_the_best_of_several_rounds_counts(monkeypatch):
    """A short disturbance by other programs does not decide."""
    measured = iter([1e9, 70e9, 2e9, 1e9, 1e9, 80e9, 1e9, 1e9])  # bf16 and float32 in turns
    monkeypatch.setattr(precision, "matmul_speed", lambda *what: next(measured))
    reason = choose_precision("auto", "cpu").reason
    assert reason == "auto: float32 matmuls run at 80 GFLOP/s per thread, bfloat16 at 2"
    assert next(measured, None) is None


def test_devices_that_cannot_be_measured_train_in_float32():
    assert choose_precision("auto", "mps").precision == "float32"


def test_an_engine_trains_in_the_chosen_precision(monkeypatch):
    monkeypatch.setattr(precision, "matmul_speed", lambda name, *what: NATIVE[name])
    engine = Engine("auto", "cpu")
    assert engine.precision == "bf16"
    assert engine.muon_dtype == torch.bfloat16
    with engine.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    monkeypatch.setattr(precision, "matmul_speed", lambda name, *what: EMULATED[name])
    engine = Engine("auto", "cpu")
    assert (engine.precision, engine.muon_dtype) == ("float32", torch.float32)


def test_matmul_speed_stops_after_one_slow_matmul(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(hardware.time, "perf_counter", lambda: next(clock))
    assert hardware.matmul_speed("float32", "cpu", 64, seconds=0.5) == 2 * 64**3
