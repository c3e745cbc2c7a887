"""Muon (Jordan et al. 2024), batched over matrices of one shape, in the fastest precision.

torch.optim.Muon updates one matrix after the other with thirty small operations each, always in
bfloat16: for narrow encoders on a CPU that was a fifth of a step, and three quarters on CPUs
without bfloat16. Batched, the same operations give the same result up to rounding.
"""

# K matrices of a shape, M × N

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MAX_STACK_ELEMENTS = 1 << 22
"""Matrices large enough to keep a CPU busy gain nothing from stacking, and it needs memory."""


class StackedMuon(torch.optim.Muon):
    """`torch.optim.Muon` with updates of AdamW's size, in fewer and larger operations."""

    def __init__(self, params: Any, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw")
        self.dtype = dtype
        """The dtype of the Newton-Schulz iteration, whose result is approximate in any dtype."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        loss = closure() if closure else None
        for group in self.param_groups:
            for stack in stacks([matrix for matrix in group["params"] if matrix.grad is not None]):
                self._update(stack, group)
        return loss

    def _update(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        grads = [matrix.grad for matrix in matrices if matrix.grad is not None]
        momenta = [self._momentum(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        nesterov_KMN = torch.stack(grads).lerp(torch.stack(momenta), group["momentum"])
        updates_KMN = orthogonal(
            nesterov_KMN.to(self.dtype), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        adamw_scale = 0.2 * max(matrices[0].shape) ** 0.5  # Liu et al. 2025, arXiv:2502.16982
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        updates = updates_KMN.to(nesterov_KMN.dtype).unbind()
        torch._foreach_add_(matrices, updates, alpha=-group["lr"] * adamw_scale)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def stacks(matrices: Sequence[Tensor]) -> list[list[Tensor]]:
    """Group matrices by shape, into stacks of limited size.

    >>> matrices = [torch.zeros(shape) for shape in ((2, 3), (4, 4), (2, 3))]
    >>> [[tuple(matrix.shape) for matrix in stack] for stack in stacks(matrices)]
    [[(2, 3), (2, 3)], [(4, 4)]]
    """
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for matrix in matrices:
        by_shape.setdefault(matrix.shape, []).append(matrix)
    groups = []
    for shape, same_shape in by_shape.items():
        size = max(1, MAX_STACK_ELEMENTS // shape.numel())
        groups += [same_shape[begin : begin + size] for begin in range(0, len(same_shape), size)]
    return groups


def orthogonal(
    matrices_KMN: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Return the nearest matrices with all singular values near 1, by Newton-Schulz iteration.

    Each step is X ← (aI + bG + cG²) X with G = X Xᵀ. For wide float32 matrices only G, which is
    smaller, is iterated with the same polynomials, and their product is applied to X at the end.
    """
    tall = matrices_KMN.shape[1] > matrices_KMN.shape[2]
    x = matrices_KMN.mT if tall else matrices_KMN
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    wide = x.shape[2] >= WIDE * x.shape[1] and x.dtype == torch.float32
    x = (_iterate_gram if wide else _iterate)(x, coefficients, steps)
    return x.mT if tall else x


WIDE = 1.5  # at this aspect ratio iterating G takes fewer FLOPs, for five steps


def _iterate(x_KMN: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    a, b, c = coefficients
    for _ in range(steps):
        gram_KMM = torch.bmm(x_KMN, x_KMN.mT)
        change_KMM = torch.baddbmm(gram_KMM, gram_KMM, gram_KMM, beta=b, alpha=c)
        x_KMN = torch.baddbmm(x_KMN, change_KMM, x_KMN, beta=a)
    return x_KMN


def _iterate_gram(x_KMN: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    gram_KMM = torch.bmm(x_KMN, x_KMN.mT)
    product_KMM = factor_KMM = _polynomial(gram_KMM, coefficients)
    for _ in range(steps - 1):  # polynomials of G commute with it
        gram_KMM = torch.bmm(torch.bmm(factor_KMM, gram_KMM), factor_KMM)
        factor_KMM = _polynomial(gram_KMM, coefficients)
        product_KMM = torch.bmm(factor_KMM, product_KMM)
    return torch.bmm(product_KMM, x_KMN)


def _polynomial(gram_KMM: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    """Return aI + bG + cG²."""
    a, b, c = coefficients
    result_KMM = torch.baddbmm(gram_KMM, gram_KMM, gram_KMM, beta=b, alpha=c)
    result_KMM.diagonal(dim1=1, dim2=2).add_(a)
    return result_KMM
