"""The estimate of memory compared with what autograd saves."""

import pytest
import torch

from electrify.models.pair import Vocabulary, build_discriminator
from electrify.planning.memory import (
    CPU_MARGIN,
    CUDA_CONTEXT,
    MIXED,
    Mode,
    activations,
    memory,
    values_kept,
)
from electrify.planning.sketch import sketch
from electrify.recipes.schema import Discriminator, ObjectiveSettings, Recipe, Run, load

WIDTH, LENGTH, ROWS = 64, 64, 32  # many tokens, so that copies of weights matter little
VOCABULARY = Vocabulary(100, 0, 1, 2)


def network(architecture: str, layers: int):
    fields = {"hidden_size": WIDTH, "num_hidden_layers": layers, "num_attention_heads": 2}
    fields["intermediate_size"] = 4 * WIDTH
    if architecture in ("electra", "albert"):
        fields["embedding_size"] = WIDTH
    recipe = Recipe(Discriminator(architecture, fields), run=Run(init="huggingface"))
    return build_discriminator(recipe, VOCABULARY)[0].eval()


def bytes_kept(model, autocast: bool) -> int:
    """Return the bytes that backward needs of the whole batch, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.randint(5, VOCABULARY.size, (ROWS, LENGTH))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(input_ids=ids)
    return sum(t.untyped_storage().nbytes() for key, t in kept.items() if key not in weights)


def measured(architecture: str, autocast: bool = False) -> float:
    """Return the bytes of two more layers, so that embeddings and head do not count."""
    short, long = (bytes_kept(network(architecture, layers), autocast) for layers in (1, 3))
    return long - short


def estimated(architecture: str) -> float:
    short, long = (values_kept(network(architecture, layers), LENGTH) for layers in (1, 3))
    return 4 * ROWS * (long - short)


@pytest.mark.parametrize("architecture", ["electra", "bert"])
def test_a_plain_layer_keeps_the_inputs_and_outputs_of_its_matmuls(architecture):
    assert measured(architecture) == pytest.approx(estimated(architecture), rel=0.02)


@pytest.mark.parametrize("architecture", ["modernbert", "albert"])
def test_the_margin_covers_layers_that_keep_more(architecture):
    assert estimated(architecture) < measured(architecture) < CPU_MARGIN * estimated(architecture)


@pytest.mark.parametrize("architecture", ["electra", "modernbert"])
def test_autocast_keeps_no_more_than_estimated(architecture):
    fraction = measured(architecture, autocast=True) / measured(architecture)
    assert 0.5 <= fraction <= MIXED


CPU, GPU = Mode("float32", has_cuda=False), Mode("float32", has_cuda=True)


@pytest.mark.parametrize("mode", [CPU, GPU])
def test_a_step_needs_16_bytes_per_parameter_and_the_context(mode):
    needed = memory(1_000, activation_bytes=200.0, mode=mode)
    assert sum(needed) == 16 * 1_000 + 200 + (CUDA_CONTEXT if mode.has_cuda else 0)


@pytest.mark.parametrize(("mode", "bytes_per_logit"), [(CPU, 16), (GPU, 8)])
def test_the_logits_of_the_slots_count(mode, bytes_per_logit):
    recipe = Recipe(objective=ObjectiveSettings(kind="mlm"))
    objective = sketch(recipe, VOCABULARY)
    needed = [activations(objective, 3, LENGTH, slots, mode) for slots in (0, 10)]
    assert needed[1] - needed[0] == bytes_per_logit * 3 * 10 * VOCABULARY.size


@pytest.mark.parametrize("has_cuda", [True, False])
def test_checkpointing_and_mixed_precision_need_less(has_cuda):
    objective = sketch(load("electra-small"), VOCABULARY)
    plain, mixed, checkpointed = (
        activations(objective, 1, 128, 19, Mode(precision, has_cuda, saved))
        for precision, saved in (("float32", False), ("mixed", False), ("float32", True))
    )
    assert 0.6 < mixed / plain < 0.7
    assert 0.08 < checkpointed / plain < 0.2
