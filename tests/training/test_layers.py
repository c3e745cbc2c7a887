"""Layer-wise rates against the official exponents."""

import json
from pathlib import Path

import pytest
from tests.models.tiny import VOCABULARY, tiny_recipe

from electrify.errors import UserError
from electrify.models.pair import build_discriminator
from electrify.training.layers import layer_scale
from electrify.training.optim import parameter_groups

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())
TABLES = {
    "official": "layerwise_multiplier_official_bug",
    "intended": "layerwise_multiplier_as_intended",
}
PLACES = {"embeddings": "embeddings.word_embeddings", "embeddings_project": "embeddings_project"}


class Model:
    base_model_prefix = "electra"

    def __init__(self, layers: int) -> None:
        self.config = type("Config", (), {"num_hidden_layers": layers})


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(
    ("name", "layers", "decay"), [("small_12L_0.8", 12, 0.8), ("large_24L_0.9", 24, 0.9)]
)
def test_multipliers(kind, name, layers, decay):
    scale = layer_scale(Model(layers), decay, kind)
    table = GOLDEN[TABLES[kind]][name]
    assert len(table) == layers + 3
    for part, wanted in table.items():
        if part == "task_head":
            full = "classifier.weight"
        else:
            place = PLACES.get(part, f"encoder.layer.{part.removeprefix('layer_')}.output.dense")
            full = f"electra.{place}.weight"
        assert scale(full) == pytest.approx(wanted, rel=1e-12)


def test_every_parameter_is_in_one_group_and_rates_follow():
    model = build_discriminator(tiny_recipe("electra"), VOCABULARY)
    groups = parameter_groups(model, 1e-3, 0.01, layer_scale(model, 0.8, "official"))
    names = [name for group in groups for name in group["names"]]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert {round(group["scale"], 6) for group in groups} == {
        round(0.8**e, 6) for e in (4, 3, 2, 0)
    }
    assert all(group["lr"] == 1e-3 * group["scale"] for group in groups)


def test_a_bad_decay_is_refused():
    with pytest.raises(UserError):
        layer_scale(Model(2), 0.0, "official")
