"""Layer-wise learning rates match the official exponents."""

import json
from pathlib import Path

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_recipe
from transformers import ElectraConfig, ElectraModel

from electrify.errors import UserError
from electrify.finetuning.heads import Classifier
from electrify.models.pair import build_discriminator
from electrify.training.layers import exponent, layer_scale
from electrify.training.optim import parameter_groups

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())
GOLDEN_KEYS = {
    "official": "layerwise_multiplier_official_bug",
    "intended": "layerwise_multiplier_as_intended",
}
MODULES = {"embeddings": "embeddings.word_embeddings", "embeddings_project": "embeddings_project"}


class Model:
    base_model_prefix = "electra"

    def __init__(self, layers: int) -> None:
        self.config = type("Config", (), {"num_hidden_layers": layers})


@pytest.mark.parametrize("kind", GOLDEN_KEYS)
@pytest.mark.parametrize(
    ("name", "layers", "decay"), [("small_12L_0.8", 12, 0.8), ("large_24L_0.9", 24, 0.9)]
)
def test_multipliers(kind, name, layers, decay):
    scale = layer_scale(Model(layers), decay, kind)
    table = GOLDEN[GOLDEN_KEYS[kind]][name]
    assert len(table) == layers + 3
    for part, wanted in table.items():
        if part == "task_head":
            full = "classifier.weight"
        else:
            module = MODULES.get(part, f"encoder.layer.{part.removeprefix('layer_')}.output.dense")
            full = f"electra.{module}.weight"
        assert scale(full) == pytest.approx(wanted, rel=1e-12)


def test_every_parameter_is_in_one_group_and_rates_follow():
    model, _ = build_discriminator(tiny_recipe("electra"), VOCABULARY)
    groups = parameter_groups(model, 1e-3, 0.01, layer_scale(model, 0.8, "official"))
    names = [name for group in groups for name in group["names"]]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert {round(group["scale"], 6) for group in groups} == {
        round(0.8**e, 6) for e in (4, 3, 2, 0)
    }
    assert all(group["lr"] == 1e-3 * group["scale"] for group in groups)


def test_a_small_classifier_has_fourteen_rates():
    """Embeddings with their projection, twelve layers and the head; no parameter is missing."""
    with torch.device("meta"):
        model = Classifier(ElectraModel(ElectraConfig()), 2, "classes", "sum")
    groups = parameter_groups(model, 1e-4, 0.01, layer_scale(model, 0.8, "official"))
    scales = {name: group["scale"] for group in groups for name in group["names"]}
    assert scales.keys() == {name for name, _ in model.named_parameters()}
    assert sorted(set(scales.values())) == [0.8**e for e in (*range(14, 1, -1), 0)]
    assert scales["body.embeddings_project.weight"] == scales["body.embeddings.LayerNorm.bias"]
    assert scales["classifier.weight"] == 1


NAMES = {  # parameter names of architectures with 12 layers, and the official exponent
    "body.encoder.layer.1.output.dense.weight": 12,
    "body.encoder.layer.11.output.dense.weight": 2,
    "body.transformer.layer.3.ffn.lin1.weight": 10,
    "body.layers.3.attn.Wqkv.weight": 10,
    "body.attentions.3.q_lin.weight": 10,
    "body.layer_norm1.3.weight": 10,
    "body.ffns.3.lin1.weight": 10,
    "body.layer_norm2.3.bias": 10,
    "body.layer_norm_emb.weight": 14,
    "body.embeddings.tok_embeddings.weight": 14,
    "body.final_norm.weight": 2,
    "classifier.weight": 0,
}


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_architectures(name):
    assert exponent(name, "body", 12, "official") == NAMES[name]


def test_a_bad_decay_is_refused():
    with pytest.raises(UserError):
        layer_scale(Model(2), 0.0, "official")
