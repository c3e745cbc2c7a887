"""The fast path gives the same outputs without dropout, and the same distribution with it."""

# B batch, L length, A = batch × heads

import json
from dataclasses import replace

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from torch import nn

from electrify.models import attention
from electrify.models.attention import MaskedAttentionWithDropout
from electrify.models.dropout import FastDropout, draw_seed, dropout_mask
from electrify.models.fast import enable_fast_path
from electrify.objectives.objective import build_objective
from electrify.recipes.schema import Recipe, Run


def short(architecture: str) -> Recipe:
    """Return a recipe for short texts: some architectures number positions from past padding."""
    return replace(tiny_recipe(architecture), run=Run(init="huggingface", length=32))


def with_dropout(architecture: str) -> Recipe:
    """Return a recipe of a tiny pair with dropout wherever the architecture has it."""
    recipe = short(architecture)
    fields = {
        name: 0.1 if "dropout" in name else value
        for name, value in recipe.discriminator.config.items()
    }
    return replace(recipe, discriminator=replace(recipe.discriminator, config=fields))


def losses_and_gradients(objective, inputs):
    loss, _ = objective(inputs, inputs.totals())
    loss.backward()
    norm = sum(float(p.grad.norm()) for p in objective.parameters() if p.grad is not None)
    return float(loss.detach()), norm


@pytest.mark.parametrize("architecture", EACH)
def test_without_dropout_losses_and_gradients_are_those_of_the_plain_path(architecture):
    inputs = tiny_inputs(padding=6)
    found = []
    for fast in (True, False):
        objective = build_objective(short(architecture), VOCABULARY, fast=fast)
        objective.eval()
        found.append(losses_and_gradients(objective, inputs))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("architecture", EACH)
@pytest.mark.parametrize("sixteen_bits", [False, True])
def test_with_dropout_every_architecture_runs_where_it_ran_before(architecture, sixteen_bits):
    inputs = tiny_inputs(padding=6)

    def step(fast: bool) -> None:
        objective = build_objective(with_dropout(architecture), VOCABULARY, fast=fast)
        objective.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=sixteen_bits):
            loss, _ = objective(inputs, inputs.totals())
        loss.backward()
        assert loss.isfinite()

    try:
        step(fast=False)
    except RuntimeError:  # deberta and xmod do not run in 16 bits on a CPU
        assert sixteen_bits
        return
    step(fast=True)


@pytest.mark.parametrize(
    "architecture",
    ["electra", *(pytest.param(n, marks=pytest.mark.slow) for n in ("bert", "roberta", "albert"))],
)
def test_with_dropout_the_mean_of_many_losses_is_that_of_the_plain_path(architecture):
    inputs, means, deviations = tiny_inputs(padding=6), [], []
    for fast in (True, False):
        objective = build_objective(with_dropout(architecture), VOCABULARY, fast=fast)
        objective.train()
        assert any(isinstance(m, FastDropout) for m in objective.modules()) is fast
        torch.manual_seed(1)
        with torch.no_grad():
            losses = [float(objective(inputs, inputs.totals())[0]) for _ in range(200)]
        means.append(float(torch.tensor(losses).mean()))
        deviations.append(float(torch.tensor(losses).std()))
    assert means[0] == pytest.approx(means[1], abs=5 * deviations[1] / 200**0.5)
    assert deviations[0] == pytest.approx(deviations[1], rel=0.3)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.003])
def test_the_dropout_mask_has_the_right_rate_and_is_independent(rate):
    count = 1_000_000
    mask = dropout_mask(7, rate, count)
    kept = mask > 0
    assert torch.unique(mask).tolist() == pytest.approx([0, 1 / (1 - rate)], rel=1e-4)
    tolerance = 5 * (rate * (1 - rate) / count) ** 0.5
    assert float(kept.float().mean()) == pytest.approx(1 - rate, abs=tolerance)
    for lag in (1, 2, 3, 4, 256, 1024):  # within a word of the random stream, and across rows
        both = (kept[lag:] & kept[:-lag]).float().mean()
        assert float(both) == pytest.approx((1 - rate) ** 2, abs=2 * tolerance)
    other = dropout_mask(8, rate, count) > 0
    assert float((kept & other).float().mean()) == pytest.approx((1 - rate) ** 2, abs=2 * tolerance)


def test_forward_and_backward_use_the_same_dropout_mask():
    drop, values = FastDropout(0.3), torch.ones(50, 33, requires_grad=True)
    dropped = drop(values)
    dropped.sum().backward()
    assert torch.equal(values.grad, dropped)
    assert 0 < int((dropped == 0).sum()) < values.numel()


def test_dropout_follows_the_seed_of_torch_and_is_off_in_evaluation():
    drop, values = FastDropout(0.5), torch.ones(1000)
    torch.manual_seed(3)
    first, second = drop(values), drop(values)
    torch.manual_seed(3)
    assert torch.equal(drop(values), first)
    assert not torch.equal(first, second)
    assert drop.eval()(values) is values
    assert not drop.train()(values).equal(values)
    assert not FastDropout(1.0)(values).any()
    assert drop.train()(values.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("scores", [1 << 18, 5 * 40 * 40, 1])
def test_attention_and_its_gradients_are_those_of_the_formula(padded, scores, monkeypatch):
    monkeypatch.setattr(attention, "SCORES_PER_CHUNK", scores)
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 4, 40, 16, requires_grad=True) for _ in range(3))
    mask = torch.ones(3, 1, 40, 40, dtype=torch.bool)
    mask[1, :, :, 30:] = not padded
    torch.manual_seed(5)
    found = MaskedAttentionWithDropout.apply(query, key, value, mask if padded else None, 0.25, 0.1)
    torch.manual_seed(5)
    seed, heads = draw_seed(), max(1, scores // (40 * 40))
    probs = (query @ key.mT * 0.25).masked_fill(~mask, -1e30).softmax(-1).flatten(0, 1)
    kept_ALL = torch.cat(
        [
            dropout_mask(seed + number, 0.1, len(probs[start : start + heads]) * 1600).view(
                -1, 40, 40
            )
            for number, start in enumerate(range(0, 12, heads))
        ]
    )
    expected = ((probs * kept_ALL) @ value.flatten(0, 1)).view_as(found)
    torch.testing.assert_close(found, expected)
    grad_output = torch.randn_like(found)
    ours = torch.autograd.grad(found, (query, key, value), grad_output)
    theirs = torch.autograd.grad(expected, (query, key, value), grad_output)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("mask_dtype", [None, torch.bool, torch.bfloat16])
def test_attention_in_sixteen_bits_is_that_of_float32_rounded_once(dropout, mask_dtype):
    torch.manual_seed(0)
    wide = [torch.randn(3, 4, 40, 16).bfloat16().float().requires_grad_() for _ in range(3)]
    narrow = [tensor.detach().bfloat16().requires_grad_() for tensor in wide]
    visible = torch.ones(3, 1, 40, 40, dtype=torch.bool)
    visible[1, :, :, 30:] = False
    additive = torch.zeros(visible.shape).masked_fill(~visible, -1e4)
    masks = {None: None, torch.bool: visible, torch.bfloat16: additive.bfloat16()}
    module, found = nn.Module(), []
    module.is_causal = False
    for tensors, autocast in ((wide, False), (narrow, False), (narrow, True)):
        mask = masks[mask_dtype]
        if tensors is wide and mask is not None and mask.dtype != torch.bool:
            mask = mask.float()
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output, _ = attention.attention(module, *tensors, mask, dropout)
            found.append((output, *torch.autograd.grad(output.float().sum(), tensors)))
    for sixteen in found[1:]:
        for exact, rounded in zip(found[0], sixteen, strict=True):
            assert rounded.dtype == torch.bfloat16
            assert torch.equal(rounded, exact.bfloat16())


@pytest.mark.parametrize("causal", [True, False])
def test_causal_attention_stays_causal_with_dropout(causal):
    module = nn.Module()
    module.is_causal = causal
    query, key, value = (torch.randn(2, 2, 10, 8) for _ in range(3))
    changed = value.clone()
    changed[:, :, -1] += 1
    firsts = []
    for values in (value, changed):
        torch.manual_seed(0)
        found, _ = attention.attention(module, query, key, values, None, 0.5)
        firsts.append(found[:, 0])  # at the first position
    assert torch.equal(*firsts) is causal


def test_recomputed_activations_get_the_same_dropout_mask():
    inputs, found = tiny_inputs(padding=6), []
    for checkpointing in (False, True):
        objective = build_objective(with_dropout("bert"), VOCABULARY)
        objective.train()
        if checkpointing:
            for network in objective.networks.values():
                network.gradient_checkpointing_enable()
        torch.manual_seed(2)
        found.append(losses_and_gradients(objective, inputs))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_saved_models_are_plain_hugging_face(tmp_path):
    objective = build_objective(short("electra"), VOCABULARY)
    network = objective.networks["discriminator"]
    network.save_pretrained(tmp_path)
    assert "quick" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
    plain = type(network).from_pretrained(tmp_path)
    assert any(type(module) is nn.Dropout for module in plain.modules())


def test_a_network_in_evaluation_mode_stays_in_it():
    network = build_objective(with_dropout("bert"), VOCABULARY, fast=False).networks[
        "discriminator"
    ]
    enable_fast_path(network.eval())
    assert not any(module.training for module in network.modules())


def test_other_kinds_of_dropout_stay_as_they_are():
    class OtherDropout(nn.Dropout):
        pass

    network = nn.Module()
    network.drop, network.config = (
        OtherDropout(0.1),
        type("C", (), {"_attn_implementation": "eager"})(),
    )
    enable_fast_path(network)
    assert type(network.drop) is OtherDropout
