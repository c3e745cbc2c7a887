"""Recipes: their values, what is refused, and how options change them."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from electrify.cli import _recipe_settings
from electrify.commands import COMMANDS
from electrify.errors import UserError
from electrify.planning.plan import Plan
from electrify.recipes.schema import (
    FromRecipe,
    Recipe,
    check,
    load,
    names,
    override,
    recipe_path,
    with_config_flags,
)
from electrify.training.options import Export, Pretrain

# google-research/electra configure_pretraining.py and README: layers, width, heads, feed-forward,
# embeddings, generator's width, mask rate, length, batch, learning rate, steps.
OFFICIAL = {
    "electra-small": (12, 256, 4, 1024, 128, 0.25, 0.15, 128, 128, 5e-4, 1_000_000),
    "electra-small-plus": (12, 256, 4, 1024, 128, 1.0, 0.15, 512, 128, 5e-4, 4_000_000),
    "electra-base": (12, 768, 12, 3072, 768, 0.33333, 0.15, 512, 256, 2e-4, 766_000),
    "electra-large": (24, 1024, 16, 4096, 1024, 0.25, 0.25, 512, 2048, 2e-4, 1_750_000),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_configurations(name):
    recipe = load(name)
    config = recipe.discriminator.config
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    values = (
        *(config[size] for size in (*sizes, "embedding_size")),
        *(recipe.generator.width, recipe.objective.mask_rate, recipe.run.length),
        *(recipe.run.batch_size, recipe.optimizer.lr, recipe.run.steps),
    )
    assert values == OFFICIAL[name]
    adam = recipe.optimizer
    assert (adam.kind, adam.schedule) == ("electra-adam", "electra")
    assert (adam.beta1, adam.beta2, adam.eps, adam.weight_decay) == (0.9, 0.999, 1e-6, 0.01)
    assert (adam.clip, adam.warmup) == (1.0, 10_000)
    losses = recipe.objective
    assert (losses.generator_weight, losses.discriminator_weight) == (1, 50)
    assert recipe.sharing.embeddings == "tied"
    assert recipe.run.init == "official"


@pytest.mark.parametrize("name", [n for n in names() if n.endswith("-owt") or "alectra" in n])
def test_lmtuners_recipes_match_its_model_cards(name):
    recipe = load(name)
    assert (recipe.run.batch_size, recipe.run.steps, recipe.run.length) == (512, 500_000, 128)
    assert (recipe.optimizer.warmup, recipe.optimizer.lr) == (40_000, 2e-3)
    assert recipe.optimizer.kind == "lamb"


@pytest.mark.parametrize("name", names())
def test_every_recipe_is_valid_and_has_a_description(name):
    check(load(name))
    first, _, third, *_ = recipe_path(name).read_text(encoding="utf-8").splitlines()
    assert first.startswith("# ")
    assert len(first) <= 78  # the list has 80 columns
    assert third.startswith("# Data: electrify ")


@pytest.mark.parametrize("name", names())
def test_a_recipe_sets_every_number_that_affects_training(name):
    text = recipe_path(name).read_text(encoding="utf-8")
    fields = ["mask_rate", "shown_as_mask", "with_replacement", "lr", "beta1", "beta2", "eps"]
    fields += ["weight_decay", "clip", "schedule", "warmup", "steps", "batch_size", "length"]
    fields += ["init", "kind"]
    if load(name).objective.kind == "rtd":
        fields += ["embeddings", "projection", "encoder", "generator_weight", "temperature"]
    for field in fields:
        assert f"\n{field} = " in text, field


RTD, MLM = Recipe(), load("bert-small")


@pytest.mark.parametrize(
    ("recipe", "section", "values", "message"),
    [
        (RTD, "run", {"batch_size": 0}, "run.batch_size"),
        (RTD, "run", {"steps": 0}, "run.steps"),
        (RTD, "run", {"length": 4}, "run.length must be between 8 and 65,535"),
        (RTD, "run", {"seed": -1}, "run.seed"),
        (RTD, "optimizer", {"lr": -1e-4}, "optimizer.lr must be above 0"),
        (RTD, "optimizer", {"lr": float("nan")}, "optimizer.lr"),
        (RTD, "optimizer", {"lr": float("inf")}, "optimizer.lr"),
        (RTD, "optimizer", {"beta2": 1.0}, "optimizer.beta2"),
        (RTD, "optimizer", {"eps": 0.0}, "optimizer.eps"),
        (RTD, "optimizer", {"weight_decay": -0.1}, "--optimizer.weight-decay"),
        (RTD, "optimizer", {"clip": -1.0}, "optimizer.clip"),
        (RTD, "optimizer", {"warmup": -1}, "optimizer.warmup"),
        (RTD, "objective", {"mask_rate": 0.0}, "objective.mask_rate"),
        (RTD, "objective", {"mask_rate": 1.0}, "objective.mask_rate"),
        (RTD, "objective", {"shown_as_mask": 85.0}, "objective.shown_as_mask"),
        (RTD, "objective", {"temperature": 0.0}, "objective.temperature"),
        (RTD, "objective", {"with_replacement": True, "whole_words": True}, "whole words"),
        (RTD, "generator", {"width": 0.0}, "generator.width"),
        (RTD, "generator", {"depth": -1.0}, "generator.depth"),
        (RTD, "discriminator", {"config": {"vocab_size": 9}}, "is set from the tokenizer"),
        (RTD, "generator", {"config": {"pad_token_id": 1}}, "is set from the tokenizer"),
        (MLM, "sharing", {"encoder": True}, "sharing.encoder would be ignored"),
        (MLM, "generator", {"width": 0.5}, "generator.width would be ignored"),
        (MLM, "objective", {"temperature": 2.0}, "objective.temperature would be ignored"),
    ],
)
def test_invalid_values_are_refused(recipe, section, values, message):
    check(recipe)
    changed = replace(recipe, **{section: replace(getattr(recipe, section), **values)})
    with pytest.raises(UserError) as error:
        check(changed)
    assert message in str(error.value)
    if len(values) == 1 and section != "sharing":
        assert str(next(iter(values.values()))).strip("{}").split(": ")[-1] in error.value.got


def test_settings_that_another_objective_ignores_can_be_reset_by_flags():
    flags = ["--objective.kind", "mlm"]
    with pytest.raises(UserError) as refused:
        check(cook("tiny", "--data", "d", *flags).recipe)
    added = refused.value.fix.removeprefix("add ").partition(";")[0].split()
    assert added == ["--sharing.no-encoder", "--objective.discriminator-weight", "50.0"]
    check(cook("tiny", "--data", "d", *flags, *added).recipe)
    with_config = override(load("tiny"), {"objective.kind": "mlm", "generator.config": {"x": 1}})
    with pytest.raises(UserError, match="electrify recipes copy"):
        check(with_config)


def test_unknown_names_and_keys(tmp_path):
    with pytest.raises(UserError, match="did you mean electra-small"):
        load("electra-smal")
    (tmp_path / "a.toml").write_text("[optimizer]\nlrr = 1\n")
    with pytest.raises(UserError, match="did you mean lr"):
        load(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("gelu", "gelu"),
        ("c2p|p2c", "c2p|p2c"),
        ("-1", -1),
    ],
)
def test_any_field_of_a_configuration_is_a_flag(text, value):
    flags = ["--run.steps", "7", "--generator.config.some-field", text, "--json"]
    recipe, others = with_config_flags(Recipe(), flags)
    assert recipe.generator.config == {"some_field": value}
    assert type(recipe.generator.config["some_field"]) is type(value)
    assert others == ["--run.steps", "7", "--json"]
    joined, _ = with_config_flags(Recipe(), [f"--discriminator.config.some_field={text}"])
    assert joined.discriminator.config == {"some_field": value}


def test_a_flag_of_a_configuration_needs_a_value():
    for flags in (["--generator.config.x"], ["--generator.config.x", "--run.steps", "3"]):
        with pytest.raises(UserError, match="needs a value"):
            with_config_flags(Recipe(), flags)


@dataclass(frozen=True, kw_only=True)
class Cook(FromRecipe):
    """A command with a required field."""

    data: Path
    """Something."""
    portions: int = 1
    """How many."""


def cook(*arguments: str) -> Cook:
    settings: Cook = _recipe_settings("electrify cook", COMMANDS["plan"], Cook, list(arguments))
    return settings


def test_a_command_takes_its_settings_from_a_recipe_and_flags():
    settings = cook("tiny", "--data", "d", "--run.steps", "9", "--optimizer.lr", "0.1")
    tiny = load("tiny")
    assert settings.name == "tiny"
    assert (settings.data, settings.portions) == (Path("d"), 1)
    expected = replace(
        tiny, run=replace(tiny.run, steps=9), optimizer=replace(tiny.optimizer, lr=0.1)
    )
    assert settings.recipe == expected


def test_missing_and_unknown_flags(capsys):
    for arguments, message in ((["tiny"], "--data"), (["tiny", "--data", "d", "--run.stps", "1"], "--run.steps")):  # fmt: skip
        with pytest.raises(SystemExit) as end:
            cook(*arguments)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tiny", "bert-small"])
def test_from_python_a_recipe_can_be_named(name):
    assert Plan(recipe=name).recipe == load(name)
    settings = Pretrain(recipe=name, data="shards", out="run")
    assert (settings.recipe, settings.name) == (load(name), name)
    assert (settings.data, settings.out) == (Path("shards"), Path("run"))
    other = replace(settings, recipe="electra-small")
    assert (other.recipe, other.name) == (load("electra-small"), "electra-small")
    assert Export("run", "model") == Export(Path("run"), Path("model"))
    with pytest.raises(UserError, match="did you mean tiny"):
        Plan(recipe="tinny")


NESTED = {
    "run": {"steps": 9},
    "optimizer": {"lr": 0.1},
    "discriminator": {"config": {"hidden_size": 64}},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"run.steps": 9, "optimizer.lr": 0.1, "discriminator.config.hidden_size": 64},
        NESTED,
        {"steps": 9, "lr": 0.1, "discriminator.config": {"hidden_size": 64}},
    ],
    ids=["dotted", "nested", "bare"],
)
def test_a_recipe_is_overridden_by_names_in_three_forms(changes):
    tiny = load("tiny")
    discriminator = replace(
        tiny.discriminator, config={**tiny.discriminator.config, "hidden_size": 64}
    )
    assert override(tiny, changes) == replace(
        tiny,
        discriminator=discriminator,
        run=replace(tiny.run, steps=9),
        optimizer=replace(tiny.optimizer, lr=0.1),
    )


def test_a_bare_name_is_the_setting_and_not_its_schedule():
    tiny = load("tiny")
    assert override(tiny, {"batch_size": 9, "length": 32}).run.batch_size == 9
    assert override(tiny, {"length": 32}).schedules == tiny.schedules


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stps": 9}, "did you mean steps"),
        ({"run.stps": 9}, "did you mean steps"),
        ({"ruin": {"steps": 9}}, "did you mean run"),
        ({"kind": "mlm"}, "objective.kind or optimizer.kind"),
        ({"run.steps": "many"}, "valid integer"),
        ({"run.steps.more": 1}, "steps"),
    ],
)
def test_an_invalid_override_is_refused_with_the_nearest_name(changes, message):
    with pytest.raises(UserError) as caught:
        override(load("tiny"), changes)
    assert message in str(caught.value)
