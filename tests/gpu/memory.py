"""Trace the second update of a recipe: peak memory, bytes read and written, kernels.

Prints one JSON object per case. Peaks are those of the tensors, in the blocks of torch's caching
allocator; the CUDA context and fragmentation come on top.
"""

from tests.gpu.trace import CUDA, Trace, cuda_engine, moved, pretended_cuda  # noqa: I001

import json
import sys
import weakref

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from electrify.batches.batch import Batch
from electrify.batches.masking import max_slots
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import build_objective
from electrify.recipes.schema import load, override
from electrify.training.data import to_device
from electrify.training.networks import checkpoint_activations
from electrify.training.optim import build_optimizer
from electrify.training.training import Stepper, Task

BLOCK = 512  # bytes; the caching allocator rounds up to it
MATMULS = {"mm", "addmm", "bmm", "baddbmm"}


class Memory(Trace):
    """Also follows the bytes of live tensors on the device, and what kernels read and write."""

    def __init__(self, padded: bool) -> None:
        super().__init__(padded)
        self.alive: dict[int, int] = {}
        self.now = self.peak = 0
        self.traffic = {"matmuls": 0, "others": 0}
        self.kernels = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = super().__torch_dispatch__(function, types, args, kwargs)
        outputs = _on_cuda(result)
        for tensor in outputs:
            self.add(tensor)
        if outputs and not function.is_view:
            self.kernels += 1
            name = function.overloadpacket.__name__
            inputs = _on_cuda((args, kwargs or {}))
            kind = "matmuls" if name in MATMULS else "others"
            self.traffic[kind] += sum(map(_bytes, [*inputs, *outputs]))
        return result

    def add(self, tensor) -> None:
        """Count the memory of a tensor until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.alive:
            self.alive[key] = -(-storage.nbytes() // BLOCK) * BLOCK
            self.now += self.alive[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._free, key)

    def _free(self, key: int) -> None:
        self.now -= self.alive.pop(key)


def _on_cuda(tree) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor) and x.is_cuda]


def _bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a kernel touches: those of an expanded tensor are read once."""
    sizes = (n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(np.prod([1, *sizes])) * tensor.element_size()


def batch_of(recipe, rows: int, vocabulary: int) -> Batch:
    """Return arrays of the right shapes; their values do not matter."""
    length = recipe.run.length
    slots = max(1, max_slots(recipe.objective.mask_rate, length))
    ids = np.full((rows, length), vocabulary - 1)
    positions = np.tile(np.arange(1, slots + 1), (rows, 1))
    weights = np.ones((rows, slots), np.float32)
    return Batch(
        ids, ids.copy(), np.ones_like(ids), np.zeros_like(ids), positions, weights, weights
    )


def traced(
    recipe, rows, precision, changes=None, checkpointed=False, vocab_size=30_522, parts=1
) -> dict:
    """Trace an update of `parts` micro-batches of `rows` examples."""
    recipe = override(load(recipe), {"run.init": "huggingface", **(changes or {})})
    objective = build_objective(recipe, Vocabulary(vocab_size, 0, 101, 102))
    if checkpointed:
        checkpoint_activations(objective)
    arrays = batch_of(recipe, rows * parts, vocab_size)
    engine = cuda_engine(precision)
    with pretended_cuda(), Memory(padded=False) as memory:
        model = moved(objective).train()
        for tensor in (*model.parameters(), *model.buffers()):
            memory.add(tensor)
        weights = memory.now
        made = build_optimizer(model, recipe.optimizer, muon_dtype=engine.muon_dtype)
        task = Task([arrays], rows * parts, to_device(CUDA), type(objective).metrics)
        stepper = Stepper(model, model, made, engine, task, recipe.optimizer.clip, 0, rows)
        stepper.spent.updates = 1  # the first update and every sixteenth measure their time
        for _ in range(2):  # the first one makes the optimizer's state
            memory.peak, memory.kernels = memory.now, 0
            memory.traffic = dict.fromkeys(memory.traffic, 0)
            stepper.accumulate(0, arrays)
            stepper.apply(lr=1e-4, move=True)
    return {
        "weights": weights,
        "at rest": memory.now,
        "peak": memory.peak,
        "traffic": memory.traffic,
        "kernels": memory.kernels,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in json.loads(sys.argv[1]):
        print(json.dumps(traced(**case)), flush=True)
