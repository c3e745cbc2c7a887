"""Check that a run fits in a machine's memory before anything is allocated."""

import torch

from electrify.errors import UserError
from electrify.models.pair import Vocabulary
from electrify.planning.hardware import bytes_text, memory_of
from electrify.planning.memory import Mode, Precision, activations, memory, most_slots
from electrify.planning.sketch import sketch, trained
from electrify.recipes.schema import Recipe

# Activations are estimated, optimizer state is counted as two moments although Muon keeps one for
# matrices, and kernels and swap differ: refuse only what is far too large.
TOLERANCE = 1.5


def check_fits(
    recipe: Recipe,
    vocabulary: Vocabulary,
    device: torch.device,
    rows: int,
    sharded_by: int = 1,
    checkpointed: bool = False,
) -> None:
    """Refuse networks, or micro-batches of `rows` examples, that are too large for a device.

    With 0 rows, activations are not counted. `sharded_by` is the number of processes that weights
    are sharded over; `checkpointed` is whether activations are recomputed.
    """
    objective, run = sketch(recipe, vocabulary), recipe.run
    precision: Precision = (
        "float32" if run.precision == "float32" or device.type == "cpu" else "mixed"
    )
    slots, eager = most_slots(recipe), run.attn_implementation == "eager"
    mode = Mode(precision, device.type == "cuda", checkpointed, unfused=eager)
    parameters = trained(objective.networks.values())
    kept = activations(objective, rows, run.length, slots, mode)
    needed = memory(parameters // sharded_by, kept, mode)
    fixed, available = sum(needed) - needed.activations, memory_of(device.type)
    if fixed > TOLERANCE * available:
        raise UserError(
            "the networks of this recipe do not fit in memory",
            got=f"{parameters:,} parameters: weights, gradients and optimizer state take about "
            f"{bytes_text(fixed)}, this machine has {bytes_text(available)}",
            fix="use smaller sizes in [discriminator.config] and [generator], or a larger machine; "
            "electrify plan RECIPE shows what a recipe needs",
        )
    if sum(needed) > TOLERANCE * available:
        largest = int((available - fixed) / activations(objective, 1, run.length, slots, mode))
        raise UserError(
            "a batch of this recipe does not fit in memory",
            got=f"{rows:,} examples of {run.length} tokens at a time take about "
            f"{bytes_text(sum(needed))}, this machine has {bytes_text(available)}",
            fix=f"use --micro-batch {largest} or less"
            if largest > 0
            else "use a shorter run.length or smaller networks",
        )
