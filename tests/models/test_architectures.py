"""Every architecture that transformers has both classes for, tried by docs/architectures.py."""

import pytest
import torch
from docs.architectures import (
    COLUMNS,
    NOT_REACHED,
    TABLE,
    TOLERANCE,
    check_reload,
    faults,
    gathered_difference,
    model_of,
    row,
    rows_of,
    stray_and_missing,
    trial,
)
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from torch import nn

from electrify.errors import UserError
from electrify.models.pair import ARCHITECTURES, build_pair
from electrify.objectives.rtd import ReplacedTokenDetection, Weights

# Vision-language models: their text encoder has no configuration of its own.
NOT_TEXT = {"modernvbert", "ultravbert"}
WORKING = [name for name in ARCHITECTURES if name not in NOT_TEXT]
# In `make test`; `make test-all` runs all of them.
COMMON = {"electra", "bert", "albert", "roberta", "distilbert", "deberta-v2", "modernbert", "mpnet"}


def each(names: list[str]) -> list:
    """Return parameters for all architectures, with the less common ones marked slow."""
    return [n if n in COMMON else pytest.param(n, marks=pytest.mark.slow) for n in names]


EACH = each(WORKING)
# Builds and runs, but its attention returns zeros where its CUDA kernel is missing.
NEEDS_CUDA = {"mra"}
SEEN = [name for name in WORKING if name not in NEEDS_CUDA]


def test_at_least_40_architectures_work():
    assert len(SEEN) >= 40


@pytest.mark.parametrize("architecture", EACH)
def test_one_step_runs(architecture):
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    inputs = tiny_inputs(padding=5)
    loss, sums = model_of(pair).train()(inputs, inputs.totals())
    loss.backward()
    assert torch.isfinite(loss)
    assert sums["tokens"] == inputs.attention_BL.sum()
    words = pair.discriminator.get_input_embeddings().weight
    assert words is pair.generator.get_input_embeddings().weight
    assert words.grad.abs().sum() > 0


@pytest.mark.parametrize("architecture", EACH)
def test_the_gathered_head_gives_the_same_logits(architecture):
    assert trial(architecture).gathered <= TOLERANCE


@pytest.mark.parametrize("architecture", EACH)
def test_gradients_reach_what_they_should_and_only_that(architecture):
    """Each network learns from its own loss, and tied embeddings from both."""
    assert trial(architecture).stray == []


@pytest.mark.parametrize("architecture", each(SEEN))
def test_every_parameter_learns_or_has_a_known_reason_not_to(architecture):
    missing = trial(architecture).not_reached
    assert [name for name in missing if not any(part in name for part in NOT_REACHED)] == []


@pytest.mark.slow
def test_every_reason_for_not_learning_is_needed():
    missing = [name for architecture in SEEN for name in trial(architecture).not_reached]
    assert [part for part in NOT_REACHED if not any(part in name for name in missing)] == []


@pytest.mark.parametrize("architecture", EACH)
def test_the_page_matches_the_results(architecture):
    """If this fails after an intended change, run `make docs-architectures`."""
    written, found = rows_of(TABLE.read_text(encoding="utf-8"))[architecture], trial(architecture)
    if reasons := faults(architecture, found):
        assert written == [architecture, reasons[0]]
        return
    assert len(written) == len(COLUMNS)
    number = list(COLUMNS).index("gathered")
    assert float(written.pop(number)) <= TOLERANCE
    wanted = row(architecture, found)
    wanted.pop(number)
    assert written == wanted


def test_the_page_lists_every_architecture():
    written = rows_of(TABLE.read_text(encoding="utf-8"))
    assert sorted(written) == ARCHITECTURES
    assert {name for name, cells in written.items() if len(cells) == 2} == NOT_TEXT | NEEDS_CUDA


@pytest.mark.parametrize("architecture", sorted(NOT_TEXT))
def test_unsupported_architectures_are_refused_with_a_reason(architecture):
    with pytest.raises(UserError) as error:
        build_pair(tiny_recipe(architecture), VOCABULARY)
    assert error.value.what in rows_of(TABLE.read_text(encoding="utf-8"))[architecture][1]


@pytest.mark.parametrize(
    ("architecture", "smaller"),
    [("squeezebert", {"width": 0.5}), ("funnel", {"depth": 0.5})],
)
def test_a_size_that_an_architecture_refuses_is_a_user_error(architecture, smaller):
    with pytest.raises(UserError, match=r"cannot build .* from this recipe"):
        build_pair(tiny_recipe(architecture, **smaller), VOCABULARY)


def test_an_unknown_architecture_or_field_has_a_near_match():
    from electrify.recipes.schema import Discriminator, Recipe

    for discriminator, near in [
        (Discriminator("electro"), "electra"),
        (Discriminator("bert", {"hiden_size": 3}), "hidden_size"),
    ]:
        with pytest.raises(UserError) as error:
            build_pair(Recipe(discriminator), VOCABULARY)
        assert error.value.fix == f"did you mean {near}?"


# --- the checks themselves detect faults


class Leaky(ReplacedTokenDetection):
    """An objective whose discriminator loss reaches the generator."""

    def forward(self, inputs, totals, noise_MV=None):
        loss, sums = super().forward(inputs, totals, noise_MV)
        bias = self.generator.electra.encoder.layer[0].output.dense.bias
        return loss + self.weights.discriminator * bias.sum(), sums


def test_a_leak_is_detected():
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    leaky = Leaky(pair.generator, pair.discriminator, Weights())
    stray, missing = stray_and_missing(leaky, tiny_inputs())
    name = "generator.electra.encoder.layer.0.output.dense.bias"
    assert stray == [f"{name}: from the discriminator's loss", f"{name}: not the sum of both"]
    assert missing == []


def test_a_network_that_a_loss_does_not_reach_is_detected():
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    model = model_of(pair)
    model.discriminator.electra.encoder.register_forward_hook(
        lambda module, arguments, output: type(output)(output.last_hidden_state.detach())
    )
    stray, missing = stray_and_missing(model, tiny_inputs())
    words = "generator.electra.embeddings.word_embeddings.weight"
    assert f"{words}: shared, but learns from one loss" in stray
    assert "discriminator.electra.embeddings_project.weight" in missing
    assert "discriminator.discriminator_predictions.dense.weight" not in missing


def test_a_head_that_mixes_positions_is_detected():
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)

    class Mixing(nn.Module):
        def forward(self, hidden_BLH):
            return hidden_BLH - hidden_BLH.mean(dim=(0, 1), keepdim=True)

    head = pair.generator.generator_predictions
    pair.generator.generator_predictions = nn.Sequential(Mixing(), head)
    assert gathered_difference(pair.generator, tiny_inputs()) > TOLERANCE


def test_an_export_that_differs_is_detected():
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    pair.generator.register_forward_hook(
        lambda module, arguments, output: type(output)(logits=output.logits + 1)
    )
    with pytest.raises(UserError, match="does not survive export"):
        check_reload(pair)
