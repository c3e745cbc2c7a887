"""Trace an update, an evaluation, a log line and a snapshot; prints one JSON object per case."""

from tests.gpu.trace import CUDA, KERNELS, Trace, cuda_engine, moved, pretended_cuda  # noqa: I001

import json
import sys
from dataclasses import replace

import torch

from electrify.objectives.objective import build_objective
from electrify.recipes.schema import ObjectiveSettings, Optimizer, Run, Sharing
from electrify.training.checkpoint import snapshot
from electrify.training.data import to_device
from electrify.training.evaluate import evaluate
from electrify.training.loop import in_float64
from electrify.training.optim import build_optimizer
from electrify.training.self_check import self_check
from electrify.training.state import model_tensors, optimizer_tensors
from electrify.training.training import Stepper, Task
from tests.models.tiny import MASK, VOCABULARY, tiny_inputs, tiny_recipe


def traced(kind, architecture, precision, optimizer, padded, checkpointed) -> dict:
    """Trace one case; returns what the host waited for, the copies and the attention kernels."""
    sharing = Sharing(embeddings="none" if kind == "mlm" else "tied")
    recipe = replace(
        tiny_recipe(architecture, sharing),
        objective=ObjectiveSettings(kind=kind),
        optimizer=Optimizer(kind=optimizer),
        run=Run(init="huggingface", length=32, precision=precision),
    )
    objective = build_objective(recipe, VOCABULARY)
    if checkpointed:
        for network in objective.networks.values():
            network.gradient_checkpointing_enable()
    arrays = tiny_inputs(rows=4, padding=6 * padded).map(lambda tensor: tensor.numpy())
    engine = cuda_engine(precision)
    with pretended_cuda():
        model = moved(objective).train()
        made = build_optimizer(model, recipe.optimizer, muon_dtype=engine.muon_dtype)
        with Trace(padded):
            self_check(model, made, recipe, VOCABULARY, MASK)
        task = Task([arrays], 4, to_device(CUDA), type(objective).metrics)
        stepper = Stepper(model, model, made, engine, task, clip=1.0, seed=0, micro_batch=2)
        stepper.spent.updates = 1  # the first update and every sixteenth measure their time
        for _ in range(2):  # the first one makes the optimizer's state
            KERNELS.clear()
            with Trace(padded) as update:
                gradient = stepper.accumulate(0, arrays)
                stepper.apply(lr=1e-4, move=True)
                sums = in_float64(gradient.sums)
        kernels = dict(KERNELS)
        with Trace(padded) as line:
            task.metrics(engine.all_reduce_sums(sums), 1)
        with Trace(padded) as evaluation:
            batches = [(task.tensors(arrays), arrays.totals())]
            evaluate(model, engine, batches, task.metrics, 1)
        with Trace(padded) as saving:
            state = engine.gather_full_tensors(optimizer_tensors(model, made))
            snapshot(1, engine.gather_full_tensors(model_tensors(model)), state, {})
    return {
        "waits": update.waits,
        "copies": update.copies,
        "kernels": kernels,
        "log waits": sum(line.waits.values()),
        "evaluation waits": sum(evaluation.waits.values()),
        "tensors saved": sum(saving.waits.values()),
        "off the device": [n for n, p in model.named_parameters() if p.device != CUDA],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in json.loads(sys.argv[1]):
        print(json.dumps(traced(**case)), flush=True)
