"""Weights, gradients and moments dealt out over processes (FSDP), for models too large for one.

Each layer is gathered when it is needed and let go of again. Everything that two places share,
such as the tables of generator and discriminator, stays in one group at the root, where a shared
table is dealt out once and gathered once; so ties hold as they do in one process.
"""

import warnings
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from electrify.errors import UserError


def check_can_shard(optimizer: str, precision: str, compiled: bool, processes: int) -> None:
    """Raise if a run cannot be dealt out, with the way out."""
    refused = {
        "Muon's steps need whole matrices": (
            optimizer == "muon",
            "--optimizer.kind adamw, or leave out --shard",
        ),
        "float16's scale is not kept for weights that are dealt out": (
            precision == "fp16",
            "--run.precision bf16, or leave out --shard",
        ),
        "compiled networks are not dealt out": (compiled, "leave out --compile or --shard"),
        "one process has nobody to share the weights with": (
            processes == 1,
            "torchrun --nproc-per-node 2 -m electrify pretrain …, or leave out --shard",
        ),
    }
    for what, (is_so, fix) in refused.items():
        if is_so:
            raise UserError(f"--shard cannot be used: {what}", got="--shard", fix=fix)


def shard(model: nn.Module, device: torch.device) -> None:
    """Deal out a model's parameters over all processes, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    # Layers of transformers add to nothing in place, which is what the warning is about.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def layers(model: nn.Module) -> Iterator[nn.Module]:
    """The outermost entries of lists of modules, if all their parameters are theirs alone."""
    owners = Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside or not isinstance(module, nn.ModuleList):
            continue
        for layer in module:
            alone = all(owners[id(parameter)] == 1 for parameter in layer.parameters())
            if alone and any(True for _ in layer.parameters()):
                inside.update(map(id, layer.modules()))
                yield layer


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor with all its parts; every process has to ask."""
    gather = getattr(tensor, "full_tensor", None)
    return gather() if gather is not None else tensor


def sharded_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, on the device of another one and dealt out as that one is."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # Every process has read the same file: nothing has to be sent.
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
