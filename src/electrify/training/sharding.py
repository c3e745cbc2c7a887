"""Shard weights, gradients and optimizer state over ranks (FSDP), for models too large for one.

Each layer is gathered when it is needed and freed again. Parameters with more than one owner, such
as the embeddings shared by generator and discriminator, stay in one group at the root, where they
are sharded once and gathered once, so tied weights stay tied as in a single process.
"""

import warnings
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from electrify.errors import UserError


def check_can_shard(optimizer: str, precision: str, compiled: bool, processes: int) -> None:
    """Raise an error if a run cannot be sharded, with what to change."""
    muon_fix = "use --optimizer.kind adamw"
    fp16_fix = "use --run.precision bf16"
    torchrun = "start it with torchrun --nproc-per-node 2 -m electrify pretrain …"
    for applies, why, fix in (
        (optimizer == "muon", "Muon needs complete matrices", muon_fix),
        (precision == "fp16", "fp16 does not support sharded weights", fp16_fix),
        (compiled, "compiled networks cannot be sharded", "remove --compile"),
        (processes == 1, "there is only one process", torchrun),
    ):
        if applies:
            raise UserError(
                f"--shard cannot be used: {why}", got="--shard", fix=f"{fix}, or remove --shard"
            )


def shard(model: nn.Module, device: torch.device) -> None:
    """Shard a model's parameters over all ranks, in place."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    # The warning is about in-place changes of outputs, which transformers' layers do not make.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    for layer in layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost entries of module lists that share no parameter with other modules."""
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
            parameters = list(layer.parameters())
            if parameters and all(owners[id(parameter)] == 1 for parameter in parameters):
                inside.update(map(id, layer.modules()))
                yield layer


def full_tensor(tensor: Tensor) -> Tensor:
    """Gather a tensor if it is sharded; every rank has to call this."""
    gather = getattr(tensor, "full_tensor", None)
    return gather() if gather is not None else tensor


def sharded_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Move a full tensor to the device of another one, and shard it in the same way."""
    tensor = tensor.to(like.device)
    if not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    # Every rank has read the same file, so nothing has to be sent.
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
