"""The state of a run is restored exactly, and tied parameters stay tied."""

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from tests.one_update import update

from electrify.errors import DamagedError
from electrify.models.pair import build_pair
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.recipes.schema import Optimizer, Sharing
from electrify.training.optim import build_optimizer
from electrify.training.state import load_model, load_optimizer, model_tensors, optimizer_tensors


def started(kind: str, seed_shift: float = 0.0, sharing: Sharing | None = None):
    pair = build_pair(tiny_recipe("electra", sharing), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += seed_shift
    return model, build_optimizer(model, Optimizer(kind=kind, lr=1e-3))


def losses_of_steps(model, optimizer, count: int) -> list[float]:
    inputs = tiny_inputs()
    losses = []
    for _ in range(count):
        torch.manual_seed(0)
        losses.append(update(model, optimizer, [inputs], inputs.totals(), 1e-3, 1.0).loss)
    return losses


@pytest.mark.parametrize("kind", ["electra-adam", "adamw", "lamb", "muon"])
@pytest.mark.parametrize("embeddings", ["tied", "gdes"])
def test_training_resumes_bit_for_bit(kind, embeddings):
    sharing = Sharing(embeddings=embeddings)
    model, optimizer = started(kind, sharing=sharing)
    losses_of_steps(model, optimizer, 3)
    weights = {n: t.clone() for n, t in model_tensors(model).items()}
    moments = {n: t.clone() for n, t in optimizer_tensors(model, optimizer).items()}
    expected = losses_of_steps(model, optimizer, 3)
    other, other_optimizer = started(kind, seed_shift=0.1, sharing=sharing)
    load_model(other, weights, "here")
    load_optimizer(other, other_optimizer, moments, "here")
    assert losses_of_steps(other, other_optimizer, 3) == expected
    for name, tensor in model_tensors(model).items():
        assert torch.equal(tensor, model_tensors(other)[name]), name
    words = other.discriminator.get_input_embeddings()
    if embeddings == "tied":
        assert words.weight is other.generator.get_input_embeddings().weight


def test_a_shared_parameter_is_stored_once():
    model, _ = started("adamw")
    names = [name for name in model_tensors(model) if "word_embeddings.weight" in name]
    assert len(names) == 1
    total = sum(
        tensor.numel() for tensor in model_tensors(model).values() if tensor.is_floating_point()
    )
    assert total == sum(parameter.numel() for parameter in model.parameters())


def test_the_state_of_another_model_is_refused():
    model, optimizer = started("adamw")
    weights = model_tensors(model)
    name = next(iter(weights))
    without = {n: t for n, t in weights.items() if n != name}
    cut = {**weights, name: weights[name][:-1]}
    for wrong in (without, {**weights, "surplus": torch.ones(1)}, cut):
        with pytest.raises(DamagedError, match="does not match this model"):
            load_model(model, wrong, "there")
    with pytest.raises(DamagedError):
        load_optimizer(model, optimizer, {"nobody|exp_avg": torch.ones(1)}, "there")
    with pytest.raises(DamagedError):
        load_optimizer(model, optimizer, {f"{name}|exp_avg": torch.ones(1)}, "there")
