"""Trace the peak memory of an update of a recipe; prints bytes with each limit for the logits."""

from tests.gpu.trace import CUDA, Trace, cuda_engine, moved, pretended_cuda  # noqa: I001

import json
import sys
import weakref
from dataclasses import replace

import numpy as np
import torch

from electrify.batches.batch import Batch
from electrify.models.pair import Vocabulary
from electrify.objectives import masked_lm
from electrify.objectives.objective import build_objective
from electrify.recipes.schema import load
from electrify.training.data import to_device
from electrify.training.optim import build_optimizer
from electrify.training.update import accumulate, apply_update

VOCABULARY = Vocabulary(30_522, 0, 101, 102)
BLOCK = 512  # CUDA's allocator rounds up to it


class Memory(Trace):
    """Adds up the tensors that are alive on the device, and keeps the peak."""

    def __init__(self) -> None:
        super().__init__(padded=False)
        self.alive: dict[int, int] = {}
        self.now = self.peak = 0

    def add(self, tensor) -> None:
        """Count a tensor until it is freed, once for all its views."""
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cuda:
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.alive:
            self.alive[key] = -(-storage.nbytes() // BLOCK) * BLOCK
            self.now += self.alive[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.free, key)

    def free(self, key: int) -> None:
        self.now -= self.alive.pop(key, 0)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = super().__torch_dispatch__(function, types, args, kwargs)
        for tensor in output if isinstance(output, tuple | list) else [output]:
            self.add(tensor)
        return output


def peak(name: str, fields: dict, rows: int, precision: str, limit: int | None) -> int:
    """Return the peak of the second update, in which the optimizer's state exists."""
    masked_lm.MOST_BYTES_OF_LOGITS = limit or sys.maxsize
    recipe = load(name)
    config = {**recipe.discriminator.config, **fields}
    recipe = replace(
        recipe,
        discriminator=replace(recipe.discriminator, config=config),
        run=replace(recipe.run, init="huggingface"),
    )
    length = recipe.run.length
    slots = int((recipe.objective.mask_rate + 0.005) * length)
    ids_BL, weights_BN = np.ones((rows, length), np.int64), np.ones((rows, slots), np.float32)
    fields_BL = (ids_BL, ids_BL, ids_BL, 0 * ids_BL)
    batch = Batch(*fields_BL, ids_BL[:, :slots].copy(), weights_BN, weights_BN)
    objective, engine = build_objective(recipe, VOCABULARY), cuda_engine(precision)
    with pretended_cuda(), Memory() as memory:
        model = moved(objective).train()
        optimizer = build_optimizer(model, recipe.optimizer, muon_dtype=engine.muon_dtype)
        micro_batches = [to_device(CUDA)(batch)]
        for _ in range(2):
            memory.peak = memory.now
            accumulate(model, optimizer, micro_batches, batch.totals(), 1.0, engine)
            apply_update(optimizer, 1e-4, engine=engine)
    return memory.peak


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in json.loads(sys.argv[1]):
        print(json.dumps(peak(*case)), flush=True)
