"""What a run must remember, as named tensors and plain values, and how it is put back.

The order of the data, the masks, the samples, dropout and the learning rate are functions of the
seed and the step; so weights, the optimizer's memory and one integer are all there is.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from electrify.errors import DamagedError
from electrify.training.optim import named_owners
from electrify.training.sharding import full_tensor, sharded_like

SEPARATOR = "|"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer once, by its first name; a shared one has one name."""
    seen: set[int] = set()
    found = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def weights_norm(model: nn.Module) -> float:
    """The norm of all weights together, the same on every process.

    It is finite only if every weight is. Of weights above 1e19 it is infinite, which is as bad.
    """
    trained = {name for name, _ in model.named_parameters()}
    weights = [tensor for name, tensor in model_tensors(model).items() if name in trained]
    return float(full_tensor(torch.nn.utils.get_total_norm(weights)))


@torch.no_grad()
def load_model(model: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Put the weights back, in place, so that whatever is shared stays shared."""
    wanted = model_tensors(model)
    _check_same(wanted, tensors, source)
    for name, tensor in wanted.items():
        tensor.copy_(sharded_like(tensors[name], tensor))


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimizer keeps of every parameter, as `parameter|moment`."""
    return {
        f"{name}{SEPARATOR}{moment}": torch.as_tensor(value).detach()
        for name, _, parameter in named_owners(model)
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], source: str
) -> None:
    """Give the optimizer back what it kept."""
    owned = {name: parameter for name, _, parameter in named_owners(model)}
    fused = {p for group in optimizer.param_groups if group.get("fused") for p in group["params"]}
    optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, moment = key.rpartition(SEPARATOR)
        if name not in owned:
            raise _unlike(source, f"a moment of {name}, which the model has not")
        parameter = owned[name]
        if moment == "step":  # counters stay on the processor, unless the update is fused
            value = tensor.to(parameter.device if parameter in fused else "cpu", copy=True)
        else:
            if tensor.shape != parameter.shape:
                raise _unlike(source, f"{key} of shape {tuple(tensor.shape)}")
            value = sharded_like(tensor.clone(), parameter)
        optimizer.state[parameter][moment] = value


def _check_same(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], source: str) -> None:
    if missing := sorted(wanted.keys() - found.keys()):
        raise _unlike(source, f"no {missing[0]}")
    if surplus := sorted(found.keys() - wanted.keys()):
        raise _unlike(source, f"{surplus[0]}, which the model has not")
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            shapes = f"{tuple(found[name].shape)}, the model's is {tuple(tensor.shape)}"
            raise _unlike(source, f"{name} of shape {shapes}")


def _unlike(source: str, got: str) -> DamagedError:
    return DamagedError(
        f"{source} is not a state of this model",
        got=got,
        fix="go on with the recipe and the versions that the run was begun with",
    )
