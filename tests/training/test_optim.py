"""Optimizers and parameter groups."""

import json
from pathlib import Path

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from tests.one_update import update
from torch import nn

from electrify.models.pair import Vocabulary, build_pair
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Optimizer, load, names
from electrify.training import muon
from electrify.training.optim import (
    ElectraAdam,
    Lamb,
    build_optimizer,
    clip,
    decays,
    parameter_groups,
)
from electrify.training.schedule import factor

FORMULAS = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())


def test_adam_on_one_number_is_the_official_one():
    golden = FORMULAS["adam_scalar"]
    parameter = nn.Parameter(torch.tensor([golden["p0"]], dtype=torch.float64))
    adam = ElectraAdam([parameter], lr=golden["lr"], weight_decay=golden["weight_decay"])
    steps = zip(golden["grads"], golden["official_no_bias_correction_wd"], strict=True)
    for gradient, wanted in steps:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        adam.step()
        assert parameter.item() == pytest.approx(wanted["p"], abs=1e-9)


def test_the_first_update_of_adam_is_3_16_rates_whatever_the_gradient():
    for gradient in (1e-3, 1.0, -50.0):
        parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        adam = ElectraAdam([parameter], lr=1e-3, weight_decay=0.0, eps=1e-12)
        parameter.grad = torch.full_like(parameter, gradient)
        adam.step()
        assert abs(parameter.item()) == pytest.approx(1e-3 * 10**0.5, rel=1e-4)


def test_epsilon_is_outside_the_root():
    parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    adam = ElectraAdam([parameter], lr=1.0, weight_decay=0.0)
    parameter.grad = torch.full_like(parameter, 1e-6)
    adam.step()
    assert -parameter.item() == pytest.approx(1e-7 / (1e-6 * 0.001**0.5 + 1e-6), rel=1e-9)


def test_lamb_moves_a_matrix_by_the_rate_times_its_norm():
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(5, 7, dtype=torch.float64))
    before = parameter.detach().clone()
    lamb = Lamb([parameter], lr=0.01, weight_decay=0.0)
    parameter.grad = torch.randn_like(parameter)
    lamb.step()
    moved = (parameter.detach() - before).norm().item()
    assert moved == pytest.approx(0.01 * before.norm().item(), rel=1e-6)


def test_state_is_that_of_adamw_and_survives_saving():
    parameter = nn.Parameter(torch.ones(3))
    adam = ElectraAdam([parameter], lr=0.1)
    parameter.grad = torch.ones(3)
    adam.step()
    assert set(adam.state[parameter]) == {"step", "exp_avg", "exp_avg_sq"}
    other = ElectraAdam([parameter], lr=0.1)
    other.load_state_dict(adam.state_dict())
    assert torch.equal(other.state[parameter]["exp_avg"], adam.state[parameter]["exp_avg"])


def test_clipping_is_joint_and_leaves_small_gradients_alone():
    first, second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert clip([first, second], 1.0).item() == 5.0
    assert (first.grad.item(), second.grad.item()) == (pytest.approx(0.6), pytest.approx(0.8))
    first.grad, second.grad = torch.tensor([0.3]), torch.tensor([0.4])
    clip([first, second], 1.0)
    assert (first.grad.item(), second.grad.item()) == (pytest.approx(0.3), pytest.approx(0.4))


@pytest.mark.parametrize("architecture", ["electra", "albert", "deberta-v2", "modernbert", "xlm"])
def test_no_bias_and_no_norm_decays(architecture):
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    for network in pair[:2]:
        for path, module in network.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                vector = name.endswith("bias") or "norm" in f"{path}.{name}".lower()
                assert decays(module, parameter) == (not vector), f"{path}.{name}"


BERT_VOCABULARY = Vocabulary(30522, 0, 101, 102)
OFFICIAL = {
    "electra-small": "electra_small",
    "electra-small-plus": "electra_small_plusplus_gen256",
    "electra-base": "electra_base",
    "electra-large": "electra_large",
}
OTHERS = {
    "electra-small-owt": "lmtuners_bert_small_discriminator",
    "alectra-small-owt": "lmtuners_albert_small_discriminator",
}


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", [*OFFICIAL, *OTHERS])
def test_parameter_counts_of_recipes(name):
    with torch.device("meta"):
        pair = build_pair(load(name), BERT_VOCABULARY)
    assert pair.notes == []
    golden = FORMULAS["params"][(OFFICIAL | OTHERS)[name]]
    if name in OTHERS:
        assert size(pair.discriminator) == golden["total_without_pooler"]
        return
    assert size(pair.discriminator) == golden["discriminator_with_rtd_head"]
    assert size(pair.discriminator.base_model) == golden["discriminator_backbone"]
    assert size(pair.generator) == golden["generator_standalone_with_embeddings"]
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    assert size(model) == golden["joint_trainable_shared_embeddings"]
    groups = parameter_groups(model, 1.0, 0.01)
    assert {g["weight_decay"]: sum(p.numel() for p in g["params"]) for g in groups} == {
        0.01: golden["joint_weight_decayed"],
        0.0: golden["joint_not_weight_decayed"],
    }


@pytest.mark.parametrize("name", names())
def test_every_recipe_loads_and_its_rate_starts_and_ends_low(name):
    recipe = load(name)
    optimizer, steps = recipe.optimizer, recipe.run.steps
    rates = [
        factor(optimizer.schedule, k, steps, optimizer.warmup) for k in (0, optimizer.warmup, steps)
    ]
    assert rates[0] == rates[2] == 0
    assert 0.9 < rates[1] <= 1


@pytest.mark.parametrize(
    ("kind", "lr"), [("electra-adam", 2e-3), ("adamw", 2e-3), ("lamb", 2e-2), ("muon", 1e-2)]
)
def test_every_optimizer_of_a_recipe_learns_and_has_each_parameter_once(kind, lr):
    pair = build_pair(tiny_recipe("bert"), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    optimizer = build_optimizer(model, Optimizer(kind=kind, lr=lr))
    listed = [id(param) for group in optimizer.param_groups for param in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    inputs = tiny_inputs()
    totals = inputs.totals()
    losses = [update(model, optimizer, [inputs], totals, lr, 1.0).loss for _ in range(12)]
    assert losses[-1] < 0.9 * losses[0]
    for group in optimizer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            assert optimizer.state[parameter] or parameter.grad is None, name


@pytest.mark.parametrize("most", [1 << 22, 4000, 1])
def test_stacked_muon_is_the_muon_of_torch(most, monkeypatch):
    monkeypatch.setattr(muon, "MAX_STACK_ELEMENTS", most)
    shapes = [(48, 32), (32, 48), (48, 32), (32, 32), (48, 32)]
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    how = {"lr": 1e-2, "weight_decay": 0.1}
    optimizers = (
        muon.StackedMuon([{"params": ours, **how}]),
        torch.optim.Muon(theirs, adjust_lr_fn="match_rms_adamw", **how),
    )
    for step in range(4):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            none = number == 2 and step == 1  # a part that was not used in this step
            one.grad = None if none else torch.randn_like(one)
            other.grad = None if none else one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)  # kernels may round as they like
        buffers = (optimizers[0].state[one], optimizers[1].state[other])
        torch.testing.assert_close(*(state["momentum_buffer"] for state in buffers))


def test_muon_gets_the_matrices_of_the_encoders_and_nothing_else():
    pair = build_pair(tiny_recipe("bert"), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    for_matrices, adamw = build_optimizer(model, Optimizer(kind="muon")).parts
    assert isinstance(for_matrices, torch.optim.Muon)
    by_muon = {name for group in for_matrices.param_groups for name in group["names"]}
    by_adamw = {name for group in adamw.param_groups for name in group["names"]}
    assert "discriminator.bert.encoder.layer.0.attention.self.query.weight" in by_muon
    assert "generator.bert.embeddings.word_embeddings.weight" in by_adamw
    assert {"discriminator.classifier.weight"} <= by_adamw
    assert not any("bias" in name or "LayerNorm" in name for name in by_muon)


@pytest.mark.parametrize("shape", [(48, 32), (32, 32), (24, 96), (96, 24), (128, 512)])
@pytest.mark.parametrize("rank", [2, 24])
def test_muon_in_float32_is_the_iteration_in_float64(shape, rank):
    """Also for gradients of low rank, whose Gram matrices have eigenvalues of 0."""
    torch.manual_seed(0)
    stack = torch.randn(3, shape[0], rank) @ torch.randn(3, rank, shape[1]) * 1e-3
    how = ((3.4445, -4.7750, 2.0315), 5, 1e-7)
    wanted = muon.orthogonal(stack.double(), *how)

    def error(dtype: torch.dtype) -> float:
        gap = muon.orthogonal(stack.to(dtype), *how).double() - wanted
        return float(gap.abs().max() / wanted.abs().max())

    assert error(torch.float32) < 1e-3
    assert error(torch.bfloat16) > 0.05, "so much is enough for Muon"


def test_muon_iterates_in_the_given_precision():
    seen = []
    parameter = nn.Parameter(torch.randn(8, 8))
    optimizer = muon.StackedMuon([{"params": [parameter], "lr": 1e-2}], torch.float32)
    parameter.grad = torch.randn(8, 8)
    with pytest.MonkeyPatch.context() as patch:
        real = muon.orthogonal
        patch.setattr(muon, "orthogonal", lambda m, *how: seen.append(m.dtype) or real(m, *how))
        optimizer.step()
    assert seen == [torch.float32]
