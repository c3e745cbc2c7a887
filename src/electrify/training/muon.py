"""Muon (Jordan et al. 2024), matrices of one shape at a time, in the machine's fastest precision.

torch's takes one matrix after the other, thirty small operations for each, always in bfloat16: for
narrow encoders on a CPU that was a fifth of a step, and three quarters where the CPU has no
bfloat16. Stacked, the same operations give the same to rounding.
"""

# K matrices of a shape, M × N

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

MOST_NUMBERS = 1 << 22
"""Of a stack: matrices large enough to keep a processor busy gain nothing, and need memory."""


class StackedMuon(torch.optim.Muon):
    """`torch.optim.Muon` with steps of AdamW's size, by fewer and larger operations."""

    def __init__(self, params: Any, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(params, adjust_lr_fn="match_rms_adamw")
        self.dtype = dtype
        """Of the Newton-Schulz iteration; its result is rough in any precision."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        loss = closure() if closure else None
        for group in self.param_groups:
            for stack in stacks([one for one in group["params"] if one.grad is not None]):
                self._update(stack, group)
        return loss

    def _update(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        gradients = [one.grad for one in matrices if one.grad is not None]
        momenta = [self._momentum(one) for one in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead_KMN = torch.stack(gradients).lerp(torch.stack(momenta), group["momentum"])
        steps_KMN = orthogonal(
            ahead_KMN.to(self.dtype), group["ns_coefficients"], group["ns_steps"], group["eps"]
        )
        as_adamw = 0.2 * max(matrices[0].shape) ** 0.5  # Liu et al. 2025, arXiv:2502.16982
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        steps = steps_KMN.to(ahead_KMN.dtype).unbind()
        torch._foreach_add_(matrices, steps, alpha=-group["lr"] * as_adamw)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        momentum: Tensor = state["momentum_buffer"]
        return momentum


def stacks(matrices: Sequence[Tensor]) -> list[list[Tensor]]:
    """Matrices of like shape together, not too many at once.

    >>> some = [torch.zeros(shape) for shape in ((2, 3), (4, 4), (2, 3))]
    >>> [[tuple(one.shape) for one in stack] for stack in stacks(some)]
    [[(2, 3), (2, 3)], [(4, 4)]]
    """
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for one in matrices:
        by_shape.setdefault(one.shape, []).append(one)
    found = []
    for shape, alike in by_shape.items():
        most = max(1, MOST_NUMBERS // shape.numel())
        found += [alike[begin : begin + most] for begin in range(0, len(alike), most)]
    return found


def orthogonal(
    matrices_KMN: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """The nearest matrices with all singular values near 1, by Newton-Schulz iteration.

    Each step is X ← (aI + bG + cG²) X with G = X Xᵀ. In float32, wide matrices are left alone until
    the end: G, which is smaller, follows the same polynomials, and their product is applied once.
    """
    tall = matrices_KMN.shape[1] > matrices_KMN.shape[2]
    found = matrices_KMN.mT if tall else matrices_KMN
    found = found / found.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    wide = found.shape[2] >= WIDE * found.shape[1] and found.dtype == torch.float32
    found = (_by_gram if wide else _directly)(found, coefficients, steps)
    return found.mT if tall else found


WIDE = 1.5  # from here on the iteration on G takes fewer FLOPs, for five steps


def _directly(found_KMN: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    a, b, c = coefficients
    for _ in range(steps):
        gram_KMM = torch.bmm(found_KMN, found_KMN.mT)
        change_KMM = torch.baddbmm(gram_KMM, gram_KMM, gram_KMM, beta=b, alpha=c)
        found_KMN = torch.baddbmm(found_KMN, change_KMM, found_KMN, beta=a)
    return found_KMN


def _by_gram(found_KMN: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    gram_KMM = torch.bmm(found_KMN, found_KMN.mT)
    product_KMM = factor_KMM = _polynomial(gram_KMM, coefficients)
    for _ in range(steps - 1):  # polynomials of G commute with it
        gram_KMM = torch.bmm(torch.bmm(factor_KMM, gram_KMM), factor_KMM)
        factor_KMM = _polynomial(gram_KMM, coefficients)
        product_KMM = torch.bmm(factor_KMM, product_KMM)
    return torch.bmm(product_KMM, found_KMN)


def _polynomial(gram_KMM: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    """Return aI + bG + cG²."""
    a, b, c = coefficients
    found_KMM = torch.baddbmm(gram_KMM, gram_KMM, gram_KMM, beta=b, alpha=c)
    found_KMM.diagonal(dim1=1, dim2=2).add_(a)
    return found_KMM
