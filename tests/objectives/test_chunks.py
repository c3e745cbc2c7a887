"""Logits beyond the set size are computed in chunks: the same losses, gradients and samples."""

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

from electrify.models.pair import build_masked_lm, build_pair
from electrify.objectives import masked_lm, rtd
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Sharing

ROWS, SLOTS = 3, 4
IN_FOUR_CHUNKS = 3 * 4 * VOCABULARY.size  # the bytes of the logits of 3 of 12 slots


def step(model, monkeypatch, limit: int | None = None, autocast: bool = False):
    """Return the loss, the sums, the gradients and the samples of a step with a size limit."""
    seen = []
    corrupt = rtd.corrupt
    inputs = tiny_inputs(ROWS, slots=SLOTS, padding=5)
    inputs.weights_BN[-1, -1] = 0.0
    model.zero_grad(set_to_none=True)
    with monkeypatch.context() as patch:
        patch.setattr(rtd, "corrupt", lambda batch, ids: seen.append(ids) or corrupt(batch, ids))
        if limit:
            patch.setattr(masked_lm, "MOST_BYTES_OF_LOGITS", limit)
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, sums = model(inputs, inputs.totals())
        loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), sums, gradients, seen


def assert_chunks_change_nothing(model, monkeypatch, autocast: bool = False) -> None:
    loss, sums, gradients, samples = step(model, monkeypatch, autocast=autocast)
    again = step(model, monkeypatch, limit=IN_FOUR_CHUNKS, autocast=autocast)
    close = dict.fromkeys(("rtol", "atol"), 0.02 if autocast else 1e-6)
    torch.testing.assert_close(again[0], loss, **close)
    for name, value in sums.items():
        torch.testing.assert_close(again[1][name], value, msg=name, **close)
    assert again[2].keys() == gradients.keys()
    for name, gradient in gradients.items():
        scale = max(1e-3 if autocast else 1.0, float(gradient.abs().max()))
        torch.testing.assert_close(again[2][name] / scale, gradient / scale, msg=name, **close)
    assert len(samples) == len(again[3])
    for one, other in zip(samples, again[3], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("architecture", EACH)
def test_chunks_of_any_generator_give_the_same_step(architecture, monkeypatch):
    pair = build_pair(tiny_recipe(architecture), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).eval()
    assert_chunks_change_nothing(model, monkeypatch)


@pytest.mark.parametrize("weights", [Weights(temperature=0.7), Weights(disallow_correct=True)])
def test_chunks_with_other_samples_and_without_sharing(weights, monkeypatch):
    recipe = tiny_recipe("electra", Sharing(embeddings="none"), width=0.5)
    pair = build_pair(recipe, VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, weights).train()
    assert_chunks_change_nothing(model, monkeypatch)


def test_chunks_in_bfloat16_and_of_a_masked_language_model(monkeypatch):
    recipe = tiny_recipe("modernbert", Sharing(embeddings="none"))
    model = MaskedLanguageModel(build_masked_lm(recipe, VOCABULARY)[0]).train()
    assert_chunks_change_nothing(model, monkeypatch)
    assert_chunks_change_nothing(model, monkeypatch, autocast=True)


def test_gumbel_noise_goes_with_its_slots(monkeypatch):
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).eval()
    inputs = tiny_inputs(ROWS, slots=SLOTS)
    noise = 5 * torch.randn(ROWS * SLOTS, VOCABULARY.size)
    loss, _ = model(inputs, inputs.totals(), noise_MV=noise)
    monkeypatch.setattr(masked_lm, "MOST_BYTES_OF_LOGITS", IN_FOUR_CHUNKS)
    chunked, _ = model(inputs, inputs.totals(), noise_MV=noise)
    torch.testing.assert_close(chunked, loss, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("slots", [1, 2, 7, 8, 9, 16, 1000])
def test_chunks_are_equal_and_small_enough(slots, monkeypatch):
    monkeypatch.setattr(masked_lm, "MOST_BYTES_OF_LOGITS", 8 * 4 * 10)
    chunks = masked_lm.slot_chunks(slots, 10)
    sizes = [chunk.stop - chunk.start for chunk in chunks]
    assert [number for chunk in chunks for number in range(slots)[chunk]] == [*range(slots)]
    assert max(sizes) <= 8
    assert len(chunks) == -(-slots // 8)
    assert (len(chunks) == 1) == (slots <= 8)
