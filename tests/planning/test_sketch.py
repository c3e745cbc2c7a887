"""Networks without weights: their parameter counts, and invalid recipes that are refused."""

from dataclasses import replace

import pytest
from tests.models.tiny import tiny_recipe
from transformers import ElectraConfig

from electrify.errors import UserError
from electrify.models.pair import Vocabulary
from electrify.planning.sketch import parts_of, sketch, trained
from electrify.recipes.schema import Recipe, load, names

BERT_VOCABULARY = Vocabulary(30_522, 0, 101, 102)

# fidelity.md 7.1: generator and discriminator (embeddings, encoder, head), trained in total.
COUNTS = {
    "electra-small": ((3_972_864, 608_064, 39_098), (3_972_864, 9_510_144, 66_049), 14_196_219),
    "electra-small-plus": (
        *((3_972_864, 9_510_144, 63_674), (3_972_864, 9_510_144, 66_049)),
        23_122_875,
    ),
    "electra-base": (
        *((23_837_184, 9_673_984, 229_434), (23_837_184, 85_054_464, 591_361)),
        119_386_427,
    ),
    "electra-large": (
        *((31_782_912, 19_216_640, 295_738), (31_782_912, 302_309_376, 1_050_625)),
        354_655_291,
    ),
    "electra-small-owt": (
        *((7_847_424, 1_187_328, 66_304 + 30_522), (7_847_424, 9_477_120, 514)),
        17_325_058 + 9_131_578 - 7_847_424,
    ),
    "alectra-small-owt": (
        *((3_923_712, 33_024 + 789_760, 63_674), (3_923_712, 33_024 + 789_760, 514)),
        4_747_010 + 33_024 + 789_760 + 63_674,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_of_every_part(name):
    networks = sketch(load(name), BERT_VOCABULARY).networks
    generator, discriminator, joint = COUNTS[name]
    assert parts_of(networks["generator"]) == generator
    assert parts_of(networks["discriminator"]) == discriminator
    assert trained(networks.values()) == joint


def test_a_discriminator_has_17_and_4_7_million_parameters():
    sizes = {
        name: sum(parts_of(sketch(load(name), BERT_VOCABULARY).networks["discriminator"]))
        for name in ("electra-small-owt", "alectra-small-owt")
    }
    assert sizes == {"electra-small-owt": 17_325_058, "alectra-small-owt": 4_747_010}


@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_built_and_shares_all_weights_it_asks_for(name):
    assert sketch(load(name), BERT_VOCABULARY).notes == ()


def test_a_shared_encoder_is_trained_once():
    separate, tied = (
        trained(sketch(load(name), BERT_VOCABULARY).networks.values())
        for name in ("alectra-small-owt", "alectra-small-tied-encoder")
    )
    assert separate - tied == 789_760 + 33_024  # the layer, and the projection in its module


def with_length(recipe: Recipe, length: int, **fields: object) -> Recipe:
    network = recipe.discriminator
    return replace(
        recipe,
        discriminator=replace(network, config=network.config | fields),
        run=replace(recipe.run, length=length),
        optimizer=replace(recipe.optimizer, warmup=0),
    )


@pytest.mark.parametrize(
    ("architecture", "longest"),
    [("bert", 128), ("electra", 128), ("nystromformer", 128), ("roberta", 126), ("mpnet", 126)],
)
def test_examples_must_not_be_longer_than_the_position_embeddings(architecture, longest):
    """Tiny configurations have 128 positions; RoBERTa and MPNet start past padding, here at 1."""
    vocabulary = Vocabulary(200, pad=1, cls=2, sep=3)
    recipe = tiny_recipe(architecture)
    sketch(with_length(recipe, longest), vocabulary)
    with pytest.raises(UserError) as error:
        sketch(with_length(recipe, longest + 1), vocabulary)
    assert "run.length is longer" in error.value.what
    assert f"--run.length {longest}" in error.value.fix
    rows = longest + 1 + (128 - longest)
    assert f"--discriminator.config.max-position-embeddings {rows}" in error.value.fix
    sketch(with_length(recipe, longest + 1, max_position_embeddings=rows), vocabulary)


@pytest.mark.parametrize("architecture", ["modernbert", "funnel"])
def test_without_position_embeddings_any_length_is_allowed(architecture):
    sketch(with_length(tiny_recipe(architecture), 1000), Vocabulary(200, 0, 2, 3))


def test_released_weights_are_not_read_to_get_their_sizes(tmp_path):
    """The folder has no weights at all."""
    config = ElectraConfig(vocab_size=30_522, embedding_size=128, hidden_size=256)
    config.save_pretrained(tmp_path)
    recipe = load("electra-small")
    part = replace(recipe.discriminator, init_from=str(tmp_path), config={})
    networks = sketch(replace(recipe, discriminator=part), BERT_VOCABULARY).networks
    assert sum(parts_of(networks["discriminator"])) == 13_549_057


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "electrra"}, "did you mean electra?"),
        ({"config": {"hidden_sizes": 3}}, "did you mean hidden_size?"),
        ({"config": {"hidden_size": 250}}, "multiple"),
    ],
)
def test_fields_that_the_architecture_refuses_are_an_error(change, message):
    recipe = load("electra-small")
    with pytest.raises(UserError) as error:
        sketch(
            replace(recipe, discriminator=replace(recipe.discriminator, **change)), BERT_VOCABULARY
        )
    assert message in str(error.value)
