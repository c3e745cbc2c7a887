"""Losses, samples and metrics."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.metrics import roc_auc_score
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from torch import nn

from electrify.batches.batch import Batch
from electrify.models.pair import build_masked_lm, build_pair
from electrify.objectives import rtd, rtd_metrics, sampling
from electrify.objectives.masked_lm import CrossEntropy
from electrify.objectives.mlm import MaskedLanguageModel
from electrify.objectives.rtd import ReplacedTokenDetection, Weights

FOLDER = Path(__file__).parent.parent / "golden"
GOLDEN = json.loads((FOLDER / "formulas.json").read_text())
REPEATS = dict(np.load(FOLDER / "scatter_repeats.npz"))


def probs(logits: torch.Tensor) -> torch.Tensor:
    """Return probabilities as `predict_slots` does: in float32, whatever the dtype of the logits."""
    return torch.softmax(logits.float(), dim=-1)


def fits_softmax(sampled: torch.Tensor, logits: torch.Tensor) -> bool:
    """Return whether the tokens fit the softmax of the logits; rare tokens are pooled."""
    observed = np.bincount(sampled.numpy(), minlength=len(logits))
    expected = torch.softmax(logits.double(), -1).numpy() * len(sampled)
    many = expected > 5
    observed = np.append(observed[many], observed[~many].sum())
    expected = np.append(expected[many], expected[~many].sum())
    kept = expected > 0
    return chisquare(observed[kept], expected[kept]).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", [5, 256, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inverse_cdf_has_the_distribution_of_the_softmax(vocabulary, dtype):
    """The logits may have 16 bits; the probabilities must not."""
    draw = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(vocabulary, generator=draw)).to(dtype)
    uniforms = torch.rand(100_000, generator=draw)
    sampled = sampling.inverse_cdf(probs(logits).expand(len(uniforms), -1), uniforms)
    assert fits_softmax(sampled, logits)
    assert not fits_softmax(sampled, 1.1 * logits), "the test is sharp enough"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gumbel_max_has_the_distribution_of_the_softmax(dtype):
    draw = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn(5, generator=draw)).to(dtype)
    noise = sampling.gumbel_noise(torch.rand(100_000, 5, generator=draw))
    sampled = sampling.gumbel_max(probs(logits).expand(len(noise), -1), noise)
    assert fits_softmax(sampled, logits)
    assert not fits_softmax(sampled, 1.1 * logits), "the test is sharp enough"
    near = probs(torch.tensor([[8.0, 8.0]], dtype=dtype)), torch.tensor([[0.001, 0.002]])
    assert sampling.gumbel_max(*near).item() == 1, "16 bits would not tell them apart"


def test_inverse_cdf_is_the_naive_one_and_holds_at_the_edges():
    draw = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(400, 600, generator=draw)
    uniforms = torch.rand(400, generator=draw)
    cumulative = torch.softmax(logits.double(), -1).cumsum(-1)
    naive = (cumulative < uniforms.double().unsqueeze(1)).sum(-1)
    assert (sampling.inverse_cdf(probs(logits), uniforms) == naive).float().mean() > 0.995
    certain = torch.full((3, 300), -1e9)
    certain[:, 299] = 0.0
    edges = torch.tensor([1e-12, 0.5, 1.0])  # a number just below 1 is 1 in float32
    assert sampling.inverse_cdf(probs(certain), edges).tolist() == [299, 299, 299]
    certain[:, 299], certain[:, 0] = -1e9, 0.0
    assert sampling.inverse_cdf(probs(certain), edges).tolist() == [0, 0, 0]


def test_cross_entropy_and_its_gradient_are_those_of_torch():
    torch.manual_seed(0)
    logits = (5 * torch.randn(40, 300)).requires_grad_()
    original, shares = torch.randint(0, 300, (40,)), torch.rand(40)
    loss, predicted = CrossEntropy.apply(logits, original, shares)
    torch.testing.assert_close(predicted, probs(logits).detach())
    expected = (nn.functional.cross_entropy(logits, original, reduction="none") * shares).sum()
    torch.testing.assert_close(loss, expected)
    [gradient] = torch.autograd.grad(3 * loss, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(3 * expected, logits)[0])


def test_cross_entropy_frees_its_matrix():
    logits = torch.randn(4, 9, requires_grad=True)
    loss, _ = CrossEntropy.apply(logits, torch.zeros(4, dtype=torch.long), torch.ones(4))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # rather than wrong gradients


def test_gumbel_noise_is_finite_as_officially():
    uniforms = torch.tensor([0.0, 0.5, 1 - 2**-24, 1 - 1e-9], dtype=torch.float64)
    names = ("u=0", "u=0.5", "u=1-2**-24", "u->1 exactly")
    wanted = [GOLDEN["gumbel"][name] for name in names]
    assert sampling.gumbel_noise(uniforms).tolist() == pytest.approx(wanted, rel=1e-6)


def test_temperature_and_disallow_correct():
    logits, original = torch.randn(50, 20), torch.randint(0, 20, (50,))
    cold = sampling.adjusted(probs(logits), 1e-3, original, False)
    assert torch.equal(sampling.inverse_cdf(cold, torch.rand(50)), logits.argmax(-1))
    other = sampling.adjusted(probs(logits), 1.0, original, True)
    assert not torch.any(sampling.inverse_cdf(other, torch.rand(50)) == original)


BAD_PROBS = {
    "NaN": torch.full((4, 300), torch.nan),
    "infinite": torch.full((4, 300), torch.inf),
    "one NaN": torch.full((4, 300), 1 / 300).index_fill(1, torch.tensor(17), torch.nan),
    "one infinite": torch.full((4, 300), 1 / 300).index_fill(1, torch.tensor(17), torch.inf),
    "minus infinite": torch.full((4, 300), -torch.inf),
    "zero": torch.zeros(4, 300),
    "below 0": torch.full((4, 300), -1.0),
    "subnormal": torch.full((4, 300), 1e-45),
    "one subnormal": torch.zeros(4, 300).index_fill(1, torch.tensor(299), 1e-45),
}


@pytest.mark.parametrize("kind", BAD_PROBS)
@pytest.mark.parametrize("temperature", [1.0, 0.5, 1e-320])
@pytest.mark.parametrize("disallow_correct", [False, True])
def test_whatever_the_probs_the_sample_is_in_the_vocabulary(kind, temperature, disallow_correct):
    """An index outside of it crashes the process on a GPU, before the guard has seen the loss."""
    uniforms, original = torch.tensor([0.0, 1e-12, 0.5, 1.0]), torch.tensor([0, 17, 150, 299])
    given = sampling.adjusted(BAD_PROBS[kind], temperature, original, disallow_correct)
    for sampled in (
        sampling.inverse_cdf(given, uniforms),
        sampling.inverse_cdf(given, torch.full_like(uniforms, torch.nan)),
        sampling.gumbel_max(given, sampling.gumbel_noise(torch.rand(4, 300))),
    ):
        assert sampled.min() >= 0
        assert sampled.max() < 300


def test_a_token_of_probability_zero_is_never_drawn():
    edges = torch.tensor([0.0, 1e-38, 0.5, 1.0])
    for alone in (0, 255, 256, 299):
        one = torch.zeros(4, 300).index_fill(1, torch.tensor(alone), 1e-45)
        assert sampling.inverse_cdf(one, edges).tolist() == [alone] * 4


@pytest.mark.parametrize("vocabulary", [2, 20, 700])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0, 1e-320])
@pytest.mark.parametrize("certain", [10.0, 90.0, 1e4])
def test_the_original_is_never_drawn_where_it_is_not_allowed(vocabulary, temperature, certain):
    """From a logit of 104 on, all other probabilities are 0 in float32."""
    draw = torch.Generator().manual_seed(0)
    original = torch.randint(0, vocabulary, (500,), generator=draw)
    logits = torch.randn(500, vocabulary, generator=draw)
    logits.scatter_(1, original.unsqueeze(1), certain)
    others = sampling.adjusted(probs(logits), temperature, original, True)
    assert torch.isfinite(others).all()
    uniforms = torch.rand(500, generator=draw)
    uniforms[:2] = torch.tensor([0.0, 1.0])
    assert not (sampling.inverse_cdf(others, uniforms) == original).any()
    noise = sampling.gumbel_noise(torch.rand(500, vocabulary, generator=draw))
    assert not (sampling.gumbel_max(others, noise) == original).any()


def test_disallow_correct_gives_the_others_the_official_probs():
    torch.manual_seed(0)
    logits, original = torch.randn(50, 20), torch.randint(0, 20, (50,))
    official = logits - 1000 * nn.functional.one_hot(original, 20)
    for temperature in (0.5, 1.0, 2.0):
        ours = sampling.adjusted(probs(logits), temperature, original, True)
        torch.testing.assert_close(ours, torch.softmax(official / temperature, -1))


def test_a_model_of_nan_weights_gives_a_nan_loss():
    pair = build_pair(tiny_recipe("electra", width=0.5), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    inputs = tiny_inputs()
    loss, sums = model(inputs, inputs.totals())
    loss.backward()
    assert torch.isnan(loss)
    assert sums["tokens"] == inputs.attention_BL.sum()


def inputs_of(ids, positions, attention=None) -> Batch:
    ids = torch.tensor([ids])
    positions = torch.tensor([positions])
    attention = torch.ones_like(ids) if attention is None else torch.tensor([attention])
    weights = torch.ones(positions.shape)
    return Batch(ids, ids, attention, torch.zeros_like(ids), positions, weights, weights)


@pytest.mark.parametrize("name", ["scatter_update", "scatter_labels"])
def test_corruption_is_the_official_one(name):
    golden = GOLDEN[name]
    ids = golden.get("sequence", golden.get("original"))
    sampled = torch.tensor([golden.get("updates", golden.get("sampled"))])
    corrupted = rtd.corrupt(inputs_of(ids, golden["positions"]), sampled)
    assert corrupted.ids_BL[0].tolist() == golden["out"]
    if "rtd_labels" in golden:
        assert corrupted.labels_BL[0].tolist() == golden["rtd_labels"]


def test_repeated_positions_take_the_floor_of_the_mean_as_officially():
    golden = {name: torch.from_numpy(array).long() for name, array in REPEATS.items()}
    ids = golden["sequence"]
    weights = torch.ones(golden["positions"].shape)
    inputs = Batch(ids, ids, ids, ids, golden["positions"], weights, weights)
    corrupted = rtd.corrupt(inputs, golden["updates"])
    assert torch.equal(corrupted.ids_BL, golden["updated"])
    assert torch.equal(corrupted.labels_BL, golden["labels"])


token_ids = st.integers(0, 20)
slots = st.lists(st.tuples(st.integers(1, 11), token_ids), max_size=6, unique_by=lambda s: s[0])


@settings(max_examples=200)
@given(st.lists(token_ids, min_size=12, max_size=12), slots, st.integers(0, 3))
def test_labels_say_where_the_tokens_differ(ids, chosen, unused):
    """A token is original if not masked or sampled unchanged; at most one label per slot."""
    positions = [position for position, _ in chosen] + [0] * unused
    sampled = torch.tensor([[token for _, token in chosen] + [7] * unused], dtype=torch.long)
    found = rtd.corrupt(inputs_of(ids, positions), sampled.view(1, len(positions)))
    wanted = list(ids)
    for position, token in chosen:
        wanted[position] = token
    assert found.ids_BL[0].tolist() == wanted
    assert found.labels_BL[0].tolist() == [int(a != b) for a, b in zip(wanted, ids, strict=True)]
    assert found.labels_BL.sum() <= len(chosen)


class FixedLogits(nn.Module):
    """A network that returns these logits for any input."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits, self.base_model = logits, nn.Identity()
        self.config = SimpleNamespace(type_vocab_size=0, vocab_size=logits.shape[-1])

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(logits=self.logits)


def test_the_official_generator_loss():
    """Σ w · nll / (Σ w + 1e-6): unused slots have weight 0, rows with more slots count more."""
    golden = GOLDEN["mlm_loss_example"]
    losses = torch.tensor(golden["per_slot_nll"])
    weights = torch.tensor(golden["masked_lm_weights"]).float()
    logits = torch.stack([torch.zeros_like(losses), torch.log(torch.exp(losses) - 1)], dim=-1)
    ids = torch.zeros(2, 5, dtype=torch.long)  # token 0 everywhere; its loss is the golden one
    inputs = Batch(ids, ids, ids, ids, torch.tensor([[1, 2, 0], [3, 0, 0]]), weights, weights)
    model = MaskedLanguageModel(FixedLogits(logits.view(1, -1, 2)))
    loss, _ = model(inputs, inputs.totals())
    assert loss.item() == pytest.approx(golden["loss"], rel=1e-6)


def test_the_official_discriminator_loss():
    """The mean is over all real tokens of the batch, special ones too, not over per-row means."""
    golden = GOLDEN["disc_loss_example"]
    attention = torch.tensor(golden["input_mask"])
    ids = torch.ones(2, 4, dtype=torch.long)
    positions, weights = torch.tensor([[1, 0], [1, 3]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    inputs = Batch(ids, ids, attention, ids, positions, weights, weights / 2)
    always_two = torch.tensor([0.0, 0.0, 1e4]).expand(1, 4, 3)
    discriminator = FixedLogits(torch.tensor(golden["logits"]))
    model = ReplacedTokenDetection(FixedLogits(always_two), discriminator, Weights(0.0, 1.0))
    loss, sums = model(inputs, inputs.totals())
    assert loss.item() == pytest.approx(golden["loss"], rel=1e-6)
    assert (sums["tokens"], sums["replaced"]) == (6, 2)
    assert sum(golden["labels"][1]) == 2, "one of them is padding, and is not counted"


def test_the_generator_is_asked_once_and_with_dropout():
    """Loss and samples come from the same forward pass; there is no second one without dropout."""
    recipe = tiny_recipe("electra")
    fields = {**recipe.discriminator.config, "hidden_dropout_prob": 0.3}
    recipe = replace(recipe, discriminator=replace(recipe.discriminator, config=fields))
    pair = build_pair(recipe, VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).train()
    inputs, seen = tiny_inputs(), []
    pair.generator.register_forward_hook(lambda m, a, output: seen.append((m.training, output.logits)))  # fmt: skip
    with torch.no_grad():
        model(inputs, inputs.totals())
        model(inputs, inputs.totals())
    (first, one), (second, other) = seen
    assert first
    assert second
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("noise", [False, True])
def test_samples_are_drawn_and_losses_taken_in_float32_under_autocast(noise, monkeypatch):
    pair = build_pair(tiny_recipe("electra"), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).train()
    inputs, seen = tiny_inputs(), {}
    heads = {"generator": pair.generator, "discriminator": pair.discriminator}
    for name, network in heads.items():
        network.register_forward_hook(lambda m, a, o, name=name: seen.update({name: o.logits.dtype}))  # fmt: skip
    draw = sampling.inverse_cdf
    monkeypatch.setattr(sampling, "inverse_cdf", lambda t, u: seen.update(drawn=t.dtype) or draw(t, u))  # fmt: skip
    gumbel = torch.zeros(inputs.positions_BN.numel(), VOCABULARY.size) if noise else None
    with torch.autocast("cpu", torch.bfloat16):
        loss, sums = model(inputs, inputs.totals(), noise_MV=gumbel)
    loss.backward()
    assert seen["generator"] == seen["discriminator"] == torch.bfloat16
    assert noise or seen["drawn"] == torch.float32
    assert loss.dtype == sums["generator_loss"].dtype == sums["discriminator_loss"].dtype == torch.float32  # fmt: skip


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
            a = model(short, short.totals())[0]
            b = model(long, long.totals())[0]
        assert b.item() == pytest.approx(a.item(), rel=1e-4)


def test_detection_metrics_agree_with_scikit_learn():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 60, generator=draw)
    labels = (torch.rand(40, 60, generator=draw) < torch.sigmoid(logits - 1)).long()
    real = (torch.rand(40, 60, generator=draw) < 0.8).float()
    sums = rtd_metrics.detection_sums(logits, labels, real)
    area = rtd_metrics.area_under_curve(sums["replaced_bins"], sums["original_bins"])
    keep = real > 0
    assert area == pytest.approx(roc_auc_score(labels[keep], logits[keep]), abs=1e-3)
    predicted, true = (logits > 0)[keep], (labels > 0)[keep]
    all_sums = sums | {
        n: torch.tensor(1.0)
        for n in ("generator_loss", "discriminator_loss", "slots", "generator_correct")
    }
    rates = rtd_metrics.detection_metrics(all_sums)
    assert rates["recall"] == pytest.approx((predicted & true).sum().item() / true.sum().item())
    assert rates["precision"] == pytest.approx(
        (predicted & true).sum().item() / predicted.sum().item()
    )
    assert rates["accuracy"] == pytest.approx((predicted == true).float().mean().item())


def test_masked_lm_alone():
    model = MaskedLanguageModel(build_masked_lm(tiny_recipe("bert"), VOCABULARY)[0]).train()
    inputs = tiny_inputs()
    loss, sums = model(inputs, inputs.totals())
    loss.backward()
    assert loss.item() == pytest.approx(np.log(VOCABULARY.size), abs=0.5)
    assert set(model.metrics(sums)) == {"mlm_loss", "mlm_accuracy"}
