"""What a recipe's run costs, as a table of plain numbers: bytes, seconds, FLOPs, tokens."""

from typing import Any

from electrify.batches.masking import most_slots
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import Objective
from electrify.planning import memory
from electrify.planning.flops import INEXACT, flops_per_step, paper_flops_per_step
from electrify.planning.hardware import Hardware
from electrify.planning.memory import FLOAT, OPTIMIZER_STATE, Precision
from electrify.planning.sketch import parts_of, shape_of, sketch, trained
from electrify.recipes.schema import Recipe

PRECISIONS: tuple[Precision, ...] = ("float32", "mixed")
USABLE = 0.9  # of a device's memory


def costs(
    recipe: Recipe, vocab_size: int, hardware: Hardware, devices: int, micro_batch: int
) -> dict[str, Any]:
    """Everything that can be said of a run before it is started.

    A micro-batch of 0 is the largest that fits, of the device's share of the batch and the powers
    of two below it.
    """
    vocabulary = Vocabulary(vocab_size, pad=0, cls=1, sep=2)  # which ids does not matter
    objective, run = sketch(recipe, vocabulary), recipe.run
    networks = objective.networks
    shapes = {role: shape_of(network) for role, network in networks.items()}
    step = {
        "tokens": run.batch_size * run.length,
        "flops": flops_per_step(objective, run.batch_size, run.length, _slots(recipe)),
        "paper_flops": paper_flops_per_step(shapes, objective.roles, run.batch_size, run.length),
    }
    parameters = _parameters(objective)
    rows = max(1, run.batch_size // devices)
    sizes = [micro_batch] if micro_batch else _powers_of_two(rows)
    return {
        "parameters": parameters,
        "step": step,
        "run": {name: each * run.steps for name, each in step.items()},
        "memory": {name: _memory(recipe, objective, hardware, name, sizes) for name in PRECISIONS},
        "disk": {
            "checkpoint": (FLOAT + OPTIMIZER_STATE) * parameters["trained"],
            "model": FLOAT * parameters[objective.main]["all"],
        },
        "seconds": {
            name: step["flops"] * run.steps / (getattr(hardware, name) * hardware.reached * devices)
            for name in PRECISIONS
        },
        "notes": [*objective.notes, *_rough(objective)],
    }


def _parameters(objective: Objective) -> dict[str, Any]:
    parts = {role: parts_of(network) for role, network in objective.networks.items()}
    together = trained(objective.networks.values())
    return {
        **{role: {**part._asdict(), "all": sum(part)} for role, part in parts.items()},
        "shared": sum(sum(part) for part in parts.values()) - together,
        "trained": together,
    }


def _slots(recipe: Recipe) -> int:
    return max(1, most_slots(recipe.objective.mask_rate, recipe.run.length))


def _memory(
    recipe: Recipe, objective: Objective, hardware: Hardware, precision: Precision, sizes: list[int]
) -> dict[str, Any]:
    """Bytes on one device with the first micro-batch that fits, or with the last."""
    one_example = memory.of_one_example(objective, recipe.run.length, _slots(recipe), precision)
    parameters = trained(objective.networks.values())
    for size in sizes:
        needed = memory.memory(parameters, one_example, size, precision)
        fits = sum(needed) <= USABLE * hardware.memory
        if fits:
            break
    return {**needed._asdict(), "all": sum(needed), "micro_batch": size, "fits": fits}


def _powers_of_two(most: int) -> list[int]:
    """The number itself, then those below it.

    >>> _powers_of_two(100)
    [100, 64, 32, 16, 8, 4, 2, 1]
    """
    return [most, *(2**n for n in reversed(range(most.bit_length())) if 2**n < most)]


def _rough(objective: Objective) -> list[str]:
    kinds = sorted({network.config.model_type for network in objective.networks.values()})
    return [
        f"FLOPs of {kind} are rough: not all of its work is counted"
        for kind in kinds
        if kind in INEXACT
    ]
