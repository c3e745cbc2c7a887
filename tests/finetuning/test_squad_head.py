"""Both heads: losses and candidates against plain formulas, initial weights, gradients."""

import numpy as np
import pytest
import torch
from tests.finetuning.squad_files import question
from torch.nn.functional import gelu, log_softmax

from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.heads import Examples
from electrify.finetuning.squad.heads import HIDDEN, SPAN_HEADS
from electrify.finetuning.squad.windows import build_windows
from electrify.models.inputs import call
from electrify.training.layers import layer_scale


@pytest.fixture
def encoder(encoder_folder):
    return open_encoder(str(encoder_folder))


@pytest.fixture
def batch(encoder):
    """Return windows of two lengths; the last question has no answer."""
    questions = [
        question("kata loso mita nuso pedi rafu " * 4, "mita nuso", "a"),
        question("loso kata pedi", "pedi", "b", "mita"),
        question("loso kata pedi rafu", None, "c", "nuso"),
    ]
    return build_windows(encoder, questions, 64, 128, learn=True).collate(np.arange(3))


def end_scores(model, hidden_LH, start, allowed_L):
    """Return the end scores for one start: a layer on both vectors, gelu, a layer."""
    both = torch.stack([torch.cat([hidden_LH[start], token]) for token in hidden_LH])
    return model.end(gelu(model.end_hidden(both))).squeeze(-1) + 1000 * (allowed_L - 1)


def test_the_official_loss_is_the_sum_of_its_three_terms(encoder, batch):
    model = SPAN_HEADS["official"].build(encoder, 0).eval()
    loss, sums = model(batch, Examples(3))
    hidden_BLH = call(model.body, batch.ids_BL, batch)[0]
    expected = 0.0
    for row in range(3):
        hidden_LH, allowed_L = hidden_BLH[row], batch.allowed_BL[row]
        start_L = model.start(hidden_LH).squeeze(-1) + 1000 * (allowed_L - 1)
        start, end = int(batch.starts_B[row]), int(batch.ends_B[row])
        end_L = end_scores(model, hidden_LH, start, allowed_L)
        expected_H = (start_L.softmax(0).unsqueeze(1) * hidden_LH).sum(0)
        impossible = model.answerable(
            gelu(model.answerable_hidden(torch.cat([hidden_LH[0], expected_H])))
        )
        label = batch.impossible_B[row]
        binary = -(label * torch.sigmoid(impossible).log())
        binary -= (1 - label) * torch.sigmoid(-impossible).log()
        span_loss = -(log_softmax(start_L, 0)[start] + log_softmax(end_L, 0)[end]) / 2
        expected += float((span_loss + 0.5 * binary).detach())
    assert batch.impossible_B.tolist() == [0, 0, 1]
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert sums["loss"].item() == loss.item()


def test_official_candidates_are_the_best_ends_of_the_best_starts(encoder, batch):
    model = SPAN_HEADS["official"].build(encoder, 0).eval()
    candidates = model.logits(batch)[0].detach()
    hidden_LH = call(model.body, batch.ids_BL, batch)[0][0]
    allowed_L = batch.allowed_BL[0]
    start_L = model.start(hidden_LH).squeeze(-1) + 1000 * (allowed_L - 1)
    start, starts = log_softmax(start_L, 0), start_L.topk(20).indices.tolist()
    assert candidates.shape == (1 + 20 * 20, 4)
    assert candidates[1::20, 0].tolist() == starts
    for k in (0, 7, 19):
        end_L = log_softmax(end_scores(model, hidden_LH, starts[k], allowed_L), 0)
        best = end_L.topk(20)
        ends = candidates[1 + 20 * k : 21 + 20 * k]
        assert ends[:, 1].tolist() == best.indices.tolist()
        assert torch.allclose(ends[:, 3], best.values, atol=1e-4)
        assert torch.allclose(ends[:, 2], start[starts[k]].expand(20), atol=1e-4)


def test_the_official_head_is_initialized_glorot_uniform_by_its_seed(encoder):
    first, same, other = (SPAN_HEADS["official"].build(encoder, seed) for seed in (0, 0, 1))
    bound = (6 / (2 * 32 + HIDDEN)) ** 0.5
    assert 0.97 * bound < first.end_hidden.weight.abs().max() <= bound
    assert not first.end_hidden.bias.any()
    assert torch.equal(first.end_hidden.weight, same.end_hidden.weight)
    assert not torch.equal(first.end_hidden.weight, other.end_hidden.weight)


def test_the_simple_loss_matches_transformers(encoder, batch):
    model = SPAN_HEADS["simple"].build(encoder, 0).eval()
    loss, _ = model(batch, Examples(3))
    reference = model.network(
        input_ids=batch.ids_BL,
        attention_mask=batch.attention_BL,
        token_type_ids=batch.types_BL,
        start_positions=batch.starts_B,
        end_positions=batch.ends_B,
    )
    assert loss.item() == pytest.approx(reference.loss.item(), rel=1e-6)
    [candidates] = model.logits(batch._make(part[1:2] for part in batch)).detach()
    start_L, end_L = reference.start_logits[1].detach(), reference.end_logits[1].detach()
    assert candidates[0, 2:].tolist() == pytest.approx([float(start_L[0]), float(end_L[0])])
    allowed = candidates[1:][(candidates[1:, 2:] > -500).all(dim=1)]
    positions = set(batch.allowed_BL[1].nonzero().flatten().tolist())
    assert {int(position) for position in allowed[:, :2].flatten()} == positions
    for start, end, a, b in allowed.tolist():
        assert (a, b) == pytest.approx((float(start_L[int(start)]), float(end_L[int(end)])))


@pytest.mark.parametrize("name", SPAN_HEADS)
def test_every_parameter_learns_and_learning_rates_fall_with_depth(encoder, batch, name):
    model = SPAN_HEADS[name].build(encoder, 0)
    model(batch, Examples(3))[0].backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == []
    scale = layer_scale(model, 0.5, "intended")
    rates = {scale(parameter): parameter for parameter, _ in model.named_parameters()}
    assert set(rates) == {1.0, 0.5, 0.25, 0.125}  # the head, two layers, the embeddings


def test_a_model_with_three_labels_gets_a_start_and_an_end(encoder_folder, tmp_path):
    import json
    import shutil

    folder = shutil.copytree(encoder_folder, tmp_path / "three")
    config = json.loads((folder / "config.json").read_text())
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}
    (folder / "config.json").write_text(json.dumps(config | labels))
    model = SPAN_HEADS["simple"].build(open_encoder(str(folder)), 0)
    assert model.network.qa_outputs.out_features == 2
