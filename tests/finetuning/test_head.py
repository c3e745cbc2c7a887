"""Heads: sizes, initial weights, losses, and every architecture."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.test_architectures import EACH
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from tests.one_update import examples_of, update
from transformers import ElectraConfig, ElectraModel

from electrify.finetuning.heads import Classifier, Labelled
from electrify.models.pair import build_pair
from electrify.training.layers import layer_scale
from electrify.training.optim import ElectraAdam, parameter_groups

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())


def backbone(architecture: str = "electra") -> Any:
    return build_pair(tiny_recipe(architecture), VOCABULARY).discriminator.base_model


def labelled(rows: int = 6, classes: int = 3) -> Labelled:
    """Return rows of different lengths, the last of which is padding."""
    inputs = tiny_inputs(rows, padding=9)
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, classes, (rows,), generator=generator)
    weights = torch.ones(rows)
    weights[-1] = 0
    return Labelled(inputs.ids_BL, inputs.attention_BL, inputs.types_BL, labels, weights)


def scored(rows: int = 6) -> Labelled:
    return labelled(rows)._replace(labels_B=torch.linspace(0, 1, rows))


def test_the_official_size_of_a_small_classifier():
    with torch.device("meta"):
        small = ElectraModel(ElectraConfig())
        model = Classifier(small, 2, "classes", "sum")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 13_483_522
    assert count - sum(parameter.numel() for parameter in small.parameters()) == 256 * 2 + 2


@pytest.mark.parametrize("outputs", [2, 3])
def test_the_head_starts_glorot_uniform(outputs):
    bound = GOLDEN["glorot_uniform_bound"][f"classifier_256x{outputs}"]
    small = ElectraModel(ElectraConfig(num_hidden_layers=1, vocab_size=10))
    heads = [Classifier(small, outputs, "classes", "sum", seed=seed).classifier for seed in (0, 0, 1)]  # fmt: skip
    weight = heads[0].weight
    assert 0.97 * bound < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert torch.equal(heads[0].bias, torch.zeros(outputs))
    assert torch.equal(weight, heads[1].weight)
    assert not torch.equal(weight, heads[2].weight)


def test_the_sum_of_32_undecided_rows_is_the_official_one():
    """Logs of the official code start at 32 · ln 2 = 22.18; the mean is ln 2."""
    batch = labelled(32, classes=2)._replace(weights_B=torch.ones(32))
    for reduction, wanted in (("sum", 22.18), ("mean", 0.693)):
        model = Classifier(backbone(), 2, "classes", reduction).eval()
        torch.nn.init.zeros_(model.classifier.weight)
        loss, sums = model(batch, examples_of(batch))
        assert loss.item() == pytest.approx(wanted, abs=0.005)
        assert sums["examples"] == 32


def test_losses_are_the_plain_ones_and_filler_is_in_none():
    batch = labelled()
    model = Classifier(backbone(), 3, "classes", "mean").eval()
    loss, sums = model(batch, examples_of(batch))
    logits = model.logits(batch)[:-1]
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, batch.labels_B[:-1]))
    assert sums["examples"] == 5
    assert sums["correct"] == (logits.argmax(-1) == batch.labels_B[:-1]).sum()
    batch = scored()
    model = Classifier(backbone(), 1, "score", "mean").eval()
    loss, sums = model(batch, examples_of(batch))
    wanted = torch.nn.functional.mse_loss(model.logits(batch)[:-1, 0], batch.labels_B[:-1])
    torch.testing.assert_close(loss, wanted)
    assert set(sums) == {"loss", "examples"}


@pytest.mark.parametrize("kind", ["classes", "score"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_micro_batches_add_up(kind, reduction):
    """1 × 6 rows and 3 × 2 rows, the last half padding, give the same loss, norm and weights."""
    found = []
    full = labelled() if kind == "classes" else scored()
    for size in (6, 2):
        model = Classifier(backbone(), 3 if kind == "classes" else 1, kind, reduction).eval()
        adam = ElectraAdam(parameter_groups(model, 1e-3, 0.01))
        parts = [Labelled(*(t[i : i + size] for t in full)) for i in range(0, 6, size)]
        done = update(model, adam, parts, examples_of(full), 1e-3, 1.0)
        assert done.sums["loss"].item() == pytest.approx(done.loss, rel=1e-6)
        found.append((done, [p.detach().clone() for p in model.parameters()]))
    (a, weights_a), (b, weights_b) = found
    assert b.loss == pytest.approx(a.loss, rel=1e-6)
    assert b.norm == pytest.approx(a.norm, rel=1e-5)
    assert a.sums["examples"] == b.sums["examples"] == 5
    torch.testing.assert_close(weights_a, weights_b, rtol=0, atol=2e-6)


def test_dropout_is_on_the_vector_and_in_training_alone():
    batch = labelled()
    model = Classifier(backbone(), 3, "classes", "sum", dropout=0.5)  # the tiny backbone has none
    assert torch.equal(model.eval().logits(batch), model.logits(batch))
    assert not torch.equal(model.train().logits(batch), model.logits(batch))
    zeros = (model.dropout(torch.ones(1000)) == 0).float().mean().item()
    assert zeros == pytest.approx(0.5, abs=0.06)
    assert Classifier(backbone(), 3, "classes", "sum").dropout.p == 0.1  # google-research/electra


@pytest.mark.parametrize("architecture", EACH)
def test_every_architecture_can_be_a_backbone(architecture):
    """It learns, and layer-wise learning rates cover every part of it."""
    model = Classifier(backbone(architecture), 3, "classes", "sum", dropout=0.0).train()
    batch = labelled()
    model(batch, examples_of(batch))[0].backward()
    assert model.classifier.weight.grad.abs().sum() > 0
    assert model.body.get_input_embeddings().weight.grad.abs().sum() > 0
    groups = parameter_groups(model, 1.0, 0.01, layer_scale(model, 0.8, "official"))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert scales.keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    assert scales["classifier.weight"] == scales["classifier.bias"] == 1
    (words,) = [n for n, p in model.named_parameters() if p is model.body.get_input_embeddings().weight]  # fmt: skip
    assert scales[words] == min(scales.values()) == 0.8 ** (model.config.num_hidden_layers + 2)
