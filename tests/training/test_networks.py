"""The networks of a recipe are compiled and checkpointed correctly before training."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.models.test_architectures import WORKING, each
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from torch import nn

from electrify.errors import UserError
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.objective import Objective, build_objective
from electrify.recipes.schema import Recipe, Run
from electrify.tokens.store import Shards
from electrify.training import data
from electrify.training.data import open_data
from electrify.training.networks import checkpoint_activations, compile_networks, encoder_parts
from electrify.training.optim import is_norm
from electrify.training.sharding import layers

# Their layers are in one or several lists, which are never called.
LISTED = ("modernbert", "distilbert", "xlm", "flaubert", "eurobert", "gte", "nomic_bert")
NOT_CHECKPOINTED = {"albert", "flaubert", "funnel", "ibert", "mpnet", "squeezebert", "xlm"}


def objective_of(architecture: str, kind: str = "rtd") -> Objective:
    torch.manual_seed(0)
    recipe = tiny_recipe(architecture)
    recipe = replace(
        recipe,
        objective=replace(recipe.objective, kind=kind),
        run=replace(recipe.run, length=32),
    )
    return build_objective(recipe, VOCABULARY)


def test_verifying_many_bytes_is_announced_once(shards, monkeypatch, capsys):
    recipe = Recipe(run=Run(length=Shards(shards).length))
    _, small = open_data(shards, recipe)
    assert "verifying" not in capsys.readouterr().out
    monkeypatch.setattr(data, "MANY_BYTES", 1000)
    count = len(list(shards.glob("train-*")))
    open_data(shards, recipe)
    output = capsys.readouterr().out
    assert f"verifying {count} shards (0.0 GB) before training" in output
    small.verify(len(small))
    open_data(shards, recipe, small.verified)
    assert "verifying" not in capsys.readouterr().out


def gradients(objective: Objective) -> dict[str, torch.Tensor]:
    inputs = tiny_inputs()
    objective.train()(inputs, inputs.totals())[0].backward()
    named = objective.named_parameters()
    return {name: parameter.grad for name, parameter in named if parameter.grad is not None}


@pytest.fixture
def calls(monkeypatch) -> Counter:
    """Count how often each compiled module is called, without running the compiler."""
    count: Counter = Counter()

    def counted(call, *arguments, **options):
        def called(*inputs, **named):
            count[id(call.__self__)] += 1
            return call(*inputs, **named)

        return called

    monkeypatch.setattr(torch, "compile", counted)
    return count


@pytest.mark.parametrize("architecture", sorted({*LISTED, "electra", "albert"}))
@pytest.mark.parametrize("kind", ["rtd", "mlm"])
def test_what_is_compiled_is_called(architecture, kind, calls):
    check_compiled(objective_of(architecture, kind), calls)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", WORKING)
def test_something_is_compiled_in_every_architecture(architecture, calls):
    check_compiled(objective_of(architecture), calls)


def check_compiled(objective: Objective, calls: Counter) -> None:
    compiled = compile_networks(objective)
    gradients(objective)
    for role, network in objective.networks.items():
        parts = [network] if role == "discriminator" else encoder_parts(network)
        assert any(line.startswith(f"{role} ") for line in compiled)
        assert all(calls[id(part)] == 1 for part in parts)
        inside = {id(module) for part in parts for module in part.modules()}
        outside = [layer for layer in layers(network.base_model) if id(layer) not in inside]
        assert all(is_norm(layer) for layer in outside)


def test_a_network_without_layers_is_refused():
    class Flat(nn.Module):
        base_model = nn.Linear(2, 2)

    with pytest.raises(UserError, match="no layers") as caught:
        compile_networks(MaskedLanguageModel(Flat()))
    assert "model Flat" in caught.value.got


@pytest.mark.parametrize("architecture", each(WORKING))
def test_activations_are_recomputed_or_the_option_is_refused(architecture):
    objective = objective_of(architecture)
    if architecture in NOT_CHECKPOINTED:
        with pytest.raises(UserError, match=f"{architecture} does not support"):
            checkpoint_activations(objective)
        return
    checkpoint_activations(objective)
    forwards: Counter = Counter()
    for role, network in objective.networks.items():
        for layer in layers(network.base_model):
            layer.register_forward_pre_hook(lambda *_, role=role: forwards.update([role]))
    again, plain = gradients(objective), gradients(objective_of(architecture))
    assert again.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(again[name], gradient, rtol=1e-5, atol=1e-6)
    for role, network in objective.networks.items():
        assert forwards[role] == 2 * len(list(layers(network.base_model)))
