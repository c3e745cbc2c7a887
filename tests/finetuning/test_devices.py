"""The precision of fine-tuning and of prediction, on this machine and on pretended ones."""

import json
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from tests.finetuning.own_files import FAST
from torch import nn

from electrify.finetuning.devices import (
    finetuning_precision,
    prediction_precision,
    recorded_precision,
    settle_precision,
)
from electrify.finetuning.fit import fit, outputs
from electrify.training import precision

Numbers = namedtuple("Numbers", "numbers_B2 attention_BL")


def pretend_cuda(monkeypatch, bf16: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16)


def test_auto_is_bfloat16_on_a_gpu_that_has_it_and_float32_on_every_cpu(monkeypatch):
    assert finetuning_precision("auto", "auto") == "float32"
    for bf16, chosen in ((True, "bf16"), (False, "float32")):
        pretend_cuda(monkeypatch, bf16)
        assert finetuning_precision("auto", "auto") == chosen
        assert finetuning_precision("auto", "cpu") == "float32"
        assert finetuning_precision("fp16", "auto") == "fp16"


@pytest.mark.parametrize(
    ("file", "table"),
    [
        ("manifest.json", {"identity": {"settings": {"fit": {"precision": "fp16"}}}}),
        (".parts/settings.json", {"settings": {"fit": {"precision": "fp16"}}}),
        ("jobs/cola-0/identity.json", {"plan": {"fit": {"precision": "fp16"}}}),
        ("step-00000010/jobs/cola-0/result.json", {"identity": {"plan": {"fit": {"precision": "fp16"}}}}),
        ("trials/0003/jobs/cola-0/identity.json", {"plan": {"fit": {"precision": "fp16"}}}),
    ],
)  # fmt: skip
def test_a_results_folder_knows_its_precision(file, table, tmp_path, capsys):
    assert settle_precision("auto", "cpu", tmp_path) == "float32"
    assert capsys.readouterr().out == "precision: float32, on a CPU\n"
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table))
    assert recorded_precision(tmp_path) == "fp16"
    assert settle_precision("auto", "cpu", tmp_path) == "fp16"
    assert settle_precision("bf16", "cpu", tmp_path) == "bf16"
    assert capsys.readouterr().out.splitlines() == [
        "precision: fp16, on a CPU",
        "precision: bf16, on a CPU",
    ]


@pytest.mark.parametrize(("speed", "chosen"), [(2e9, "float32"), (2e11, "bf16")])
def test_predictions_have_the_precision_of_training_unless_it_is_slow(speed, chosen, monkeypatch):
    speeds = {"float32": 1e11, "bf16": speed}
    monkeypatch.setattr(precision, "matmul_speed", lambda name, *arguments: speeds[name])
    assert prediction_precision("bf16", "cpu") == chosen
    assert (
        prediction_precision("float32", "cpu") == prediction_precision("auto", "cpu") == "float32"
    )


class Recorder(nn.Module):
    """A linear model that records the dtype of its outputs."""

    base_model_prefix = "linear"

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(2, 1), []
        self.config = SimpleNamespace(num_hidden_layers=1)

    def logits(self, batch):
        logits = self.linear(batch.numbers_B2)
        self.seen.append(logits.dtype)
        return logits

    def forward(self, batch, totals):
        loss = self.logits(batch).float().square().mean()
        return loss, {"loss": loss.detach()}


@pytest.mark.parametrize(("asked", "dtype"), [("auto", torch.float32), ("bf16", torch.bfloat16)])
def test_training_and_prediction_are_in_one_precision_and_logits_in_float32(asked, dtype):
    model = Recorder()
    collate = lambda numbers: Numbers(*[torch.ones(len(numbers), 2)] * 2)  # noqa: E731
    settings = replace(FAST, precision=asked, epochs=1)
    fit(model, [1] * 32, collate, settings, seed=0, device="cpu")
    chosen = finetuning_precision(asked, "cpu")
    logits = outputs(model, [1] * 32, collate, precision=chosen)
    assert set(model.seen) == {dtype}
    assert {row.dtype.name for row in logits} == {"float32"}
