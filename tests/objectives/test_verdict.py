"""The verdict on a run: a table of cases, and the numbers that it is made from."""

from math import inf, log, nan

import numpy as np
import pytest
import torch

from electrify.batches.batch import Batch
from electrify.objectives.bands import Detection, Sizes
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.objective import Objective
from electrify.objectives.rtd import ReplacedTokenDetection
from electrify.objectives.rtd_metrics import BINS, detection_curves, detection_sums, recall_at
from electrify.objectives.verdict import (
    GRADES,
    LADDER,
    Evidence,
    fall_per_doubling,
    run_verdict,
    verdict,
)
from electrify.training.data import unigram_loss

SIZES = Sizes(8_192)
UNIFORM = SIZES.uniform_loss  # 9.01
BASE = Evidence(UNIFORM, loss=4.0, unigram=7.0, best=4.0, training_loss=4.0, per_doubling=0.3)
GOOD = Detection(0.9, 0.61)

CASES = {
    "untrained": (
        {"loss": 8.9, "best": 8.9, "per_doubling": 1.0},
        "early",
        "Not trained enough yet: the model has learned almost nothing",
        "Train about 8 times longer",
    ),
    "untrained and flat": (
        {"loss": 8.9, "best": 8.9, "per_doubling": 0.0},
        "stuck",
        "Training did not work: the model has learned almost nothing",
        "The loss does not fall: check the learning rate (--optimizer.lr)",
    ),
    "frequent words": (  # from 7.0 to 5.95 at 0.5 per doubling: 2 ** 2.1
        {"loss": 7.0, "best": 7.0, "per_doubling": 0.5},
        "early",
        "the model still predicts frequent words, whatever the context",
        "Train about 4 times longer: in the second half of the run the loss fell by 0.50 with each",
    ),
    "frequent words, hardly falling": (
        {"loss": 7.0, "best": 7.0, "per_doubling": 0.06},
        "early",
        "frequent words",
        "Train much longer",
    ),
    "frequent words, on the plateau": (
        {"loss": 7.0, "best": 7.0, "per_doubling": 0.0},
        "early",
        "frequent words",
        "the curve does not show how much longer",
    ),
    "frequent words, too few points": (
        {"loss": 7.0, "best": 7.0, "per_doubling": nan},
        "early",
        "frequent words",
        "Train longer.",
    ),
    "beginning": (
        {"loss": 6.3, "best": 6.3},
        "started",
        "Training has started to work: the model has started to use the words around a masked one",
        "It was still improving",
    ),
    "word-level context": (
        {"detection": GOOD},
        "worked",
        "Training worked: the model has learned word-level context, and detects 6 of 10 replaced "
        "tokens at a 5 % false-alarm rate.",
        "AUC 0.90: a replaced token gets a higher probability than an original one in 90 of 100",
    ),
    "masked LM": (
        {},
        "worked",
        "Training worked: the model has learned word-level context.",
        "guessing at random gives 9.01, guessing by token frequency 7.00.",
    ),
    "good": (
        {"loss": 2.0, "best": 2.0, "per_doubling": 0.01, "detection": Detection(0.97, 0.96)},
        "worked",
        "from their context well, and detects 96 of 100 replaced tokens",
        "It no longer improves",
    ),
    "an older run": (
        {"unigram": nan, "detection": Detection(0.9)},
        "worked",
        "and tells replaced from original tokens in 90 of 100 pairs.",
        "guessing by token frequency about 6.62",
    ),
    "blind discriminator": (
        {"detection": Detection(0.51, 0.05)},
        "early",
        "word-level context, and does not tell replaced from original tokens yet",
        "guessing gives 50",
    ),
    "weak discriminator": (
        {"detection": Detection(0.62, 0.08)},
        "started",
        "detects 8 of 100 replaced tokens",
        "AUC 0.62",
    ),
    "overfit": (
        {"loss": 4.5, "best_step": 700, "training_loss": 2.0},
        "worse",
        "Training went wrong after a good start: the model has learned word-level context",
        "The validation loss was 4.00 at step 700 and is 4.50 now, while the training loss fell to "
        "2.00: the model memorizes its text.",
    ),
    "unstable": (
        {"loss": 4.5, "best_step": 700, "training_loss": 4.6},
        "worse",
        "word-level context",
        "4.50 now: training is unstable. Use a lower learning rate",
    ),
    "NaN": (
        {"loss": nan, "detection": Detection(nan, nan)},
        "diverged",
        "Training diverged: the loss is not a number, worse than guessing at random (9.01).",
        "Resume from an earlier checkpoint",
    ),
    "diverged": ({"loss": 40.0}, "diverged", "the loss is 40.00", "--optimizer.lr"),
    "no validation": (
        {"evaluated": False, "loss": nan, "best": nan},
        "unknown",
        "No verdict: without an evaluation on validation text, nobody can tell",
        "",
    ),
    "unfinished": (
        {"finished": False, "detection": GOOD},
        "worked",
        "Training works so far: the model has learned word-level context",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict(case):
    changed, grade, headline, reason = CASES[case]
    found = verdict(BASE._replace(**changed))
    assert found.grade == grade
    assert headline in found.headline
    assert reason in " ".join(found.reasons)
    assert "nan" not in str(found)


def test_every_grade_and_every_rung_is_tested():
    found = [verdict(BASE._replace(**changed)) for changed, *_ in CASES.values()]
    assert {one.grade for one in found} == GRADES.keys()
    text = " ".join(one.headline for one in found)
    assert all(rung.clause in text for rung in LADDER)
    assert LADDER[-1].above == -inf


def records(name, losses, split="validation", **more):
    return [
        {"step": 100 * n, "split": split, name: loss, **more} for n, loss in enumerate(losses, 1)
    ]


def test_records_of_both_objectives_give_a_verdict():
    masked = run_verdict(
        MaskedLanguageModel, SIZES, records("mlm_loss", [8, 6, 5, 4], unigram_loss=7.0), 400
    )
    assert masked.headline == "Training worked: the model has learned word-level context."
    assert "guessing by token frequency 7.00" in masked.reasons[1]
    older = records("generator_loss", [4.0], auc=0.9, replaced_rate=0.1219, false_alarm_rate=0.0546)
    found = run_verdict(ReplacedTokenDetection, SIZES, older, 500)
    assert "so far" in found.headline
    assert "detects 6 of 10 replaced tokens at a 5 % false-alarm rate" in found.headline


def test_null_metrics_and_missing_ones():
    diverged = records("generator_loss", [5.0, None], auc=None, replaced_rate=None)
    assert run_verdict(ReplacedTokenDetection, SIZES, diverged, 200).grade == "diverged"
    training = records("mlm_loss", [8.0, 7.0], "train")
    assert run_verdict(MaskedLanguageModel, SIZES, training, 200).grade == "unknown"
    assert run_verdict(MaskedLanguageModel, SIZES, [], 200) is None
    assert run_verdict(Objective, SIZES, training, 200) is None, "an objective without a verdict"


def test_the_training_curve_gives_the_trend_of_a_run_with_one_evaluation():
    logged = records("mlm_loss", [9 - log(n) / log(2) for n in range(1, 9)], "train")
    evaluated = [{"step": 800, "split": "validation", "mlm_loss": 6.0, "unigram_loss": 7.0}]
    found = run_verdict(MaskedLanguageModel, SIZES, [*logged, *evaluated], 800)
    assert "the loss fell by 1.00 with each doubling" in found.reasons[0]


def test_the_slope_needs_three_finite_points():
    assert np.isnan(fall_per_doubling([]))
    assert np.isnan(fall_per_doubling([(0, 9.0), (50, nan), (60, 5.0), (100, 4.0)]))
    assert fall_per_doubling([(50, 5.0), (75, 5.0), (100, 5.0)]) == pytest.approx(0)


def draws():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(60, 500, generator=generator)
    labels = (torch.rand(60, 500, generator=generator) < torch.sigmoid(logits)).long()
    return logits, labels, torch.ones(60, 500)


def test_recall_at_a_fixed_false_alarm_rate_agrees_with_the_scores():
    logits, labels, real = draws()
    sums = detection_sums(logits, labels, real)
    threshold = torch.quantile(logits[labels == 0], 0.95)
    exact = float((logits[labels == 1] > threshold).float().mean())
    assert detection_curves(sums)["recall_at_5"] == pytest.approx(exact, abs=0.01)


def test_recall_of_a_constant_answer_is_the_false_alarm_rate():
    bins = torch.zeros(BINS, dtype=torch.long)
    bins[70] = 1_000
    assert recall_at(bins, bins, 0.05) == pytest.approx(0.05)
    assert np.isnan(recall_at(torch.zeros_like(bins), bins, 0.05))


def test_calibration_is_the_rate_in_every_range_and_adds_up_over_batches():
    logits, labels, real = draws()
    whole = detection_sums(logits, labels, real)
    halves = [detection_sums(*(part[rows] for part in (logits, labels, real)))
              for rows in (slice(0, 30), slice(30, 60))]  # fmt: skip
    added = {name: halves[0][name] + halves[1][name] for name in whole}
    assert detection_curves(added) == pytest.approx(detection_curves(whole), nan_ok=True)
    rates = ReplacedTokenDetection.calibration(detection_curves(whole))
    assert len(rates) == 10
    for predicted, observed in rates:
        assert observed == pytest.approx(predicted, abs=0.06), "these draws are calibrated"
    few = detection_curves(detection_sums(logits[:1, :9], labels[:1, :9], real[:1, :9]))
    assert ReplacedTokenDetection.calibration(few) == []


def test_the_loss_of_guessing_by_frequency():
    counts_V = np.array([0, 30, 10, 0])
    ids_BL = np.array([[1, 2, 3], [1, 1, 2]])
    positions_BN, weights_BN = np.array([[0, 1], [2, 0]]), np.array([[1.0, 1.0], [1.0, 0.0]])
    batch = Batch(ids_BL, ids_BL, ids_BL, ids_BL, positions_BN, weights_BN, weights_BN)
    expected = -(log(30.5 / 42) + 2 * log(10.5 / 42)) / 3  # each count plus one half
    assert unigram_loss([batch], counts_V) == pytest.approx(expected)
    assert unigram_loss([batch, batch], counts_V) == pytest.approx(expected)
