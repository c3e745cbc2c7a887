"""Non-finite values update no weights, spikes are found in noise, and the state is plain JSON."""

import json
from math import inf, nan

import numpy as np
import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

from electrify.errors import EXIT_GUARD, GuardError
from electrify.models.pair import build_pair
from electrify.objectives.bands import Sizes
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.objectives.rtd_bands import ALARMS
from electrify.training.guard import HALVINGS, Action, Guard, GuardSettings
from electrify.training.optim import ElectraAdam, parameter_groups
from electrify.training.update import accumulate, apply_update

GO, SKIP, RELOAD, STOP = Action


def guard(scaled: bool = False, **settings: object) -> Guard:
    sizes = Sizes(vocab_size=8_000, warmup=100)
    return Guard(GuardSettings(**settings), sizes, ALARMS, "auc", scaled)


def clean(steps: int, seed: int = 0, tails: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """Return losses that fall from 44 to 12, and norms, with noise proportional to them.

    A run of the recipe tiny has standard deviations of 0.016 and 0.38 in logarithms; here the
    losses have 0.04, and heavy tails.
    """
    draw = np.random.default_rng(seed)
    level = 12 + 32 * np.exp(-np.arange(steps) / 800)
    losses = level * np.exp(0.03 * draw.standard_t(tails, steps))
    norms = (0.5 + level / 30) * np.exp(0.38 * draw.standard_normal(steps))
    return losses, norms


def actions(watch: Guard, losses, norms, start: int = 0) -> list[Action]:
    return [
        watch.judge(start + i, float(a), float(b))
        for i, (a, b) in enumerate(zip(losses, norms, strict=True))
    ]


@pytest.mark.parametrize(("loss", "norm"), [(nan, 1.0), (inf, 1.0), (3.0, nan), (3.0, inf)])
@pytest.mark.parametrize("on_spike", ["off", "warn", "skip"])
def test_a_non_finite_value_never_updates_the_weights(loss, norm, on_spike):
    watch = guard(on_spike=on_spike)
    assert watch.judge(0, 3.0, 1.0) is GO
    assert watch.judge(1, loss, norm) is SKIP
    assert "step 1" in watch.why
    assert watch.judge(2, 3.0, 1.0) is GO
    assert watch.why == ""


@pytest.mark.parametrize("nan_in", ["loss", "gradient"])
def test_the_weights_stay_where_they_are(nan_in):
    """Neither parameters nor optimizer state change if the loss or a single gradient is NaN."""
    pair = build_pair(tiny_recipe("electra", width=0.5), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    adam = ElectraAdam(parameter_groups(model, 1e-3, 0.01))
    inputs, watch = tiny_inputs(), guard()

    def one(step: int, factor: float = 1.0):
        before = [p.detach().clone() for p in model.parameters()]
        hook = model.register_forward_hook(lambda *call: (call[2][0] * factor, call[2][1]))
        gradient = accumulate(model, adam, [inputs], inputs.totals(), 1.0)
        hook.remove()
        move = watch.judge(step, gradient.loss, gradient.norm) is GO
        apply_update(adam, 1e-3, move)
        same = all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        return move, same

    assert one(0) == (True, False)
    moments = [m.clone() for s in adam.state.values() for m in s.values() if torch.is_tensor(m)]
    if nan_in == "loss":
        assert one(1, nan) == (False, True)
    else:
        last = list(model.parameters())[-1]
        hook = last.register_hook(lambda gradient: gradient * nan)
        assert one(1) == (False, True)
        hook.remove()
    after = [m for s in adam.state.values() for m in s.values() if torch.is_tensor(m)]
    assert all(torch.equal(a, b) for a, b in zip(moments, after, strict=True))
    assert one(2) == (True, False)


def test_as_many_bad_steps_as_allowed_are_skipped_then_reload_then_stop():
    watch = guard(bad_steps_allowed=3)
    assert actions(watch, [3.0] * 10, [1.0] * 10) == [GO] * 10
    saved = watch.state()
    assert actions(watch, [nan] * 3, [1.0] * 3, start=10) == [SKIP] * 3
    assert not watch.left_out
    assert watch.judge(13, nan, 1.0) is RELOAD
    assert watch.left_out == {10, 11, 12, 13}
    watch.load(saved)
    assert watch.state() == {**saved, "left_out": [10, 11, 12, 13]}
    assert actions(watch, [nan] * 4, [1.0] * 4, start=14) == [SKIP] * 3 + [STOP]


def test_bad_steps_far_apart_are_only_skipped():
    watch = guard(bad_steps_allowed=1, window=50)
    found = [watch.judge(step, nan if step % 50 == 0 else 3.0, 1.0) for step in range(1_000)]
    assert set(found) == {GO, SKIP}
    near = guard(bad_steps_allowed=1, window=50)
    assert RELOAD in [near.judge(step, nan if step % 49 == 0 else 3.0, 1.0) for step in range(100)]


def test_a_run_may_reload_again_if_the_last_time_is_long_ago():
    watch = guard(bad_steps_allowed=0, window=50)
    watch.load({})
    assert watch.judge(10, nan, 1.0) is RELOAD
    watch.load({})
    assert watch.judge(60, nan, 1.0) is RELOAD
    watch.load({})
    assert watch.left_out == {10, 60}
    assert watch.judge(109, nan, 1.0) is STOP


def test_the_report_names_batches_and_the_last_steps():
    watch = guard(bad_steps_allowed=0)
    actions(watch, [3.25] * 40, [0.5] * 40)
    watch.judge(40, nan, 0.5)
    watch.judge(41, 3.25, inf)
    error = watch.error()
    assert isinstance(error, GuardError)
    assert error.exit_code == EXIT_GUARD == 4
    text = str(error)
    assert "bad batches: 40, 41" in text
    assert "left out earlier: 40" in text
    assert "optimizer.lr" in text
    assert text.count("3.25") == 19, "the last 20 steps, of which one has no loss"
    assert "nan" in text
    assert "inf" in text
    assert "even after reloading a checkpoint" in text
    alone = str(watch.error(reloaded=False))
    assert "there is no checkpoint to reload" in alone
    assert "electrify export" not in alone


def test_float16_may_search_for_its_loss_scale():
    """Overflows of scaled gradients are skipped, and count as bad only if no scale can help."""
    watch = guard(scaled=True, bad_steps_allowed=0)
    assert actions(watch, [3.0] * HALVINGS, [inf] * HALVINGS) == [SKIP] * HALVINGS
    assert watch.judge(HALVINGS, 3.0, inf) is RELOAD
    assert guard(scaled=True, bad_steps_allowed=0).judge(0, nan, inf) is RELOAD, "a loss is not"
    unscaled = guard(bad_steps_allowed=0)
    assert unscaled.judge(0, 3.0, inf) is RELOAD


@pytest.mark.parametrize("seed", range(2))
def test_at_most_one_false_alarm_in_ten_thousand_clean_steps(seed):
    watch = guard(on_spike="warn")
    losses, norms = clean(10_000, seed)
    alarms = [
        step for step in range(10_000) if watch.judge(step, losses[step], norms[step]) and watch.why
    ]
    assert len(alarms) <= 1


@pytest.mark.parametrize(("what", "times"), [("loss", 20.0), ("norm", 50.0)])
@pytest.mark.parametrize("on_spike", ["warn", "skip"])
def test_spikes_are_found(what, times, on_spike):
    """At least 95 % of the batches with a loss or norm many times its normal value are found."""
    watch = guard(on_spike=on_spike, bad_steps_allowed=5)
    losses, norms = clean(5_000, seed=7)
    spikes = set(range(200, 5_000, 135))
    found = set()
    for step in range(5_000):
        factor = times if step in spikes else 1.0
        loss = losses[step] * (factor if what == "loss" else 1.0)
        norm = norms[step] * (factor if what == "norm" else 1.0)
        action = watch.judge(step, loss, norm)
        if watch.why:
            assert action is (SKIP if on_spike == "skip" else GO)
            assert what in watch.why
            found.add(step)
    assert len(found & spikes) >= 0.95 * len(spikes)
    assert len(found - spikes) <= 1


def test_off_disables_spikes_but_not_nan():
    watch = guard(on_spike="off")
    losses, norms = clean(1_000)
    losses[500] *= 20
    assert set(actions(watch, losses, norms)) == {GO}
    assert watch.judge(1_000, nan, 1.0) is SKIP


def test_slow_drift_is_not_a_spike():
    """Loss and norm grow by a factor of ten within a thousand steps."""
    draw = np.random.default_rng(0)
    drift = 3.0 * 10 ** (np.arange(3_000) / 1_000) * np.exp(0.05 * draw.standard_normal(3_000))
    watch = guard(on_spike="skip")
    assert set(actions(watch, drift, drift / 3)) == {GO}


def test_a_new_level_is_soon_accepted():
    """A jump that stays gives warnings for a few steps, not for the rest of the run."""
    watch = guard(on_spike="warn")
    losses, norms = clean(2_000)
    norms[1_000:] *= 20
    warned = [s for s in range(2_000) if watch.judge(s, losses[s], norms[s]) and watch.why]
    assert 1_000 <= warned[0] < 1_005
    assert warned[-1] < 1_040


def test_small_changes_are_not_spikes_in_a_run_without_noise():
    watch = guard(on_spike="skip")
    assert set(actions(watch, [2.0] * 200 + [2.1] * 5, [1.0] * 205)) == {GO}


def test_the_state_is_json_and_a_resumed_guard_decides_the_same():
    losses, norms = clean(1_200, seed=3)
    losses[[300, 500, 520, 900, 1_100]] *= 20
    losses[510] = nan
    metrics = {"generator_loss": 8.9, "generator_accuracy": 0.0, "auc": nan}
    unbroken, interrupted = guard(on_spike="skip"), guard(on_spike="skip")

    def decisions(watch: Guard, begin: int, end: int) -> list[object]:
        made: list[object] = []
        for step in range(begin, end):
            made += [watch.judge(step, losses[step], norms[step]), watch.why]
            made += watch.observe(step, metrics) if step % 50 == 0 else []
        return made

    expected = decisions(unbroken, 0, 1_200)
    got = decisions(interrupted, 0, 515)
    stored = json.dumps(interrupted.state(), allow_nan=False)
    resumed = guard(on_spike="skip")
    resumed.load(json.loads(stored))
    assert json.dumps(resumed.state(), allow_nan=False) == stored
    assert got + decisions(resumed, 515, 1_200) == expected
    assert json.dumps(resumed.state()) == json.dumps(unbroken.state())
    assert any(isinstance(text, str) and "is not learning" in text for text in expected)


def test_non_finite_weights_are_blamed_on_the_update_before_the_bad_steps():
    """Bad losses come after the update that made the weights bad; reloading must leave it out."""
    watch = guard()
    assert actions(watch, [3.0, 3.0, nan, nan], [1.0, 1.0, nan, nan], start=7) == [
        GO,
        GO,
        SKIP,
        SKIP,
    ]
    assert watch.last_update == 8
    assert watch.reject_weights() is RELOAD
    assert watch.why == "step 8: the weights are not finite after its update"
    assert 8 in watch.left_out
