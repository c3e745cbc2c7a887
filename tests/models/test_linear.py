"""Linear layers in oneDNN have the outputs and gradients of torch's, and fall back to them."""

import copy

import pytest
import torch
from torch import nn

from electrify.models import fast, linear
from electrify.models.linear import OneDnnLinear, use_onednn

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"
)


def pair(inputs: int, outputs: int, bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    plain = nn.Linear(inputs, outputs, bias=bias)
    quick = copy.deepcopy(plain)
    use_onednn(quick)
    return plain, quick


def results(layer: nn.Linear, values: torch.Tensor, weighed: bool) -> list[torch.Tensor]:
    values = values.clone().requires_grad_()
    output = layer(values)
    # The gradient of a sum is one number that is expanded, without memory of its own.
    (output * torch.linspace(-1, 1, output.shape[-1]) if weighed else output).sum().backward()
    return [output.detach(), values.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("outputs", [1, 2, 64, 300])
@pytest.mark.parametrize("weighed", [True, False])
def test_outputs_and_gradients_are_those_of_torch(outputs, weighed):
    values = torch.randn(8, 128, 96)
    for layers in (pair(96, outputs), pair(96, outputs, bias=False)):
        for found, expected in zip(*(results(m, values, weighed) for m in layers), strict=True):
            assert found.shape == expected.shape
            assert found.stride() == expected.stride()
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_transposed_inputs_and_frozen_weights():
    plain, quick = pair(96, 64)
    values = torch.randn(96, 1024, requires_grad=True)
    torch.testing.assert_close(quick(values.t()), plain(values.t()), rtol=1e-4, atol=1e-5)
    quick.requires_grad_(False)
    quick(values.t()).sum().backward()
    assert values.grad is not None
    assert quick.weight.grad is None


def test_other_precisions_and_small_inputs_stay_in_torch(monkeypatch):
    monkeypatch.setattr(linear.LinearFunction, "apply", None)
    _, quick = pair(96, 64)
    assert quick(torch.randn(4, 96)).shape == (4, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert quick(torch.randn(1024, 96)).dtype == torch.bfloat16
    assert quick.double()(torch.randn(1024, 96).double()).dtype == torch.float64


@pytest.mark.parametrize("faster", [True, False])
def test_the_fast_path_changes_plain_linear_layers_in_place(monkeypatch, faster):
    class OtherLinear(nn.Linear):
        pass

    monkeypatch.setattr(fast, "onednn_is_faster", lambda: faster)
    network = nn.Sequential(nn.Linear(2, 2), OtherLinear(2, 2))
    network.config = type("C", (), {"_attn_implementation": "eager"})()
    layers, names = list(network), list(network.state_dict())
    fast.enable_fast_path(network)
    assert list(network) == layers
    assert list(network.state_dict()) == names
    assert [type(layer) for layer in network] == [
        OneDnnLinear if faster else nn.Linear,
        OtherLinear,
    ]
