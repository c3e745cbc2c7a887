"""A new objective is one class and one row: it trains, logs, resumes, is reported and exported."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from tests.training.conftest import RECIPE
from tests.training.nursery import Nursery, wait_for
from torch import nn
from transformers import ElectraForPreTraining

from electrify.models.inputs import call
from electrify.models.pair import build_discriminator
from electrify.objectives.bands import Alarm
from electrify.objectives.masked_lm import EPSILON
from electrify.objectives.objective import Metric, Objective, Role, fraction
from electrify.objectives.rtd import corrupt, replaced_logits

# --- the objective: tokens are replaced by random ones, and the network finds them


class NoiseDetection(Objective):
    """Finds tokens that were drawn at random, without a generator."""

    roles = {"detector": Role("finds random tokens", every_token=True)}  # noqa: RUF012
    main = "detector"
    shown = {  # noqa: RUF012
        "noise_loss": Metric("noise loss", card="noise loss", curve="Noise loss", short="noise"),
        "noise_recall": Metric("noise recall", card="recall of random tokens"),
    }
    alarms = (
        Alarm(
            "deaf",
            holds=lambda seen: seen["noise_recall"] < 0.01,
            text=lambda seen: f"no noise is found after {seen.step} steps",
        ),
    )

    def __init__(self, detector):
        super().__init__()
        self.detector = detector

    @classmethod
    def build(cls, recipe, vocabulary):
        """Build a detector from the discriminator's section."""
        return cls(build_discriminator(recipe, vocabulary)[0])

    def forward(self, batch, totals):
        """Corrupt the batch with random tokens, and find them."""
        vocab_size = self.detector.config.vocab_size
        noisy = corrupt(batch, (batch.uniforms_BN * vocab_size).long())
        logits_BL = replaced_logits(call(self.detector, noisy.ids_BL, batch).logits)
        labels_BL, real_BL = noisy.labels_BL.float(), batch.attention_BL
        losses_BL = nn.functional.binary_cross_entropy_with_logits(
            logits_BL, labels_BL, reduction="none"
        )
        loss = (losses_BL * real_BL).sum() / (totals.tokens + EPSILON)
        found = ((logits_BL > 0) & (labels_BL > 0)).sum()
        return loss, {"loss": loss.detach(), "found": found, "noise": labels_BL.sum()}

    @staticmethod
    def metrics(sums, batches=1):
        """Return the mean loss and the recall."""
        recall = fraction(float(sums["found"]), float(sums["noise"]))
        return {"noise_loss": float(sums["loss"]) / batches, "noise_recall": recall}


# --- nothing else is needed


REGISTERED = f"""
from electrify.recipes.schema import OBJECTIVES, ObjectiveKind
OBJECTIVES["noise"] = ObjectiveKind("noise detection", "{__name__}:NoiseDetection", ("generator",))
"""
SLOW = """
import time
from electrify.training.training import Stepper
accumulate = Stepper.accumulate
Stepper.accumulate = lambda *what: (time.sleep(0.02), accumulate(*what))[1]
"""


@pytest.fixture(scope="module")
def electrify(tmp_path_factory):
    nursery, log = Nursery(), tmp_path_factory.mktemp("noise") / "log"

    def run(*arguments: object, before: str = REGISTERED) -> str:
        log.unlink(missing_ok=True)
        code = nursery.run(*arguments, log=log, before=before)
        assert code == 0, log.read_text()
        return log.read_text()

    run.nursery, run.log = nursery, log
    yield run
    nursery.close()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "noise.toml"
    path.write_text(RECIPE.replace("[generator]\nwidth = 0.5\n", '[objective]\nkind = "noise"\n'))
    return path


@pytest.mark.slow
def test_a_class_and_a_row_are_all_it_takes(electrify, recipe, shards, tmp_path):
    complete, killed = tmp_path / "complete", tmp_path / "killed"
    output = electrify("pretrain", recipe, "--data", shards, "--out", complete)
    assert "detector ElectraForPreTraining" in output
    assert "noise 0." in output, "the progress line has its metric"
    assert "verdict" not in output, "it has no loss at masked tokens to judge"
    assert "validation  step 60  noise loss 0." in output
    records = [json.loads(line) for line in (complete / "metrics.jsonl").read_text().splitlines()]
    assert {"noise_loss", "noise_recall"} < records[-1].keys()

    command = ("pretrain", recipe, "--data", shards, "--out", killed)
    pid = electrify.nursery.start(*command, log=electrify.log, before=REGISTERED + SLOW)
    wait_for(killed / "checkpoints" / "step-00000020" / "manifest.json")
    os.kill(pid, signal.SIGKILL)
    assert electrify.nursery.wait() == -signal.SIGKILL
    electrify(*command)
    for name in ("metrics.jsonl", "checkpoints/step-00000060/model.safetensors"):
        assert (killed / name).read_bytes() == (complete / name).read_bytes(), name

    electrify("report", complete, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for words in ("noise detection", "Noise loss over steps", "noise recall"):
        assert words in page
    electrify("export", complete, "--out", tmp_path / "model")
    network = ElectraForPreTraining.from_pretrained(tmp_path / "model" / "detector")
    assert network(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3)
    card = (tmp_path / "model" / "detector" / "README.md").read_text()
    assert "finds random tokens" in card
    assert "| recall of random tokens |" in card
    assert (tmp_path / "model" / "encoder" / "config.json").is_file()
    planned = electrify("recipes", "check", recipe)
    assert "detector" in planned
