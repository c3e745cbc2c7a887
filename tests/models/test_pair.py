"""The networks that a recipe describes: sizes, activations and trained parameters."""

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from torch import nn

from electrify.models.pair import Vocabulary, build_pair, generator_config
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import load

SIZES = {  # official generators: width, heads, feed-forward, layers and width of the embeddings
    "electra-small": (64, 1, 256, 12, 128),
    "electra-small-plus": (256, 4, 1024, 12, 128),
    "electra-base": (256, 4, 1024, 12, 768),
    "electra-large": (256, 4, 1024, 24, 1024),
}


@pytest.mark.parametrize("name", SIZES)
def test_generators_have_the_official_sizes(name):
    recipe = load(name)
    config = generator_config(
        recipe.discriminator, recipe.generator, Vocabulary(30522, 0, 101, 102)
    )
    fields = "hidden_size num_attention_heads intermediate_size num_hidden_layers embedding_size"
    assert tuple(getattr(config, field) for field in fields.split()) == SIZES[name]


def test_the_tables_are_projected_without_norm_or_activation():
    """Embeddings are summed, go through LayerNorm and one linear map, and nothing after it."""
    network = build_pair(tiny_recipe("electra"), VOCABULARY).discriminator.eval()
    ids = tiny_inputs().ids_BL
    encoder, seen = network.electra, []
    encoder.encoder.layer[0].register_forward_pre_hook(lambda module, arguments: seen.append(arguments[0]))  # fmt: skip
    with torch.no_grad():
        network(input_ids=ids)
        embeddings = encoder.embeddings
        positions = torch.arange(ids.shape[1])
        total = embeddings.word_embeddings(ids) + embeddings.position_embeddings(positions)
        total = embeddings.LayerNorm(total + embeddings.token_type_embeddings.weight[0])
        torch.testing.assert_close(seen[0], encoder.embeddings_project(total))


def test_activations_are_exact_and_the_norm_of_the_head_comes_after():
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    for network in (pair.generator, pair.discriminator):
        activation = network.electra.encoder.layer[0].intermediate.intermediate_act_fn
        assert activation(torch.ones(1)).item() == pytest.approx(0.8413447, abs=1e-7)
        assert network.config.layer_norm_eps == 1e-12
    hidden = torch.randn(3, pair.generator.config.hidden_size)
    head = pair.generator.generator_predictions
    with torch.no_grad():
        wanted = head.LayerNorm(nn.functional.gelu(head.dense(hidden)))
        torch.testing.assert_close(head(hidden), wanted)
        head = pair.discriminator.discriminator_predictions
        hidden = torch.randn(3, pair.discriminator.config.hidden_size)
        wanted = head.dense_prediction(nn.functional.gelu(head.dense(hidden)))
        torch.testing.assert_close(head(hidden), wanted.squeeze(-1))


@pytest.mark.parametrize("architecture", EACH)
def test_the_row_of_padding_learns(architecture):
    """The generator can sample [PAD], which is then a token of the text like any other."""
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights(generator=0.0))
    inputs = tiny_inputs()
    ids = inputs.ids_BL.clone()
    ids[:, 5] = VOCABULARY.pad
    positions = inputs.positions_BN.clone().fill_(7)  # not masked where [PAD] is
    inputs = inputs._replace(ids_BL=ids, positions_BN=positions)
    model(inputs, inputs.totals())[0].backward()
    words = pair.discriminator.get_input_embeddings().weight
    assert words.grad[VOCABULARY.pad].abs().sum() > 0
