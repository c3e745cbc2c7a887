"""Several engines in one Python process."""

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState

from electrify.errors import UserError
from electrify.training.engine import Engine


@pytest.fixture(autouse=True)
def fresh_state():
    """Reset accelerate's state before and after each test, as in a new process."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


def test_each_engine_has_its_own_precision():
    product = torch.ones(4, 4)
    for precision, dtype in {
        "bf16": torch.bfloat16,
        "float32": torch.float32,
        "fp16": torch.float16,
    }.items():
        engine = Engine(precision, "cpu")
        with engine.autocast():
            assert (product @ product).dtype == dtype
        assert engine.scaler.is_enabled() == (precision == "fp16")


def test_the_precision_of_the_launcher_is_ignored(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    engine = Engine("float32", "cpu")
    assert engine.accelerator.mixed_precision == "no"
    with engine.autocast():
        assert (torch.ones(4, 4) @ torch.ones(4, 4)).dtype == torch.float32


def test_another_device_than_the_first_is_refused(monkeypatch):
    assert Engine(device="cpu").device.type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match="already uses accelerate") as caught:
        Engine(device="cuda")
    assert "cpu" in caught.value.got
    PartialState._shared_state["device"] = torch.device("cuda", 0)
    with pytest.raises(UserError, match="already uses accelerate"):
        Engine(device="cpu")


def test_another_state_of_accelerate_is_refused():
    from accelerate import Accelerator

    Accelerator(mixed_precision="bf16", cpu=True)
    with pytest.raises(UserError, match="already uses accelerate"):
        Engine(device="cpu")


def test_auto_is_never_mps_which_has_no_float64(monkeypatch):
    """Simulate a Mac, where torch has an accelerator that is not CUDA."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda *args: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    assert PartialState().default_device.type == "mps", "the simulation works"
    AcceleratorState._reset_state(True)
    for device in ("auto", "cpu"):
        assert Engine(device=device).device.type == "cpu"
