"""The probability from which tokens are flagged is the same wherever they are shown."""

import json
import shutil

import numpy as np
import pytest
import torch
from tests.reports.pairs import make_run

from electrify.objectives.rtd_metrics import BINS, detection_sums, threshold_at_rate
from electrify.reports.heat import as_json, corrupt_text, detect, examples_of_run, verdict_on
from electrify.reports.inspection import page, summary
from electrify.reports.judged import Judged
from electrify.reports.pair import load_pair
from electrify.reports.threshold import Threshold, of_run
from electrify.training.export_run import export_run
from electrify.training.options import Export

TEXT = "kata lodi mifu kata lodi mifu kata lodi"


def test_as_many_are_flagged_as_were_replaced():
    """All probabilities are far below one half, as early in training."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(20_000, generator=generator) < 0.1
    logits = torch.randn(20_000, generator=generator) / 2 + labels - 3
    sums = detection_sums(logits, labels, torch.ones(20_000))
    assert sums["said_replaced"] < 10
    threshold, alarms = threshold_at_rate(sums["replaced_bins"], sums["original_bins"])
    flagged = torch.sigmoid(logits) >= threshold
    assert int(flagged.sum()) == pytest.approx(int(labels.sum()), rel=0.05)
    assert alarms == pytest.approx(float(flagged[~labels].float().mean()))
    assert float(flagged[labels].float().mean()) > 5 * alarms


def test_without_replaced_tokens_there_is_no_threshold():
    zeros, ones = torch.zeros(BINS, dtype=torch.long), torch.ones(BINS, dtype=torch.long)
    assert all(map(np.isnan, threshold_at_rate(zeros, ones)))


@pytest.fixture(scope="module")
def evaluated(shards, tmp_path_factory):
    """Return an evaluated run and its threshold."""
    run = tmp_path_factory.mktemp("evaluated") / "run"
    make_run(shards, run)
    tokens, threshold = examples_of_run(run, 4)
    assert threshold == Threshold()  # unknown yet: the top tokens of each text
    assert all(any(verdict_on(token).sign for token in example) for example in tokens)
    values = sorted(token.probability for example in tokens for token in example)
    record = {"threshold": values[-5], "replaced_rate": 0.12, "false_alarm_rate": 0.034}
    lines = [{"step": 5, "split": "validation", **record}, {"step": 5, "split": "train"}]
    later = {"step": 9, "split": "validation", "threshold": 1.0}  # after the checkpoint
    with (run / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in [*lines, later])
    return run, Threshold(*record.values())


def test_runs_exports_and_pages_flag_from_the_same_probability(evaluated, tmp_path):
    run, threshold = evaluated
    assert of_run(run, 7) == threshold
    tokens, used = examples_of_run(run, 4)
    assert used == threshold
    flagged = [
        t for example in tokens for t in example if verdict_on(t).name in ("caught", "false-alarm")
    ]
    assert len(flagged) == 5
    export_run(Export(run, tmp_path / "model"))
    of_folder, pair = load_pair(str(tmp_path / "model")), load_pair(str(run))
    assert of_folder.threshold == pair.threshold == threshold
    for shown in (detect(pair, TEXT), corrupt_text(pair, TEXT, 0.5, 0)):
        assert {token.threshold for token in shown} == {threshold.value}
    text = f"flagged: from {100 * threshold.value:.1f} % on"
    assert text in as_json(pair, TEXT, shown)["said"]
    assert text in page([Judged(pair, TEXT, shown)])
    assert "12.0 %" in str(threshold)
    assert "false-alarm rate 3.4 %" in str(threshold)


def test_without_a_threshold_the_top_tokens_are_flagged(evaluated, tmp_path):
    run, _ = evaluated
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    pair = load_pair(str(tmp_path / "run"))
    tokens = detect(pair, TEXT)
    highest = max(token.probability for token in tokens)
    names = {verdict_on(token).name for token in tokens if token.probability == highest}
    assert names == {"suspected"}
    assert len(summary(tokens)) >= 2
    assert "no validation threshold is known" in as_json(pair, TEXT, tokens)["said"]


def test_a_false_alarm_rate_of_zero_is_shown():
    assert str(Threshold(0.3, 0.1, 0.0)).endswith("; false-alarm rate 0.0 %")
    assert "false-alarm" not in str(Threshold(0.3, 0.1))
