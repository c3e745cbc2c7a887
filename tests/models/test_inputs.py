"""How any architecture is called: what it knows of a token beside its id does not come from ids."""

from collections.abc import Callable

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import tiny_inputs, tiny_recipe
from torch import nn

from electrify.models.inputs import call, padding_position
from electrify.models.pair import Vocabulary, build_pair

OTHER = 50  # any ordinary token


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("architecture", EACH)
def test_a_sampled_pad_is_a_token_like_any_other(architecture, pad):
    """With the row of another token, [PAD] among real tokens gives what that token gives.

    RoBERTa's kin would take it for the end of the text: without being told, they count places from
    the ids. Masks and lengths must not come from the ids either.
    """
    pair = build_pair(tiny_recipe(architecture), Vocabulary(200, pad, 2, 3))
    inputs = tiny_inputs(padding=5)
    real = inputs.attention_BL > 0
    usual = torch.where(real, inputs.ids_BL, pad)
    usual[0, 6] = OTHER
    sampled = usual.clone()
    sampled[0, 6] = pad
    for network in (pair.generator.eval(), pair.discriminator.eval()):
        words = network.get_input_embeddings().weight
        with torch.no_grad():
            words[pad] = words[OTHER]
            first = call(network, usual, inputs).logits[real]
            second = call(network, sampled, inputs).logits[real]
        assert torch.equal(first, second)


def looked_up(table: nn.Embedding, run: Callable[[], object]) -> torch.Tensor:
    """The rows of a table that are asked for."""
    seen = []
    handle = table.register_forward_hook(
        lambda module, arguments, output: seen.append(arguments[0])
    )
    with torch.no_grad():
        run()
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta", "mpnet", "longformer", "esm"])
@pytest.mark.parametrize("pad", [0, 1])
def test_places_are_those_the_architecture_gives_to_plain_text(architecture, pad):
    """Counted from one past the place of padding, as pre-trained tables of these models have it."""
    network = build_pair(tiny_recipe(architecture), Vocabulary(200, pad, 2, 3)).discriminator.eval()
    inputs = tiny_inputs(padding=5)
    ids = torch.where(inputs.attention_BL > 0, inputs.ids_BL, pad)
    table = network.base_model.embeddings.position_embeddings
    on_progress = looked_up(table, lambda: call(network, ids, inputs))
    padding = padding_position(network)
    assert on_progress[0].tolist() == list(range(padding + 1, padding + 33))
    assert on_progress[-1].tolist() == list(range(padding + 1, padding + 28)) + 5 * [padding]
    own = looked_up(table, lambda: network(input_ids=ids, attention_mask=inputs.attention_BL))
    real = inputs.attention_BL > 0
    assert torch.equal(on_progress[real], own[real])


@pytest.mark.parametrize("architecture", ["electra", "bert", "xlm", "modernbert", "eurobert"])
def test_other_architectures_count_by_themselves(architecture):
    network = build_pair(tiny_recipe(architecture), Vocabulary(200, 0, 2, 3)).discriminator
    assert padding_position(network) is None
