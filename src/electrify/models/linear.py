"""Linear layers whose float32 matmuls run in oneDNN, on AMD's CPUs.

torch computes float32 matmuls on x86 with Intel's MKL, which keeps its fastest kernels for Intel's
CPUs. oneDNN comes with torch too and looks at the instruction set only: on an AMD EPYC it computes
outputs and input gradients 1.1 to 1.4 times as fast, with AVX-512 and with AVX2. For the gradients
of the weights, MKL is as fast or faster.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

FEWEST_INPUTS = 1 << 16
"""Numbers in the input below which oneDNN's fixed cost, about 20 microseconds, is not worth it."""


@cache
def onednn_is_faster() -> bool:
    """Return whether oneDNN is the faster library here: by the vendor, so it is always the same."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    cpus = Path("/proc/cpuinfo")
    return cpus.exists() and "AuthenticAMD" in cpus.read_text()


def use_onednn(layer: nn.Linear) -> None:
    """Make a linear layer use oneDNN; it stays the same object with the same parameters."""
    layer.__class__ = OneDnnLinear


class LinearFunction(torch.autograd.Function):
    """input · weightᵀ + bias."""

    @staticmethod
    def forward(ctx, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[no-untyped-def]
        """Compute the output in oneDNN."""
        ctx.save_for_backward(input, weight)
        return _times_transposed(input, weight, bias)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        """Compute the gradient of the input in oneDNN, those of weight and bias as torch does."""
        input, weight = ctx.saved_tensors
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad
        gradient = gradient.contiguous()
        rows = gradient.flatten(0, -2)
        return (
            _times_transposed(gradient, weight.t(), None) if needs_input else None,
            rows.t().mm(input.flatten(0, -2)) if needs_weight else None,
            rows.sum(dim=0) if needs_bias else None,
        )


def _times_transposed(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    output: Tensor = torch.ops.mkldnn._linear_pointwise(input, weight, bias, "none", [], "")
    return output


class OneDnnLinear(nn.Linear):
    """`nn.Linear` that uses oneDNN in float32 on a CPU; elsewhere it is unchanged."""

    def forward(self, input: Tensor) -> Tensor:
        """Apply the layer."""
        plain = (
            input.device.type != "cpu"
            or not input.dtype == self.weight.dtype == torch.float32
            or torch.is_autocast_enabled("cpu")
            or input.ndim < 2
            or input.numel() < FEWEST_INPUTS
            or torch.compiler.is_compiling()
        )
        if plain:
            return super().forward(input)
        return LinearFunction.apply(input, self.weight, self.bias)  # type: ignore[no-any-return,no-untyped-call]
