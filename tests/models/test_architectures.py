"""Every architecture that transformers has both classes for."""

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

from electrify.errors import UserError
from electrify.models.gather import flat_rows, head_only_on
from electrify.models.inputs import call, totals_of
from electrify.models.pair import ARCHITECTURES, build_pair
from electrify.models.rtd import ReplacedTokenDetection, Weights

# Vision-language models: their text tower alone has no configuration of its own.
NOT_TEXT = {"modernvbert", "ultravbert"}
WORKING = [name for name in ARCHITECTURES if name not in NOT_TEXT]


def test_there_are_enough_of_them():
    assert len(WORKING) >= 40


@pytest.mark.parametrize("architecture", WORKING)
def test_one_step_runs_and_the_gathered_head_gives_the_same_logits(architecture):
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    inputs = tiny_inputs()
    generator = pair.generator.eval()
    rows = flat_rows(inputs.positions_BN, inputs.ids_BL.shape[1])
    with torch.no_grad():
        full = call(generator, inputs.masked_BL, inputs).logits.flatten(0, 1)[rows]
        with head_only_on(generator, rows):
            gathered = call(generator, inputs.masked_BL, inputs).logits[0]
    torch.testing.assert_close(gathered, full, rtol=0, atol=1e-5)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).train()
    loss, sums = model(inputs, totals_of(inputs))
    loss.backward()
    assert torch.isfinite(loss)
    assert sums["tokens"] == inputs.attention_BL.sum()
    words = pair.discriminator.get_input_embeddings().weight
    assert words is pair.generator.get_input_embeddings().weight
    assert words.grad.abs().sum() > 0


@pytest.mark.parametrize("architecture", sorted(NOT_TEXT))
def test_what_cannot_be_paired_says_why(architecture):
    with pytest.raises(UserError):
        build_pair(tiny_recipe(architecture), VOCABULARY)


def test_an_unknown_architecture_or_field_has_a_near_match():
    from electrify.recipe import Discriminator, Recipe

    for discriminator, near in [
        (Discriminator("electro"), "electra"),
        (Discriminator("bert", {"hiden_size": 3}), "hidden_size"),
    ]:
        with pytest.raises(UserError) as error:
            build_pair(Recipe(discriminator), VOCABULARY)
        assert error.value.fix == f"did you mean {near}?"
