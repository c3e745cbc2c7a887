"""Compare the presets field by field with their sources (fidelity sheet, fine-tuning)."""

from collections import namedtuple

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from electrify.errors import GuardError
from electrify.finetuning import fit as fitting
from electrify.finetuning.fit import fit
from electrify.finetuning.glue.presets import PRESETS, plan_for
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.heads import OwnHead
from electrify.finetuning.options import Fit
from electrify.finetuning.own.tagging import Tagger
from electrify.training import loop, precision
from electrify.training.layers import layer_scale

SMALL, BASE, LARGE = 256, 768, 1024

EXPECTED = {
    # preset: rates of small, base, large; weight decay; exponents; loss; head; scale of STS-B;
    # both orders; optimizer; schedule; seeds; aggregate
    "paper": (
        (3e-4, 1e-4, 5e-5), 0.0, "intended", "mean", "official", 5.0, True, "electra-adam",
        "electra", 10, "median",
    ),
    "official-code": (
        (1e-4, 1e-4, 5e-5), 0.01, "official", "sum", "official", 5.0, True, "electra-adam",
        "electra", 10, "median",
    ),
    "seed-003": (
        (3e-4, 1e-4, 5e-5), 0.0, "intended", "mean", "own", 1.0, False, "adamw", "linear", 5,
        "median",
    ),
    "seed-004": (
        (3e-4, 1e-4, 5e-5), 0.0, "official", "mean", "official", 1.0, True, "electra-adam",
        "electra", 10, "mean",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_every_field_is_as_in_the_source(name):
    preset, mnli, sts = PRESETS[name], TASKS["mnli"], TASKS["stsb"]
    rates, decay, layers, loss, head, scale, doubled, optimizer, schedule, *runs = EXPECTED[name]
    plans = [plan_for(preset, mnli, width) for width in (SMALL, BASE, LARGE)]
    assert tuple(one.fit.lr for one in plans) == rates
    flat = name == "seed-003"
    assert [one.fit.layer_decay for one in plans] == ([1.0] * 3 if flat else [0.8, 0.8, 0.9])
    for one in plans:
        assert one.fit.weight_decay == decay
        assert one.fit.layers == layers
        assert (one.reduction, one.head, one.score_scale) == (loss, head, scale)
        assert (one.fit.optimizer, one.fit.schedule) == (optimizer, schedule)
        assert (one.fit.batch_size, one.fit.warmup, one.fit.clip, one.length) == (32, 0.1, 1.0, 128)
        assert not one.doubled
    assert plan_for(preset, sts, SMALL).doubled == doubled
    assert plan_for(preset, TASKS["mrpc"], SMALL).doubled == doubled
    assert plan_for(preset, TASKS["qqp"], SMALL).doubled is False
    assert [preset.seeds, preset.aggregate] == runs
    epochs = {task.name: plan_for(preset, task, SMALL).fit.epochs for task in TASKS.values()}
    assert {name for name, count in epochs.items() if count == 10} == {"rte", "stsb"}
    assert set(epochs.values()) == {3, 10}
    assert preset.chains == ({"rte": "mnli", "stsb": "mnli"} if flat else {})


def test_options_override_the_preset():
    plan = plan_for(PRESETS["paper"], TASKS["cola"], SMALL, 64, {"lr": 1e-3, "epochs": 2.0}, "own")
    assert (plan.fit.lr, plan.fit.epochs, plan.length, plan.head) == (1e-3, 2.0, 64, "own")


class Recorder(torch.nn.Module):
    """A model with one linear layer."""

    base_model_prefix = "body"

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(2, 2)
        self.config = BertConfig(num_hidden_layers=1)

    def forward(self, batch, totals):
        loss = self.body(batch.numbers_B2).sum() / totals.examples
        return loss, {"loss": loss.detach()}


def test_the_learning_rate_is_the_official_one_with_fractional_warm_up(monkeypatch):
    """CoLA: 804 steps, 80.4 of warm-up; golden rates are 8.960e-5 at step 80, 8.9925e-5 at 81."""
    batch = namedtuple("Batch", "numbers_B2 attention_BL")
    seen = {}

    def watching(run, start):
        seen["rates"] = [run.schedule(step) for step in range(run.cadence.steps)]
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "train", watching)
    with pytest.raises(KeyboardInterrupt):
        fit(
            Recorder(),
            [1] * 8551,
            lambda numbers: batch(*[torch.ones(len(numbers), 2)] * 2),
            Fit(lr=1e-4, epochs=3),
            seed=0,
            device="cpu",
        )
    rates = seen["rates"]
    assert len(rates) == 804
    assert rates[0] == 0
    assert rates[80] == pytest.approx(8.960174253112546e-05, rel=1e-12)
    assert rates[81] == pytest.approx(8.992537313432836e-05, rel=1e-12)
    assert rates[803] == pytest.approx(1.2437810945273853e-07, rel=1e-9)


class Undefined(Recorder):
    """A model whose loss is NaN."""

    def forward(self, batch, totals):
        loss, _ = super().forward(batch, totals)
        return loss * float("nan"), {"loss": loss.detach() * float("nan")}


def test_without_a_folder_no_checkpoint_is_restored(monkeypatch):
    """Not even one in the working directory."""
    monkeypatch.setattr(loop, "restore", lambda *arguments: pytest.fail("looked for a checkpoint"))
    batch = namedtuple("Batch", "numbers_B2 attention_BL")
    with pytest.raises(GuardError):
        fit(
            Undefined(),
            [1] * 64,
            lambda numbers: batch(*[torch.ones(len(numbers), 2)] * 2),
            Fit(batch_size=4),
            seed=0,
            device="cpu",
        )


def test_the_warning_about_emulated_precision_is_printed_once(monkeypatch, capsys):
    speeds = {"float32": 1e11, "bf16": 2e9}
    monkeypatch.setattr(precision, "matmul_speed", lambda name, *arguments: speeds[name])
    monkeypatch.setattr(fitting, "train", lambda *arguments: 1 / 0)
    for precision_name in ("float32", "bf16", "bf16"):
        with pytest.raises(ZeroDivisionError):
            fit(
                Recorder(),
                [1],
                lambda numbers: None,
                Fit(precision=precision_name),
                seed=0,
                device="cpu",
            )
    assert capsys.readouterr().err.count("bfloat16 matmuls run 50 times slower") == 1


@pytest.mark.parametrize("kind", ["classes", "tags"])
def test_layer_wise_rates_find_the_encoder_inside_a_transformers_network(kind):
    config = BertConfig(
        vocab_size=10,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
    )
    if kind == "classes":
        model = OwnHead(BertForSequenceClassification(config), "classes", "mean")
    else:
        model = Tagger(BertForTokenClassification(config))
    scale = layer_scale(model, 0.5, "intended")
    scales = {name: scale(name) for name, _ in model.named_parameters()}
    for name, factor in scales.items():
        if "embeddings" in name:
            assert factor == 0.5**3, name
        elif "layer.0." in name:
            assert factor == 0.5**2, name
        elif "layer.1." in name:
            assert factor == 0.5**1, name
        elif "classifier" in name:
            assert factor == 1, name
