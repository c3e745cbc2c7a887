"""Read and restore the state of a model and its optimizer as named tensors.

The order of the data, the masks, the samples, dropout and the learning rate are functions of the
seed and the step, so the weights, the optimizer state and the step are all there is to save.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from electrify.errors import DamagedError
from electrify.training.optim import named_owners
from electrify.training.sharding import full_tensor, sharded_like

SEPARATOR = "|"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer; a tied one appears once, under its first name."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def weights_norm(model: nn.Module) -> float:
    """Return the joint norm of all weights, the same on every rank.

    It is finite only if every weight is; weights above 1e19 also make it infinite.
    """
    trained = {name for name, _ in model.named_parameters()}
    weights = [tensor for name, tensor in model_tensors(model).items() if name in trained]
    return float(full_tensor(torch.nn.utils.get_total_norm(weights)))


@torch.no_grad()
def load_model(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Restore the weights in place, so that tied weights stay tied."""
    wanted = model_tensors(model)
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise _mismatch(source, f"no {missing[0]}")
    if surplus := sorted(tensors.keys() - wanted.keys()):
        raise _mismatch(source, f"{surplus[0]}, which the model does not have")
    for name, tensor in wanted.items():
        if tensors[name].shape != tensor.shape:
            shapes = f"{tuple(tensors[name].shape)}, the model's is {tuple(tensor.shape)}"
            raise _mismatch(source, f"{name} of shape {shapes}")
    for name, tensor in wanted.items():
        tensor.copy_(sharded_like(tensors[name], tensor))


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer state of every parameter, as `parameter|moment`."""
    return {
        f"{name}{SEPARATOR}{moment}": torch.as_tensor(value).detach()
        for name, _, parameter in named_owners(model)
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], source: str
) -> None:
    """Restore the optimizer state."""
    owned = {name: parameter for name, _, parameter in named_owners(model)}
    fused = {p for group in optimizer.param_groups if group.get("fused") for p in group["params"]}
    optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, moment = key.rpartition(SEPARATOR)
        if name not in owned:
            raise _mismatch(source, f"optimizer state of {name}, which the model does not have")
        parameter = owned[name]
        if moment == "step":  # counters stay on the CPU, unless the optimizer is fused
            value = tensor.to(parameter.device if parameter in fused else "cpu", copy=True)
        else:
            if tensor.shape != parameter.shape:
                raise _mismatch(source, f"{key} of shape {tuple(tensor.shape)}")
            value = sharded_like(tensor.clone(), parameter)
        optimizer.state[parameter][moment] = value


def _mismatch(source: str, got: str) -> DamagedError:
    return DamagedError(
        f"{source} does not match this model",
        got=got,
        fix="resume with the recipe and the package versions that the run was started with",
    )
