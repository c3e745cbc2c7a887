"""The networks of a recipe are checkpointed correctly before training."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.models.test_architectures import WORKING, each
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

from electrify.errors import UserError
from electrify.objectives.objective import Objective, build_objective
from electrify.recipes.schema import Recipe, Run
from electrify.tokens.store import Shards
from electrify.training import data
from electrify.training.data import open_data
from electrify.training.networks import checkpoint_activations
from electrify.training.sharding import layers

NOT_CHECKPOINTED = {"albert", "flaubert", "funnel", "ibert", "mpnet", "squeezebert", "xlm"}


def objective_of(architecture: str) -> Objective:
    torch.manual_seed(0)
    recipe = tiny_recipe(architecture)
    return build_objective(replace(recipe, run=replace(recipe.run, length=32)), VOCABULARY)


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
