"""The self-check finds faults that would train without an error and give a worse model."""

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import MASK, VOCABULARY, tiny_recipe
from torch import nn

from electrify.errors import UserError
from electrify.models.pair import build_masked_lm, build_pair
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Optimizer, Recipe, Sharing
from electrify.training.optim import build_optimizer
from electrify.training.self_check import self_check


def model_of(recipe: Recipe) -> ReplacedTokenDetection:
    pair = build_pair(recipe, VOCABULARY)
    return ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())


def check(model, sharing=None, optimizer=None):
    optimizer = optimizer or build_optimizer(model, Optimizer())
    recipe = Recipe(sharing=sharing or Sharing())
    return self_check(model, optimizer, recipe, VOCABULARY, MASK)


@pytest.mark.parametrize("architecture", EACH)
def test_correct_pairs_pass_and_keep_no_gradient(architecture):
    model = model_of(tiny_recipe(architecture)).train()
    before = torch.get_rng_state()
    check(model)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "sharing",
    [
        Sharing(embeddings="words"),
        Sharing(embeddings="gdes"),
        Sharing(embeddings="none"),
        Sharing(projection=True, encoder=True),
    ],
)
def test_every_way_of_sharing_passes(sharing):
    check(model_of(tiny_recipe("electra", sharing)), sharing)


def test_the_masked_lm_baseline_passes():
    model = MaskedLanguageModel(build_masked_lm(tiny_recipe("electra"), VOCABULARY)[0])
    assert check(model) == []


@pytest.mark.parametrize(
    ("sharing", "name"),
    [
        (Sharing(), "generator.electra.embeddings.word_embeddings"),
        (Sharing(), "generator.electra.embeddings.position_embeddings"),
        (Sharing(), "generator.generator_lm_head"),
        (Sharing(embeddings="words"), "discriminator.electra.embeddings.word_embeddings"),
    ],
)
def test_a_broken_tie_is_found(sharing, name):
    model = model_of(tiny_recipe("electra", sharing))
    module = model.get_submodule(name)
    module.weight = nn.Parameter(module.weight.detach().clone())
    with pytest.raises(UserError, match="do not share the weights they should"):
        check(model, sharing)


def test_a_disentangled_embedding_that_starts_from_a_copy_is_found():
    sharing = Sharing(embeddings="gdes")
    model = model_of(tiny_recipe("deberta-v2", sharing))
    embedding = model.discriminator.get_input_embeddings()
    embedding._base = (nn.Embedding.from_pretrained(embedding._base[0].weight.detach().clone()),)
    with pytest.raises(UserError, match="do not share the weights they should"):
        check(model, sharing)


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (lambda groups: groups[0]["params"].append(groups[1]["params"][0]), "twice"),
        (lambda groups: groups[0]["params"].pop(), "never update"),
        (lambda groups: groups[0]["params"].append(nn.Parameter(torch.ones(2))), "not the model's"),
    ],
)
def test_a_parameter_listed_wrongly_is_found(fault, what):
    model = model_of(tiny_recipe("electra"))
    optimizer = build_optimizer(model, Optimizer())
    fault(optimizer.param_groups)
    with pytest.raises(UserError, match=what):
        check(model, optimizer=optimizer)


def test_padding_in_the_loss_is_found(monkeypatch):
    model = model_of(tiny_recipe("electra"))
    bce = nn.functional.binary_cross_entropy_with_logits

    def everywhere(logits, labels, reduction):
        losses = bce(logits, labels, reduction=reduction)
        return losses + losses.sum()

    monkeypatch.setattr(nn.functional, "binary_cross_entropy_with_logits", everywhere)
    with pytest.raises(UserError, match="padding is part"):
        check(model)


def test_a_real_token_left_out_of_the_loss_is_found(monkeypatch):
    model = model_of(tiny_recipe("electra"))
    bce = nn.functional.binary_cross_entropy_with_logits

    def without_first(logits, labels, reduction):
        losses = bce(logits, labels, reduction=reduction)
        return torch.cat([losses[:, :1] * 0, losses[:, 1:]], dim=1)

    monkeypatch.setattr(nn.functional, "binary_cross_entropy_with_logits", without_first)
    with pytest.raises(UserError, match="real token is not part"):
        check(model)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
def test_a_non_finite_weight_is_found_even_if_no_loss_shows_it(value):
    """It is in the embedding of a token that the small batch of the check does not have."""
    model = model_of(tiny_recipe("electra", Sharing(embeddings="none")))
    with torch.no_grad():
        model.discriminator.get_input_embeddings().weight[VOCABULARY.size - 1, 0] = value
    with pytest.raises(UserError, match="not finite"):
        check(model, Sharing(embeddings="none"))
