"""Initial weights compared with those of the official code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_fields, tiny_inputs, tiny_recipe

from electrify.errors import UserError
from electrify.models.initialise import set_bias_from_counts
from electrify.models.inputs import call
from electrify.models.pair import Vocabulary, build_pair
from electrify.models.sharing import PROJECTIONS
from electrify.objectives.rtd import ReplacedTokenDetection, Weights, replaced_logits
from electrify.recipes.schema import Discriminator, Generator, Recipe, Run, load

GOLDEN = Path(__file__).parent.parent / "golden"
FORMULAS = json.loads((GOLDEN / "formulas.json").read_text())
OFFICIAL = json.loads((GOLDEN / "init_small.json").read_text())
ROWS = [dict(zip(OFFICIAL["columns"], row, strict=True)) for row in OFFICIAL["rows"]]
DRAWN = ("truncated normal 0.02", "glorot uniform")


@pytest.fixture(scope="module")
def small() -> dict[str, torch.Tensor]:
    """Return the parameters of ELECTRA-small's pair, each under all its names."""
    pair = build_pair(load("electra-small"), Vocabulary(30522, 0, 101, 102))
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    return {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}


def bound(row: dict) -> float:
    """Return the largest absolute value that a weight of this variable can have."""
    if row["family"] == "glorot uniform":
        inputs, outputs = row["shape"]
        return (6 / (inputs + outputs)) ** 0.5
    return 2 * FORMULAS["truncated_normal"]["stddev_arg"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_distribution_is_the_official_one(row, small):
    """Compare mean, deviation and range within the sampling error at this size."""
    values = small[row["hf"][0]]
    assert {small[name].data_ptr() for name in row["hf"]} == {values.data_ptr()}
    assert sorted(values.shape) == sorted(row["shape"])
    if row["family"] not in DRAWN:
        assert values.unique().tolist() == [1.0 if row["family"] == "ones" else 0.0]
        assert row["min"] == row["max"] == values[0].item()
        return
    count, largest = values.numel(), bound(row)
    assert max(-row["min"], row["max"]) <= largest * 1.000001, "the official weights"
    assert values.abs().max().item() <= largest * 1.000001
    assert values.mean().item() == pytest.approx(row["mean"], abs=6 * row["std"] * (2 / count) ** 0.5)  # fmt: skip
    assert values.std().item() == pytest.approx(row["std"], rel=5 / count**0.5)
    if count > 10_000:
        assert values.abs().max().item() > 0.99 * largest, "not cut at a smaller value"


def test_the_three_groups_have_the_bounds_and_deviations_of_the_formulas(small):
    glorot, normal = FORMULAS["glorot_uniform_bound"], FORMULAS["truncated_normal"]
    for name, wanted in (
        ("discriminator.electra.embeddings_project.weight", glorot["embeddings_project_small_128x256"]),
        ("generator.electra.embeddings_project.weight", glorot["gen_embeddings_project_small_128x64"]),
        ("discriminator.discriminator_predictions.dense_prediction.weight", glorot["disc_head_256x1"]),
    ):  # fmt: skip
        values = small[name]
        assert 0.98 * wanted < values.abs().max().item() <= wanted
        assert values.std().item() == pytest.approx(wanted / 3**0.5, rel=0.1)
    words = small["discriminator.electra.embeddings.word_embeddings.weight"]
    assert words.std().item() == pytest.approx(normal["resulting_std"], rel=2e-3)
    # 71.5 % of a normal cut at 2σ lie within σ; 50 % of a uniform one, 68.3 % of a full normal.
    assert (words.abs() < 0.02).float().mean().item() == pytest.approx(0.7152, abs=2e-3)


def test_all_layers_have_the_distribution_of_the_golden_file(small):
    """The file lists the first and the last layer; those in between have the same family."""
    for name, values in small.items():
        if ".layer." in name and values.ndim == 2:
            assert 0.0170 < values.std().item() < 0.0182
            assert values.abs().max().item() <= 0.04


def test_the_embedding_of_padding_is_initialised_like_any_other(small):
    words = small["discriminator.electra.embeddings.word_embeddings.weight"]
    assert words[0].std().item() == pytest.approx(0.0176, rel=0.3)


def test_a_seed_is_reproducible_and_seeds_differ():
    recipe = Recipe(Discriminator("electra", tiny_fields("electra")), Generator(width=0.5))
    assert recipe.run.init == "official"
    found = []
    for seed in (0, 0, 1):
        run = replace(recipe.run, seed=seed)
        found.append(list(build_pair(replace(recipe, run=run), VOCABULARY).discriminator.parameters()))  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True))
    assert not torch.equal(found[0][0], found[2][0])


@pytest.mark.parametrize("architecture", ["albert", "deberta-v2", "roformer", "rembert"])
def test_projections_of_other_architectures_are_glorot_too(architecture):
    recipe = tiny_recipe(architecture)
    official = replace(recipe, run=replace(recipe.run, init="official"))
    network = build_pair(official, VOCABULARY).discriminator
    found = [dict(network.base_model.named_modules()).get(path) for path in PROJECTIONS]
    (projection,) = [module for module in found if module is not None]
    assert projection.weight.abs().max().item() > 0.1  # the bound is (6 / (16 + 32)) ** 0.5 = 0.35
    assert network.classifier.weight.abs().max().item() > 0.1
    assert torch.all(network.classifier.bias == 0)


@pytest.mark.parametrize("architecture", ["electra", "modernbert", "bert", "xlm-roberta"])
def test_heads_can_start_at_the_frequencies(architecture):
    """Then an untrained pair predicts the token frequencies."""
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    counts = torch.zeros(VOCABULARY.size, dtype=torch.long)
    counts[5:20] = 100
    ReplacedTokenDetection(pair.generator, pair.discriminator).set_output_biases(counts, 0.15)
    inputs = tiny_inputs()
    probs = call(pair.generator.eval(), inputs.masked_BL, inputs).logits.softmax(-1)
    assert probs[..., 5:20].sum(-1).min() > 0.9
    replaced_probs = torch.sigmoid(
        replaced_logits(call(pair.discriminator.eval(), inputs.ids_BL, inputs).logits)
    )
    assert 0.05 < float(replaced_probs.detach().mean()) < 0.3  # an untrained head adds noise


def test_a_head_without_bias_cannot_start_at_the_frequencies():
    fields = {**tiny_fields("modernbert"), "decoder_bias": False}
    recipe = Recipe(Discriminator("modernbert", fields), run=Run(init="huggingface"))
    pair = build_pair(recipe, VOCABULARY)
    with pytest.raises(UserError, match="no output bias to set"):
        set_bias_from_counts(pair.generator, "generator", torch.ones(VOCABULARY.size))
