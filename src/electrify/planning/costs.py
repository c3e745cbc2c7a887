"""Estimate the cost of a recipe's run in plain numbers: bytes, seconds, FLOPs, tokens."""

from typing import Any

from electrify.batches.masking import max_slots
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import Objective
from electrify.planning import memory
from electrify.planning.flops import INEXACT, flops_per_step, paper_flops_per_step
from electrify.planning.hardware import Hardware
from electrify.planning.memory import FLOAT, OPTIMIZER_STATE, Precision
from electrify.planning.sketch import parts_of, shape_of, sketch, trained
from electrify.recipes.schema import Recipe

PRECISIONS: tuple[Precision, ...] = ("float32", "mixed")
USABLE = 0.9  # fraction of a device's memory


def costs(
    recipe: Recipe, vocab_size: int, hardware: Hardware, devices: int, micro_batch: int
) -> dict[str, Any]:
    """Return all estimates of a run.

    With a micro-batch of 0, the largest that fits is chosen: the device's share of the batch or a
    power of two below it.
    """
    vocabulary = Vocabulary(vocab_size, pad=0, cls=1, sep=2)  # the ids do not matter
    objective, run = sketch(recipe, vocabulary), recipe.run
    networks = objective.networks
    shapes = {role: shape_of(network) for role, network in networks.items()}
    step = {
        "tokens": run.batch_size * run.length,
        "flops": flops_per_step(objective, run.batch_size, run.length, _slots(recipe)),
        "paper_flops": paper_flops_per_step(shapes, objective.roles, run.batch_size, run.length),
    }
    parameters = _parameters(objective)
    examples = max(1, run.batch_size // devices)
    sizes = [micro_batch] if micro_batch else _powers_of_two(examples)
    return {
        "parameters": parameters,
        "step": step,
        "run": {name: value * run.steps for name, value in step.items()},
        "memory": {name: _memory(recipe, objective, hardware, name, sizes) for name in PRECISIONS},
        "disk": {
            "checkpoint": (FLOAT + OPTIMIZER_STATE) * parameters["trained"],
            "model": FLOAT * parameters[objective.main]["all"],
        },
        "seconds": {
            name: step["flops"] * run.steps / (getattr(hardware, name) * hardware.reached * devices)
            for name in PRECISIONS
        },
        "notes": [*objective.notes, *_inexact(objective)],
    }


def _parameters(objective: Objective) -> dict[str, Any]:
    parts = {role: parts_of(network) for role, network in objective.networks.items()}
    total = trained(objective.networks.values())
    return {
        **{role: {**part._asdict(), "all": sum(part)} for role, part in parts.items()},
        "shared": sum(sum(part) for part in parts.values()) - total,
        "trained": total,
    }


def _slots(recipe: Recipe) -> int:
    return max(1, max_slots(recipe.objective.mask_rate, recipe.run.length))


def _memory(
    recipe: Recipe, objective: Objective, hardware: Hardware, precision: Precision, sizes: list[int]
) -> dict[str, Any]:
    """Return the bytes on one device with the first micro-batch that fits, or else the last."""
    one_example = memory.of_one_example(objective, recipe.run.length, _slots(recipe), precision)
    parameters = trained(objective.networks.values())
    for size in sizes:
        needed = memory.memory(parameters, one_example, size, precision)
        fits = sum(needed) <= USABLE * hardware.memory
        if fits:
            break
    return {**needed._asdict(), "all": sum(needed), "micro_batch": size, "fits": fits}


def _powers_of_two(largest: int) -> list[int]:
    """Return the number and the powers of two below it, largest first.

    >>> _powers_of_two(100)
    [100, 64, 32, 16, 8, 4, 2, 1]
    """
    return [largest, *(2**n for n in reversed(range(largest.bit_length())) if 2**n < largest)]


def _inexact(objective: Objective) -> list[str]:
    kinds = sorted({network.config.model_type for network in objective.networks.values()})
    return [
        f"the FLOPs of {kind} are approximate: not all of its operations are counted"
        for kind in kinds
        if kind in INEXACT
    ]
