"""Learning rates match the official schedule."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electrify.training.schedule import STABLE_SHARE, factor

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())
TOY = {**GOLDEN["lr_schedule_toy_N100_W10_lr1"], "lr": 1.0, "num_train_steps": 100, "warmup_steps": 10}  # fmt: skip
COLA = {**GOLDEN["lr_schedule_finetune_cola_base_lr_1e-4"], "lr": 1e-4}
RUNS = {**GOLDEN["lr_schedule_pretrain"], "toy": TOY, "cola": COLA}
KINDS = ("electra", "linear", "cosine", "wsd", "constant")


@pytest.mark.parametrize("name", RUNS)
def test_the_official_rates(name):
    """Both of pre-training and of fine-tuning, where the warm-up is a fractional number of steps."""
    run = RUNS[name]
    for step, wanted in run["lr_at"].items():
        ours = run["lr"] * factor("electra", int(step), run["num_train_steps"], run["warmup_steps"])
        assert ours == pytest.approx(wanted, rel=1e-9, abs=1e-18)


def test_the_first_rate_is_zero_and_the_peak_is_below_the_nominal_one():
    small = RUNS["small"]
    rates = [5e-4 * factor("electra", k, 1_000_000, 10_000) for k in (0, 10_000, 1_000_000)]
    assert rates == [0.0, pytest.approx(4.95e-4, rel=1e-12), 0.0]
    assert small["peak_lr"] == pytest.approx(max(5e-4 * factor("electra", k, 10**6, 10**4) for k in range(9_900, 10_100)))  # fmt: skip
    assert 5e-4 * factor("linear", 10_000, 1_000_000, 10_000) == 5e-4, "unlike the usual one"


def test_a_warm_up_of_1_2_steps_is_not_one_of_1_or_2():
    rates = {warmup: factor("electra", 1, 12, warmup) for warmup in (1, 1.2, 2)}
    assert rates[1.2] == pytest.approx(1 / 1.2 * 11 / 12)
    assert len(set(rates.values())) == 3


@given(st.sampled_from(KINDS), st.integers(1, 1000), st.floats(0, 1), st.floats(0.3, 3))
def test_every_factor_is_between_0_and_1_rises_and_then_falls(kind, steps, share, power):
    warmup = share * steps
    rates = [factor(kind, step, steps, warmup, power) for step in range(steps + 2)]
    assert all(0 <= rate <= 1 for rate in rates)
    if kind != "electra":  # which is a product, and may start to fall before the warm-up ends
        rising = rates[: int(warmup) + 1]
        assert rising == sorted(rising)
        falling = rates[int(warmup) + 1 :]
        assert falling == sorted(falling, reverse=True)
    if kind != "constant" and warmup <= steps - 1:
        assert rates[steps] == rates[steps + 1]


@pytest.mark.parametrize("kind", KINDS)
def test_without_warm_up_the_rate_starts_at_its_peak(kind):
    assert factor(kind, 0, 100, 0) == 1.0


def test_shapes_after_the_warm_up():
    middle = {kind: factor(kind, 60, 110, 10) for kind in KINDS[1:]}
    assert middle == {"linear": 0.5, "cosine": pytest.approx(0.5), "wsd": 1.0, "constant": 1.0}
    turn = 10 + STABLE_SHARE * 100
    assert factor("wsd", turn, 110, 10) == 1.0
    assert factor("wsd", turn + 10, 110, 10) == pytest.approx(0.5)
    assert factor("linear", 60, 110, 10, power=2) == 0.25
