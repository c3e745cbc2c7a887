"""Optimizers and their parameter groups.

`ElectraAdam` is the official Adam: no bias correction, ε outside the square root, decoupled weight
decay. Its first step changes every weight by 3.16 times the learning rate; the official schedule
starts at 0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from electrify.recipes.schema import Optimizer
from electrify.training.muon import StackedMuon
from electrify.training.sharding import full_tensor


class _MomentOptimizer(torch.optim.Optimizer):
    """An optimizer that keeps the first and second moment of every gradient, as AdamW does."""

    def __init__(
        self,
        params: Any,
        lr: float = 5e-4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = closure() if closure else None
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            for param in params:
                if not self.state[param]:
                    self.state[param] = {
                        "step": torch.tensor(0.0),
                        "exp_avg": torch.zeros_like(param),
                        "exp_avg_sq": torch.zeros_like(param),
                    }
            if params:
                self._update(params, group)
        return loss

    def _update(self, params: list[Tensor], group: Mapping[str, Any]) -> None:
        raise NotImplementedError


class ElectraAdam(_MomentOptimizer):
    """Adam as in google-research/electra model/optimization.py.

    It is AdamW without bias correction, which is AdamW after infinitely many steps, so torch's
    fused kernel can be used.
    """

    def _update(self, params: list[Tensor], group: Mapping[str, Any]) -> None:
        states = [self.state[param] for param in params]
        torch._foreach_add_([state["step"] for state in states], 1.0)
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            params,
            [param.grad for param in params],  # type: ignore[misc]
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [infinite_steps(param.device) for param in params],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


@cache
def infinite_steps(device: torch.device) -> Tensor:
    """Return a number of steps n large enough that beta ** n is 0."""
    return torch.tensor(1e9, device=device)


class Lamb(_MomentOptimizer):
    """LAMB (You et al. 2020): Adam's direction, scaled to the norm of the weights."""

    def _update(self, params: list[Tensor], group: Mapping[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        grads: list[Any] = [param.grad for param in params]
        means = [self.state[param]["exp_avg"] for param in params]
        squares = [self.state[param]["exp_avg_sq"] for param in params]
        torch._foreach_add_([self.state[param]["step"] for param in params], 1.0)
        torch._foreach_mul_(means, beta1)
        torch._foreach_add_(means, grads, alpha=1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - beta2)
        for param, mean, square in zip(params, means, squares, strict=True):
            count = float(self.state[param]["step"])
            direction = mean / (1 - beta1**count)
            direction /= (square / (1 - beta2**count)).sqrt() + group["eps"]
            direction += group["weight_decay"] * param
            weight, length = param.norm(), direction.norm()
            trust = torch.where((weight > 0) & (length > 0), weight / length, 1.0)
            param.add_(direction * trust, alpha=-group["lr"])


class MuonAndAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for the matrices of the encoders, AdamW for everything else.

    Two optimizers that share one state and act as one. Muon's update has the size of AdamW's, so
    both use the same learning rate.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        matrices: set[int],
        betas: tuple[float, float],
        eps: float,
        muon_dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        muon: list[dict[str, Any]] = []
        adamw: list[dict[str, Any]] = []
        for group in groups:
            for kind, is_matrix in ((muon, True), (adamw, False)):
                chosen = [
                    (name, parameter)
                    for name, parameter in zip(group["names"], group["params"], strict=True)
                    if (id(parameter) in matrices) == is_matrix
                ]
                if chosen:
                    names, params = zip(*chosen, strict=True)
                    kind.append({**group, "names": list(names), "params": list(params)})
        self.parts: list[torch.optim.Optimizer] = []
        if muon:
            self.parts.append(StackedMuon(muon, muon_dtype))
        if adamw:
            self.parts.append(torch.optim.AdamW(adamw, betas=betas, eps=eps, fused=True))
        super().__init__([group for part in self.parts for group in part.param_groups], {})
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        for part in self.parts:
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = closure() if closure else None
        for part in self.parts:
            part.step()
        return loss


def build_optimizer(
    model: nn.Module,
    settings: Optimizer,
    scale: Callable[[str], float] = lambda name: 1.0,
    muon_dtype: torch.dtype = torch.bfloat16,
) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe for every trainable parameter of a model."""
    groups = parameter_groups(model, settings.lr, settings.weight_decay, scale)
    betas = (settings.beta1, settings.beta2)
    if settings.kind == "muon":
        return MuonAndAdamW(groups, encoder_matrices(model), betas, settings.eps, muon_dtype)
    if settings.kind == "adamw":
        return torch.optim.AdamW(groups, betas=betas, eps=settings.eps, fused=True)
    kind = {"electra-adam": ElectraAdam, "lamb": Lamb}[settings.kind]
    return kind(groups, betas=betas, eps=settings.eps)


def encoder_matrices(model: nn.Module) -> set[int]:
    """Return the ids of the weights for Muon: linear layers except embeddings and output layers."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    return {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Linear)
        and module.weight.requires_grad
        and id(module.weight) not in embeddings
        and min(module.weight.shape) > OUTPUT_LAYER_SIZE
    }


OUTPUT_LAYER_SIZE = 2  # original or replaced


def is_norm(module: nn.Module) -> bool:
    """Return whether a module is a norm layer, by its type: names differ between architectures."""
    return isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module).__name__.endswith("Norm")


def named_owners(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Yield every trainable parameter once, with its first name and the module that owns it."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}.{name}" if prefix else name, module, parameter


def decays(module: nn.Module, parameter: nn.Parameter) -> bool:
    """Return whether weight decay applies: not to biases and the parameters of norm layers."""
    return parameter.ndim > 1 and not is_norm(module)


def parameter_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    scale: Callable[[str], float] = lambda name: 1.0,
) -> list[dict[str, Any]]:
    """Group parameters by weight decay and by learning rate, which is `lr * scale(name)`."""
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, module, parameter in named_owners(model):
        factor, decay = scale(name), weight_decay if decays(module, parameter) else 0.0
        group = groups.setdefault(
            (factor, decay),
            {"params": [], "names": [], "scale": factor, "lr": lr * factor, "weight_decay": decay},
        )
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group, times the scale of the group."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("scale", 1.0)


def clip(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scale all gradients so that their joint norm is at most `max_norm`; returns the norm before.

    A `max_norm` of 0 disables clipping.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if max_norm > 0:
        # As in TensorFlow: no ε in the quotient, so small gradients are left exactly as they are.
        factor = max_norm / torch.clamp(norm, min=max_norm)
        torch._foreach_mul_(gradients, factor)
    return full_tensor(norm)
