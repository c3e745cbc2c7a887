"""Invalid fields of a configuration are refused before anything is built."""

import time

import pytest

from electrify.errors import UserError
from electrify.models.limits import FIXED, check_values
from electrify.models.pair import ARCHITECTURES, Vocabulary
from electrify.planning.sketch import sketch
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing

VOCABULARY = Vocabulary(100, 0, 1, 2)
SIZES = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}


def recipe_with(architecture: str = "electra", **config: object) -> Recipe:
    discriminator = Discriminator(architecture, {**SIZES, "intermediate_size": 64, **config})
    return Recipe(discriminator, sharing=Sharing("none"), run=Run(length=32))


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("num_hidden_layers", 1_000_000, "between 1 and 512"),
        ("num_hidden_layers", 10**30, "between 1 and 512"),
        ("num_hidden_layers", True, "between 1 and 512"),
        ("num_attention_heads", 0, "between 1 and 4,096"),
        ("intermediate_size", -1, "between 1 and 1,048,576"),
        ("intermediate_size", 2**31, "between 1 and 1,048,576"),
        ("embedding_size", 10**400, "between 1 and 1,048,576"),
        ("max_position_embeddings", 2**31, "between 1 and 131,072"),
        ("attention_probs_dropout_prob", 1, "at least 0 and below 1"),
        ("attention_probs_dropout_prob", 1.0, "at least 0 and below 1"),
        ("hidden_dropout_prob", float("nan"), "at least 0 and below 1"),
        ("classifier_dropout", True, "at least 0 and below 1"),
        ("layer_norm_eps", float("inf"), "between 1e-30 and 1"),
        ("initializer_range", -0.1, "between 0 and 100"),
        ("type_vocab_size", 2**63, "between -1,048,576 and 1,048,576"),
    ],
)
@pytest.mark.parametrize("role", ["discriminator", "generator"])
def test_a_number_out_of_range_is_refused_immediately(role, field, value, allowed):
    recipe = recipe_with(**{field: value})
    if role == "generator":
        recipe = Recipe(
            recipe_with().discriminator, Generator(config={field: value}), run=Run(length=32)
        )
    started = time.monotonic()
    with pytest.raises(UserError, match=f"must be {allowed}") as error:
        sketch(recipe, VOCABULARY)
    assert f"{role}.config.{field}" in error.value.what
    assert error.value.fix.startswith("use a value in that range")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("field", [name for names in FIXED.values() for name in sorted(names)])
def test_a_field_that_the_code_depends_on_cannot_be_set(field):
    with pytest.raises(UserError, match="cannot be set") as error:
        sketch(recipe_with(**{field: False}), VOCABULARY)
    assert f"leave {field} out" in error.value.fix


@pytest.mark.parametrize("field", ["to_dict", "save_pretrained", "sub_configs", "_auto_class"])
def test_a_method_of_a_configuration_is_not_a_field(field):
    with pytest.raises(UserError, match="is not a field of bert"):
        sketch(recipe_with("bert", **{field: 1}), VOCABULARY)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_within_the_ranges_by_default(architecture):
    from transformers import CONFIG_MAPPING

    default = CONFIG_MAPPING[architecture]()

    class Other:
        model_type = architecture

        def __getattr__(self, name):  # the same types with other values
            value = getattr(default, name, None)
            return type(value)(value + 1) if type(value) in (int, float) else value

    check_values(vars(default), Other(), "discriminator")
