"""Check that all ranks have the same weights.

Every rank applies the same update to its own copy of the weights. Nothing else would show that a
copy has changed, by a fault in the memory of a device or by code that differs between ranks: the
losses only get worse. Sharded weights (FSDP) have no copies to compare.
"""

# R ranks, K parameters

from collections import Counter

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from electrify.errors import GuardError
from electrify.training.engine import Engine


def check_replicas(engine: Engine, model: nn.Module) -> None:
    """Raise an error on every rank if the weights of any two differ in a single bit."""
    if engine.world == 1 or isinstance(model, FSDPModule):
        return
    sums_RK = [tuple(row) for row in engine.gather(bit_sums(model)).tolist()]
    [(common_K, count), *others] = Counter(sums_RK).most_common()
    if not others:
        return
    ranks = [f"{rank}" for rank, sums_K in enumerate(sums_RK) if sums_K != common_K]
    names = [name for name, _ in model.named_parameters()]
    differing = [
        name
        for name, sums_R in zip(names, zip(*sums_RK, strict=True), strict=True)
        if len(set(sums_R)) > 1
    ]
    which = f"rank {ranks[0]} differs" if len(ranks) == 1 else f"ranks {', '.join(ranks)} differ"
    from_rank = f"rank {sums_RK.index(common_K)}" if count == 1 else f"{count} equal ranks"
    raise GuardError(
        "the weights are no longer the same on all ranks",
        got=f"{which} from {from_rank} in {len(differing):,} of {len(names):,} parameters, such as "
        f"{differing[0]}",
        fix="nothing was saved, and the last good checkpoint is kept: run the same command to "
        f"resume from it; if it happens again, test the device of rank {ranks[0]}",
    )


def bit_sums(model: nn.Module) -> Tensor:
    """Return the sum of the bits of each parameter, as integers: exact in any order."""
    bits = [parameter.detach().view(torch.int32) for parameter in model.parameters()]
    # In 32 bits, which may overflow, torch needs no copy of the parameter in 64 bits.
    return torch.stack([each.sum(dtype=torch.int32) for each in bits])
