"""What generator and discriminator share, and that it stays shared."""

import copy

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_fields, tiny_inputs, tiny_recipe
from torch import nn

from electrify.models.inputs import totals_of
from electrify.models.pair import build_pair
from electrify.models.rtd import ReplacedTokenDetection, Weights
from electrify.models.sharing import DisentangledEmbedding, shared_parameters
from electrify.recipe import Discriminator, Generator, Recipe, Run, Sharing
from electrify.training.optim import parameter_groups

EMBEDDINGS = "electra.embeddings."


def pair_and_model(recipe: Recipe):
    pair = build_pair(recipe, VOCABULARY)
    return pair, ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())


def electra(sharing: Sharing) -> Recipe:
    return tiny_recipe("electra", sharing, width=0.5)


@pytest.mark.parametrize(
    ("sharing", "wanted"),
    [
        (
            Sharing(),
            {
                "word_embeddings.weight",
                "position_embeddings.weight",
                "token_type_embeddings.weight",
                "LayerNorm.weight",
                "LayerNorm.bias",
            },
        ),
        (Sharing("words"), {"word_embeddings.weight"}),
        (Sharing("none"), set()),
        (Sharing("gdes"), set()),
    ],
)
def test_what_is_shared(sharing, wanted):
    pair, _ = pair_and_model(electra(sharing))
    assert pair.apart == []
    found = set(shared_parameters(pair.generator, pair.discriminator))
    assert found == {EMBEDDINGS + name for name in wanted}
    words = pair.generator.get_input_embeddings().weight
    assert pair.generator.get_output_embeddings().weight is words


def test_ties_survive_copying_moving_saving_and_wrapping(tmp_path):
    _, model = pair_and_model(electra(Sharing()))
    other = copy.deepcopy(model).to(torch.float64).to(torch.float32)
    torch.save(model.state_dict(), tmp_path / "m.pt")
    other.load_state_dict(torch.load(tmp_path / "m.pt", weights_only=True))
    for some in (model, other, torch.compile(other)):
        words = some.discriminator.get_input_embeddings().weight
        assert some.generator.get_input_embeddings().weight is words
        assert some.generator.get_output_embeddings().weight is words
    groups = parameter_groups(model, 1.0, 0.01)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(listed) == len(set(listed))
    assert sum(p.numel() for g in groups for p in g["params"]) == sum(
        p.numel() for p in model.parameters()
    )


def test_gdes_sends_no_gradient_of_the_discriminator_to_the_generators_table():
    pair, model = pair_and_model(electra(Sharing("gdes")))
    table = pair.discriminator.get_input_embeddings()
    assert isinstance(table, DisentangledEmbedding)
    inputs = tiny_inputs()
    model.weights = Weights(generator=0.0)
    model(inputs, totals_of(inputs))[0].backward()
    base = pair.generator.get_input_embeddings().weight
    assert base.grad is None or base.grad.abs().sum() == 0
    assert table.delta.grad.abs().sum() > 0
    torch.testing.assert_close(table(inputs.ids_BL), table.weight[inputs.ids_BL])
    with torch.no_grad():
        base += 1.0  # what the generator learns, the discriminator sees
    torch.testing.assert_close(table.weight, base.detach() + table.delta)


def test_only_the_discriminator_learns_from_its_loss():
    """No gradient flows through the samples: with tied tables only they connect the two."""
    pair, model = pair_and_model(electra(Sharing()))
    model.weights = Weights(generator=0.0)
    inputs = tiny_inputs()
    model(inputs, totals_of(inputs))[0].backward()
    shared = {id(p) for p in pair.discriminator.parameters()}
    own = [p for p in pair.generator.parameters() if id(p) not in shared]
    assert all(p.grad is None or p.grad.abs().sum() == 0 for p in own)
    assert all(p.grad is not None for p in pair.discriminator.parameters())


def test_a_mixed_pair_ties_what_fits_and_says_what_does_not():
    """Seed 003: an ALBERT discriminator with a BERT generator of the width of its tables."""
    fields = tiny_fields("bert") | {"hidden_size": 16}
    recipe = Recipe(
        Discriminator("albert", tiny_fields("albert")),
        Generator("bert", config=fields),
        run=Run(init="huggingface"),
    )
    pair, _ = pair_and_model(recipe)
    assert pair.apart == []
    assert len(set(shared_parameters(pair.generator, pair.discriminator))) == 5
    wide = Recipe(
        Discriminator("albert", tiny_fields("albert")),
        Generator("bert", config=tiny_fields("bert")),
        run=Run(init="huggingface"),
    )
    pair, _ = pair_and_model(wide)
    assert "embeddings.word_embeddings.weight: (200, 32) and (200, 16)" in pair.apart


@pytest.mark.parametrize("sharing", [Sharing(projection=True), Sharing(encoder=True)])
def test_albert_may_share_its_projection_or_its_encoder(sharing):
    pair, model = pair_and_model(tiny_recipe("albert", sharing))
    shared = set(shared_parameters(pair.generator, pair.discriminator))
    assert "albert.encoder.embedding_hidden_mapping_in.weight" in shared
    layers = {name for name in shared if "albert_layer_groups" in name}
    assert bool(layers) == sharing.encoder
    assert pair.apart == []
    inputs = tiny_inputs()
    model(inputs, totals_of(inputs))[0].backward()


def test_every_row_of_the_tables_learns():
    pair, _ = pair_and_model(electra(Sharing()))
    for network in (pair.generator, pair.discriminator):
        for module in network.modules():
            assert not isinstance(module, nn.Embedding) or module.padding_idx is None
