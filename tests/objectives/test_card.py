"""The model card lists every difference between a recipe and the official one."""

from dataclasses import fields, replace

import pytest

from electrify.objectives import card
from electrify.objectives.card import (
    DIFFERENCE_TEXTS,
    NOT_COMPARED,
    nearest_official,
    recipe_differences,
)
from electrify.objectives.rtd import ReplacedTokenDetection
from electrify.recipes.schema import Recipe, load, names

FIELDS = {
    f"{part.name}.{one.name}"
    for part in fields(Recipe)
    for one in fields(getattr(Recipe(), part.name))
}
CONFIGS = {"discriminator.config", "generator.config"}  # their fields are listed one by one
OTHER = {
    **dict.fromkeys(("discriminator.init_from", "generator.init_from"), "someone/model"),
    **dict.fromkeys(("discriminator.architecture", "generator.architecture"), "bert"),
    "discriminator.config": {"hidden_size": 320},
    "generator.config": {"hidden_size": 48},
    "sharing.embeddings": "words",
    "objective.kind": "mlm",
    "objective.with_replacement": False,
    "optimizer.kind": "lamb",
    "optimizer.schedule": "cosine",
    "run.init": "huggingface",
    "run.output_bias": "frequencies",
    "run.new_embeddings": "random",
    "run.precision": "bf16",
    "run.attn_implementation": "eager",
    **{name: ((0.0, 0.3), (1.0, 0.1)) for name in FIELDS if name.startswith("schedules.")},
}


def changed(recipe: Recipe, name: str, value: object) -> Recipe:
    section, field_name = name.split(".")
    old = getattr(getattr(recipe, section), field_name)
    if isinstance(old, dict):
        value = old | value
    part = replace(getattr(recipe, section), **{field_name: value})
    return replace(recipe, **{section: part})


def other(name: str, recipe: Recipe) -> object:
    if name in OTHER:
        return OTHER[name]
    section, field_name = name.split(".")
    value = getattr(getattr(recipe, section), field_name)
    if isinstance(value, bool):
        return not value
    return value // 2 if isinstance(value, int) else value / 2


def test_every_field_has_a_description_or_is_not_compared():
    assert DIFFERENCE_TEXTS.keys() | NOT_COMPARED | CONFIGS == FIELDS


@pytest.mark.parametrize("size", card.OFFICIAL_RECIPES)
def test_an_official_recipe_has_no_difference(size):
    assert recipe_differences(card.official(size)) == []
    assert nearest_official(load(size)) == size
    assert recipe_differences(load(size)) == [DIFFERENCE_TEXTS["objective.with_replacement"]]


@pytest.mark.parametrize("name", sorted(FIELDS - NOT_COMPARED))
def test_every_difference_is_named(name):
    official = card.official("electra-small")
    (line,) = recipe_differences(changed(official, name, other(name, official)))
    assert "{" not in line


def test_no_clipping_has_its_own_description():
    (line,) = recipe_differences(changed(card.official("electra-small"), "optimizer.clip", 0.0))
    assert line == "gradients are not clipped (officially to a norm of 1)"


def test_a_field_without_a_description_is_listed_with_both_values(monkeypatch):
    """Such as a field that is added to the recipe later."""
    monkeypatch.delitem(DIFFERENCE_TEXTS, "objective.temperature")
    recipe = changed(card.official("electra-small"), "objective.temperature", 0.5)
    assert recipe_differences(recipe) == ["objective.temperature = 0.5 (officially 1.0)"]


def test_masked_lm_has_no_generator_to_differ():
    lines = recipe_differences(load("bert-small"))
    assert "the objective is masked language modelling, not replaced token detection" in lines
    assert not [line for line in lines if "generator" in line]


@pytest.mark.parametrize("name", names())
def test_every_shipped_recipe_has_a_list(name):
    recipe = load(name)
    lines = recipe_differences(recipe)
    assert len(lines) == len(set(lines)) > 0
    assert any("share one encoder" in line for line in lines) == recipe.sharing.encoder
    assert any("not clipped" in line for line in lines) == (recipe.optimizer.clip == 0)
    weight = f"the discriminator's loss has weight {recipe.objective.discriminator_weight:.4g} "
    assert any(weight in line for line in lines) == (recipe.objective.discriminator_weight != 50)


def test_precision_and_recall_name_their_threshold():
    """Examples are flagged at a different threshold."""
    for name in ("precision", "recall"):
        look = ReplacedTokenDetection.shown[name]
        assert "at 0.5" in look.label
        assert "at 0.5" in look.card
