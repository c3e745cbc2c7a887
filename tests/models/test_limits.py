"""Fields of configurations that are refused before anything is built from them."""

import time

import pytest

from electrify.errors import UserError
from electrify.models.limits import FIXED, check_values
from electrify.models.pair import ARCHITECTURES, Vocabulary
from electrify.planning.sketch import sketch
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, Sharing

VOCABULARY = Vocabulary(100, 0, 1, 2)
SIZES = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}


def of(architecture: str = "electra", **config: object) -> Recipe:
    kept = Discriminator(architecture, {**SIZES, "intermediate_size": 64, **config})
    return Recipe(kept, sharing=Sharing("none"), run=Run(length=32))


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("num_hidden_layers", 1_000_000, "1 to 512"),
        ("num_hidden_layers", 10**30, "1 to 512"),
        ("num_hidden_layers", True, "1 to 512"),
        ("num_attention_heads", 0, "1 to 4,096"),
        ("intermediate_size", -1, "1 to 1,048,576"),
        ("intermediate_size", 2**31, "1 to 1,048,576"),
        ("embedding_size", 10**400, "1 to 1,048,576"),
        ("max_position_embeddings", 2**31, "1 to 131,072"),
        ("attention_probs_dropout_prob", 1, "0 or more, less than 1"),
        ("attention_probs_dropout_prob", 1.0, "0 or more, less than 1"),
        ("hidden_dropout_prob", float("nan"), "0 or more, less than 1"),
        ("classifier_dropout", True, "0 or more, less than 1"),
        ("layer_norm_eps", float("inf"), "1e-30 to 1"),
        ("initializer_range", -0.1, "0 to 100"),
        ("type_vocab_size", 2**63, "-1,048,576 to 1,048,576"),
    ],
)
@pytest.mark.parametrize("role", ["discriminator", "generator"])
def test_a_number_out_of_range_is_refused_at_once(role, field, value, allowed):
    recipe = of(**{field: value})
    if role == "generator":
        recipe = Recipe(of().discriminator, Generator(config={field: value}), run=Run(length=32))
    begin = time.monotonic()
    with pytest.raises(UserError, match="is out of range") as error:
        sketch(recipe, VOCABULARY)
    assert f"{role}.config.{field}" in error.value.what
    assert allowed in error.value.fix
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("field", [name for names in FIXED.values() for name in sorted(names)])
def test_a_field_that_the_code_depends_on_cannot_be_set(field):
    with pytest.raises(UserError, match="cannot be set") as error:
        sketch(of(**{field: False}), VOCABULARY)
    assert f"leave {field} out" in error.value.fix


@pytest.mark.parametrize("field", ["to_dict", "save_pretrained", "sub_configs", "_auto_class"])
def test_a_method_of_a_configuration_is_no_field(field):
    with pytest.raises(UserError, match="is not a field of bert"):
        sketch(of("bert", **{field: 1}), VOCABULARY)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_within_the_ranges_by_default(architecture):
    from transformers import CONFIG_MAPPING

    default = CONFIG_MAPPING[architecture]()

    class Other:
        model_type = architecture

        def __getattr__(self, name):  # the same types, other values
            value = getattr(default, name, None)
            return type(value)(value + 1) if type(value) in (int, float) else value

    check_values(vars(default), Other(), "discriminator")
