"""Losses, samples and metrics."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sklearn.metrics import roc_auc_score
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

from electrify.models import rtd, sampling
from electrify.models.inputs import Inputs, totals_of
from electrify.models.mlm import MaskedLanguageModel
from electrify.models.pair import build_masked_lm, build_pair
from electrify.models.rtd import ReplacedTokenDetection, Weights
from electrify.training.optim import ElectraAdam, parameter_groups
from electrify.training.update import update

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())


@pytest.mark.parametrize("vocabulary", [5, 256, 700])
def test_inverse_cdf_has_the_distribution_of_the_softmax(vocabulary):
    draw = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(vocabulary, generator=draw)
    count = 100_000
    uniforms = torch.rand(count, generator=draw)
    sampled = sampling.inverse_cdf(logits.expand(count, -1), uniforms)
    observed = np.bincount(sampled.numpy(), minlength=vocabulary)
    expected = torch.softmax(logits.double(), -1).numpy() * count
    many = expected > 5
    observed = np.append(observed[many], observed[~many].sum())
    expected = np.append(expected[many], expected[~many].sum())
    kept = expected > 0
    assert chisquare(observed[kept], expected[kept]).pvalue > 1e-4


def test_inverse_cdf_is_the_naive_one_and_holds_at_the_edges():
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(400, 600, generator=draw)
    uniforms = torch.rand(400, generator=draw)
    cumulative = torch.softmax(logits.double(), -1).cumsum(-1)
    naive = (cumulative < uniforms.double().unsqueeze(1)).sum(-1)
    assert (sampling.inverse_cdf(logits, uniforms) == naive).float().mean() > 0.995
    certain = torch.full((3, 300), -1e9)
    certain[:, 299] = 0.0
    edges = torch.tensor([1e-12, 0.5, 1 - 2**-24])
    assert sampling.inverse_cdf(certain, edges).tolist() == [299, 299, 299]
    certain[:, 299], certain[:, 0] = -1e9, 0.0
    assert sampling.inverse_cdf(certain, edges).tolist() == [0, 0, 0]


def test_gumbel_noise_is_finite_as_officially():
    uniforms = torch.tensor([0.0, 0.5, 1 - 2**-24], dtype=torch.float64)
    wanted = [GOLDEN["gumbel"][name] for name in ("u=0", "u=0.5", "u=1-2**-24")]
    assert sampling.gumbel_noise(uniforms).tolist() == pytest.approx(wanted, rel=1e-6)


def test_temperature_and_disallow_correct():
    logits, original = torch.randn(50, 20), torch.randint(0, 20, (50,))
    cold = sampling.adjusted(logits, 1e-3, original, False)
    assert torch.equal(sampling.inverse_cdf(cold, torch.rand(50)), logits.argmax(-1))
    other = sampling.adjusted(logits, 1.0, original, True)
    assert not torch.any(sampling.inverse_cdf(other, torch.rand(50)) == original)


def inputs_of(ids, positions, attention=None) -> Inputs:
    ids = torch.tensor([ids])
    positions = torch.tensor([positions])
    attention = torch.ones_like(ids) if attention is None else torch.tensor([attention])
    weights = torch.ones(positions.shape)
    return Inputs(ids, ids, attention, torch.zeros_like(ids), positions, weights, weights)


@pytest.mark.parametrize("name", ["scatter_update", "scatter_labels"])
def test_corruption_is_the_official_one(name):
    golden = GOLDEN[name]
    ids = golden.get("sequence", golden.get("original"))
    sampled = torch.tensor([golden.get("updates", golden.get("sampled"))])
    corrupted = rtd.corrupt(inputs_of(ids, golden["positions"]), sampled)
    assert corrupted.ids_BL[0].tolist() == golden["out"]
    if "rtd_labels" in golden:
        assert corrupted.labels_BL[0].tolist() == golden["rtd_labels"]


def test_micro_batches_add_up_to_the_batch():
    """1 × 8 rows and 4 × 2 rows: the same loss, gradients and metrics, though rows differ in length."""
    recipe = tiny_recipe("electra", width=0.5)
    inputs = tiny_inputs(rows=8, padding=9)
    weights = inputs.weights_BN.clone()
    weights[3, 1:] = 0
    inputs = inputs._replace(weights_BN=weights, positions_BN=inputs.positions_BN * weights.long())
    found = []
    for size in (8, 2):
        pair = build_pair(recipe, VOCABULARY)
        model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).eval()
        adam = ElectraAdam(parameter_groups(model, 1e-3, 0.01))
        parts = [Inputs(*(t[i : i + size] for t in inputs)) for i in range(0, 8, size)]
        done = update(model, adam, parts, totals_of(inputs), 1e-3, 1.0)
        found.append((done, [p.detach().clone() for p in model.parameters()]))
    (whole, weights_a), (split, weights_b) = found
    assert split.loss == pytest.approx(whole.loss, rel=1e-6)
    assert split.norm == pytest.approx(whole.norm, rel=1e-6)
    for a, b in zip(weights_a, weights_b, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    assert rtd.metrics(split.sums) == pytest.approx(rtd.metrics(whole.sums), rel=1e-6)


def test_padding_is_never_in_a_loss():
    """The same texts with more padding give the same loss, for both kinds of head."""
    for architecture in ("electra", "bert", "modernbert"):
        pair = build_pair(tiny_recipe(architecture), VOCABULARY)
        model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).eval()
        short = tiny_inputs(rows=2)
        extra = torch.zeros(2, 16, dtype=torch.long)
        long = short._replace(
            **{
                name: torch.cat([getattr(short, name), extra], dim=1)
                for name in ("ids_BL", "masked_BL", "attention_BL", "types_BL")
            }
        )
        with torch.no_grad():
            a = model(short, totals_of(short))[0]
            b = model(long, totals_of(long))[0]
        assert b.item() == pytest.approx(a.item(), rel=1e-4)


def test_detection_metrics_agree_with_scikit_learn():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 60, generator=draw)
    labels = (torch.rand(40, 60, generator=draw) < torch.sigmoid(logits - 1)).long()
    real = (torch.rand(40, 60, generator=draw) < 0.8).float()
    sums = rtd.detection_sums(logits, labels, real)
    area = rtd.area_under_curve(sums["replaced_bins"], sums["original_bins"])
    keep = real > 0
    assert area == pytest.approx(roc_auc_score(labels[keep], logits[keep]), abs=1e-3)
    said, true = (logits > 0)[keep], (labels > 0)[keep]
    whole = sums | {
        n: torch.tensor(1.0)
        for n in ("generator_loss", "discriminator_loss", "slots", "generator_correct")
    }
    rates = rtd.metrics(whole)
    assert rates["recall"] == pytest.approx((said & true).sum().item() / true.sum().item())
    assert rates["precision"] == pytest.approx((said & true).sum().item() / said.sum().item())
    assert rates["accuracy"] == pytest.approx((said == true).float().mean().item())


def test_masked_lm_alone():
    model = MaskedLanguageModel(build_masked_lm(tiny_recipe("bert"), VOCABULARY)).train()
    inputs = tiny_inputs()
    loss, sums = model(inputs, totals_of(inputs))
    loss.backward()
    assert loss.item() == pytest.approx(np.log(VOCABULARY.size), abs=0.5)
    assert set(rtd.metrics(sums)) == {"generator_loss", "generator_accuracy"}
