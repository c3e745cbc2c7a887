"""Estimate the cost of a recipe's run in plain numbers: bytes, seconds, FLOPs, tokens."""

from collections.abc import Iterator
from typing import Any

from electrify.batches.masking import max_slots
from electrify.models.pair import Vocabulary
from electrify.objectives.objective import Objective
from electrify.planning import memory
from electrify.planning.flops import INEXACT, flops_per_step, paper_flops_per_step
from electrify.planning.hardware import Hardware
from electrify.planning.memory import FLOAT, OPTIMIZER_STATE, Mode, Precision, most_slots
from electrify.planning.sketch import parts_of, shape_of, sketch, trained
from electrify.planning.speed import StepShape, step_time
from electrify.recipes.schedules import Schedules
from electrify.recipes.schema import Recipe

PRECISIONS: tuple[Precision, ...] = ("float32", "mixed")
USABLE = 0.9  # fraction of a device's memory


def costs(
    recipe: Recipe,
    vocab_size: int,
    hardware: Hardware,
    devices: int,
    micro_batch: int,
    checkpointed: bool = False,
    compiled: bool = False,
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
    rows = -(-run.batch_size // devices)  # of the device that has most
    sizes = [min(micro_batch, rows)] if micro_batch else _powers_of_two(rows)
    eager = run.attn_implementation == "eager"
    modes = {
        name: Mode(name, hardware.has_cuda, checkpointed, compiled, eager) for name in PRECISIONS
    }
    needed = {name: _memory(recipe, objective, hardware, modes[name], sizes) for name in PRECISIONS}
    times = {}
    for name, mode in modes.items():
        shape = StepShape(rows, needed[name]["micro_batch"], run.length, _slots(recipe))
        times[name] = step_time(objective, shape, parameters["trained"], hardware, mode)
    return {
        "parameters": parameters,
        "step": step,
        "run": {name: value * run.steps for name, value in step.items()},
        "memory": needed,
        "disk": {
            "checkpoint": (FLOAT + OPTIMIZER_STATE) * parameters["trained"],
            "model": FLOAT * parameters[objective.main]["all"],
        },
        "seconds": {name: time.seconds * run.steps for name, time in times.items()},
        "tokens_per_second": {name: step["tokens"] / time.seconds for name, time in times.items()},
        "limits": {name: time.limit for name, time in times.items()},
        "notes": [
            *objective.notes,
            *_inexact(objective),
            *_unknown(objective, hardware, modes),
            *_not_counted(recipe, devices),
        ],
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
    recipe: Recipe, objective: Objective, hardware: Hardware, mode: Mode, sizes: list[int]
) -> dict[str, Any]:
    """Return the bytes on one device with the first micro-batch that fits, or else the last."""
    parameters, slots = trained(objective.networks.values()), most_slots(recipe)
    for size in sizes:
        activations = memory.activations(objective, size, recipe.run.length, slots, mode)
        needed = memory.memory(parameters, activations, mode)
        fits = sum(needed) <= USABLE * hardware.memory
        if fits:
            break
    return {**needed._asdict(), "all": sum(needed), "micro_batch": size, "fits": fits}


def _not_counted(recipe: Recipe, devices: int) -> Iterator[str]:
    if recipe.schedules != Schedules():
        yield "FLOPs and time are those without [schedules]"
    if devices > 1:
        yield "the time of communication between devices is not counted"


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


def _unknown(
    objective: Objective, hardware: Hardware, modes: dict[Precision, Mode]
) -> Iterator[str]:
    """Yield what options do not do, or is not known of them."""
    mode = modes["mixed"]
    if mode.compiled and not hardware.bandwidth:
        yield "what --compile saves is estimated for GPUs only"
    for role, network in objective.networks.items():
        if mode.checkpointed and not network.supports_gradient_checkpointing:
            yield f"--checkpoint-activations is refused: the {role}'s architecture lacks it"
