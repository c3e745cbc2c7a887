"""Run an update of rank 5 of 128, the others pretended: which collectives does it take?

On the CPU: DDP's reducer and FSDP's streams need more of CUDA than can be pretended. Values are
wrong, since nobody answers; only the calls are counted.
"""

import json
import sys
from collections import Counter
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from electrify.objectives.objective import build_objective
from electrify.recipes.schema import Optimizer, Run, Sharing
from electrify.training.data import to_device
from electrify.training.engine import Engine, Requests
from electrify.training.optim import build_optimizer
from electrify.training.sharding import shard
from electrify.training.training import Stepper, Task
from tests.models.tiny import VOCABULARY, tiny_inputs, tiny_recipe

WORLD, RANK, ROWS = 128, 5, 4


class Collectives(TorchDispatchMode):
    """Counts collectives by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in function.namespace:
            self.counts[function.name().split("::")[1].strip("_")] += 1
        return function(*args, **(kwargs or {}))


def collectives(how: str, optimizer: str) -> Counter[str]:
    """Count the collectives of the third update, with two micro-batches."""
    recipe = replace(
        tiny_recipe("electra", Sharing(embeddings="tied")),
        run=Run(init="huggingface", length=32, batch_size=WORLD * ROWS),
        optimizer=Optimizer(kind=optimizer),
    )
    model = build_objective(recipe, VOCABULARY).train()
    engine = Engine("float32", "cpu")
    engine.world, engine.rank, engine.accelerator.reduce = WORLD, RANK, _reduce
    if how == "fsdp":
        shard(model, engine.device)
    made = build_optimizer(model, recipe.optimizer)
    wrapped = engine.prepare(model, [])
    buckets: Counter[str] = Counter()
    if how == "ddp":
        wrapped.register_comm_hook(buckets, _count_bucket)
    rows = tiny_inputs(ROWS, padding=6).map(lambda tensor: tensor.numpy())
    task = Task([rows], WORLD * ROWS, to_device(engine.device), type(model).metrics)
    stepper = Stepper(model, wrapped, made, engine, task, clip=1.0, seed=0, micro_batch=2)
    for _ in range(3):  # DDP rebuilds its buckets in the second one
        buckets.clear()
        with Collectives() as update:
            stepper.accumulate(0, task.batches[0], Requests(stop=False, save=False))
            stepper.apply(lr=1e-4, move=True)
    return update.counts + buckets


def _reduce(tensor, reduction: str):
    assert reduction == "sum"
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


def _count_bucket(buckets, bucket):
    buckets["gradient buckets"] += 1
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


if __name__ == "__main__":
    dist.init_process_group("fake", rank=RANK, world_size=WORLD, store=FakeStore())
    for case in json.loads(sys.argv[1]):
        print(json.dumps(collectives(*case)), flush=True)
