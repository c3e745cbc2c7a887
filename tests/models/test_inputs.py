"""Calling any architecture: mask, segments and position ids do not depend on the token ids."""

from collections.abc import Callable

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import tiny_inputs, tiny_recipe
from torch import nn

from electrify.models.inputs import batch_to_device, call, is_unpadded, padding_position
from electrify.models.pair import Vocabulary, build_pair

OTHER = 50  # any ordinary token


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("architecture", EACH)
def test_a_sampled_pad_is_a_token_like_any_other(architecture, pad):
    """With the embedding of another token, [PAD] among real tokens gives the same output.

    RoBERTa and similar models derive position ids from the token ids unless they are passed. Masks
    and lengths must not depend on the token ids either.
    """
    pair = build_pair(tiny_recipe(architecture), Vocabulary(200, pad, 2, 3))
    inputs = tiny_inputs(padding=5)
    real = inputs.attention_BL > 0
    original = torch.where(real, inputs.ids_BL, pad)
    original[0, 6] = OTHER
    sampled = original.clone()
    sampled[0, 6] = pad
    for network in (pair.generator.eval(), pair.discriminator.eval()):
        words = network.get_input_embeddings().weight
        with torch.no_grad():
            words[pad] = words[OTHER]
            first = call(network, original, inputs).logits[real]
            second = call(network, sampled, inputs).logits[real]
        assert torch.equal(first, second)


@pytest.mark.parametrize("architecture", EACH)
def test_an_unpadded_batch_gives_the_same_without_a_mask(architecture):
    """Also with a sampled [PAD] among its tokens, from which some models would derive a mask."""
    network = build_pair(tiny_recipe(architecture), Vocabulary(200, 0, 2, 3)).discriminator.eval()
    inputs = tiny_inputs()
    inputs.ids_BL[0, 6] = 0
    moved = batch_to_device(inputs, torch.device("cpu"))
    assert is_unpadded(moved.attention_BL)
    kept = batch_to_device(inputs, torch.device("cpu"), keep_mask=True)
    assert not is_unpadded(kept.attention_BL)
    assert not is_unpadded(inputs.attention_BL)
    with torch.no_grad():
        with_mask, without = (call(network, inputs.ids_BL, b).logits for b in (inputs, moved))
    torch.testing.assert_close(without, with_mask, rtol=0, atol=1e-6)


def looked_up(embedding: nn.Embedding, run: Callable[[], object]) -> torch.Tensor:
    """Return the ids that are looked up in an embedding while a function runs."""
    seen = []
    handle = embedding.register_forward_hook(
        lambda module, arguments, output: seen.append(arguments[0])
    )
    with torch.no_grad():
        run()
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("architecture", ["roberta", "xlm-roberta", "mpnet", "longformer", "esm"])
@pytest.mark.parametrize("pad", [0, 1])
def test_position_ids_are_those_that_the_architecture_computes_for_plain_text(architecture, pad):
    """They start one past that of padding, as in pre-trained models of these architectures."""
    network = build_pair(tiny_recipe(architecture), Vocabulary(200, pad, 2, 3)).discriminator.eval()
    inputs = tiny_inputs(padding=5)
    ids = torch.where(inputs.attention_BL > 0, inputs.ids_BL, pad)
    embedding = network.base_model.embeddings.position_embeddings
    passed = looked_up(embedding, lambda: call(network, ids, inputs))
    padding = padding_position(network)
    assert passed[0].tolist() == list(range(padding + 1, padding + 33))
    assert passed[-1].tolist() == list(range(padding + 1, padding + 28)) + 5 * [padding]
    computed = looked_up(
        embedding, lambda: network(input_ids=ids, attention_mask=inputs.attention_BL)
    )
    real = inputs.attention_BL > 0
    assert torch.equal(passed[real], computed[real])


@pytest.mark.parametrize("architecture", ["electra", "bert", "xlm", "modernbert", "eurobert"])
def test_other_architectures_compute_their_position_ids(architecture):
    network = build_pair(tiny_recipe(architecture), Vocabulary(200, 0, 2, 3)).discriminator
    assert padding_position(network) is None
