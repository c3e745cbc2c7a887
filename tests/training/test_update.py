"""One update: micro-batches add up, one joint norm is clipped, every group gets its rate."""

import pytest
import torch
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe
from tests.one_update import update

from electrify.batches.batch import Batch
from electrify.models.pair import build_pair
from electrify.objectives.rtd import ReplacedTokenDetection, Weights
from electrify.training.optim import ElectraAdam, parameter_groups


def uneven() -> Batch:
    """Return eight rows of different lengths and with different numbers of slots."""
    inputs = tiny_inputs(rows=8, padding=9)
    weights = inputs.weights_BN.clone()
    weights[3, 1:] = 0
    return inputs._replace(weights_BN=weights, positions_BN=inputs.positions_BN * weights.long())


def started() -> tuple[ReplacedTokenDetection, ElectraAdam]:
    pair = build_pair(tiny_recipe("electra", width=0.5), VOCABULARY)
    model = ReplacedTokenDetection(pair.generator, pair.discriminator, Weights()).eval()
    return model, ElectraAdam(parameter_groups(model, 1e-3, 0.01))


def split(inputs: Batch, size: int) -> list[Batch]:
    rows = len(inputs.ids_BL)
    return [inputs.rows(i, i + size) for i in range(0, rows, size)]


def copies(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_micro_batches_add_up_to_the_batch(size):
    """They give the same loss, norm, weights and metrics as eight rows at once."""
    inputs = uneven()
    found = []
    for rows in (8, size):
        model, adam = started()
        done = update(model, adam, split(inputs, rows), inputs.totals(), 1e-3, 1.0)
        found.append((done, copies(model)))
    (full, full_weights), (split_up, split_weights) = found
    assert split_up.loss == pytest.approx(full.loss, rel=1e-6)
    assert split_up.norm == pytest.approx(full.norm, rel=1e-6)
    torch.testing.assert_close(full_weights, split_weights, rtol=0, atol=1e-6)
    assert model.metrics(split_up.sums) == pytest.approx(model.metrics(full.sums), rel=1e-6)


def test_the_mean_of_micro_batches_own_means_is_another_loss():
    """This is why totals are needed: rows have different numbers of slots and tokens."""
    inputs = uneven()
    model, _ = started()
    with torch.no_grad():
        loss = model(inputs, inputs.totals())[0].item()
        means = [model(part, part.totals())[0].item() for part in split(inputs, 2)]
    assert abs(sum(means) / len(means) / loss - 1) > 2e-5, "well above the tolerance of 1e-6"


def test_both_networks_are_clipped_by_one_factor():
    inputs = uneven()
    gradients = []
    for max_norm in (0.0, 1.0):
        model, adam = started()
        done = update(model, adam, [inputs], inputs.totals(), 1e-3, max_norm)
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert done.norm > 2, "or nothing would be clipped"
    assert torch.nn.utils.get_total_norm(gradients[0]).item() == pytest.approx(done.norm, rel=1e-6)
    assert torch.nn.utils.get_total_norm(gradients[1]).item() == pytest.approx(1.0, rel=1e-6)
    for free, clipped in zip(*gradients, strict=True):
        torch.testing.assert_close(clipped, free / done.norm)


def test_at_rate_zero_the_weights_stay_and_the_moments_move():
    """This is the first update of the official schedule; its gradients do not add to the second."""
    inputs = uneven()
    model, adam = started()
    before = copies(model)
    first = update(model, adam, [inputs], inputs.totals(), 0.0, 1.0)
    assert all(map(torch.equal, before, copies(model)))
    assert all(adam.state[p]["exp_avg_sq"].sum() > 0 for p in model.parameters() if p.grad.any())
    second = update(model, adam, [inputs], inputs.totals(), 0.0, 1.0)
    assert (second.loss, second.norm) == (first.loss, first.norm)


def test_every_group_gets_its_scaled_learning_rate():
    inputs = uneven()
    model, _ = started()
    groups = parameter_groups(model, 1.0, 0.01, lambda name: 0.5 if "encoder" in name else 1.0)
    adam = ElectraAdam(groups)
    update(model, adam, [inputs], inputs.totals(), 3e-4, 1.0)
    assert {group["scale"]: group["lr"] for group in adam.param_groups} == {0.5: 1.5e-4, 1.0: 3e-4}
