"""Optimizers and parameter groups."""

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_recipe
from torch import nn

from electrify.models.pair import Vocabulary, build_pair
from electrify.models.rtd import ReplacedTokenDetection, Weights
from electrify.recipe import load, names
from electrify.training.optim import ElectraAdam, Lamb, clip, decays, parameter_groups
from electrify.training.schedule import factor


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
COUNTS = {  # joint, of the discriminator with its head; from fidelity.md 7.1
    "electra-small": (14_196_219, 13_549_057),
    "electra-small-plus": (23_122_875, 13_549_057),
    "electra-base": (119_386_427, 109_483_009),
    "electra-small-owt": (None, 17_325_058),
    "alectra-small-owt": (None, 4_747_010),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts_of_recipes(name):
    pair = build_pair(load(name), BERT_VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    joint, discriminator = COUNTS[name]
    assert pair.apart == []
    assert sum(p.numel() for p in pair.discriminator.parameters()) == discriminator
    if joint:
        groups = parameter_groups(model, 1.0, 0.01)
        sizes = {g["weight_decay"]: sum(p.numel() for p in g["params"]) for g in groups}
        assert sum(sizes.values()) == joint
        if name == "electra-small":
            assert sizes == {0.01: 14_114_560, 0.0: 81_659}


@pytest.mark.parametrize("name", names())
def test_every_recipe_loads_and_its_rate_starts_and_ends_low(name):
    recipe = load(name)
    optimizer, steps = recipe.optimizer, recipe.run.steps
    rates = [
        factor(optimizer.schedule, k, steps, optimizer.warmup) for k in (0, optimizer.warmup, steps)
    ]
    assert rates[0] == rates[2] == 0
    assert 0.9 < rates[1] <= 1
