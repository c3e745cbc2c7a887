"""Whether a machine's memory can hold a training, checked before any of it is allocated."""

import torch

from electrify.batches.masking import most_slots
from electrify.errors import UserError
from electrify.models.pair import Vocabulary
from electrify.planning.hardware import GIGA, memory_of
from electrify.planning.memory import Precision, memory, of_one_example
from electrify.planning.sketch import sketch, trained
from electrify.recipes.schema import Recipe

# Activations are estimated, optimizer state is counted as two moments though Muon keeps one for
# matrices, and kernels and swap differ: refuse only what is far too much.
SURELY = 1.5


def check_fits(
    recipe: Recipe, vocabulary: Vocabulary, device: torch.device, rows: int, sharded_by: int = 1
) -> None:
    """Refuse networks, or micro-batches of some rows, that are too large for a device.

    With 0 rows activations are left out. Weights may be sharded by several processes.
    """
    objective, run = sketch(recipe, vocabulary), recipe.run
    precision: Precision = (
        "float32" if run.precision == "float32" or device.type == "cpu" else "mixed"
    )
    slots = max(1, most_slots(recipe.objective.mask_rate, run.length))
    one_example = of_one_example(objective, run.length, slots, precision)
    parameters = trained(objective.networks.values())
    needed = memory(parameters // sharded_by, one_example, rows, precision)
    fixed, available = sum(needed) - needed.activations, memory_of(device.type)
    if fixed > SURELY * available:
        raise UserError(
            "the networks of this recipe do not fit in memory",
            got=f"{parameters:,} parameters: weights, gradients and optimizer state take about "
            f"{_size(fixed)}, this machine has {_size(available)}",
            fix="smaller sizes in [discriminator.config] and [generator], or a larger machine; "
            "electrify plan RECIPE says what a recipe needs",
        )
    if sum(needed) > SURELY * available:
        room = int((available - fixed) / one_example)
        raise UserError(
            "a batch of this recipe does not fit in memory",
            got=f"{rows:,} examples of {run.length} tokens at a time take about "
            f"{_size(sum(needed))}, this machine has {_size(available)}",
            fix=f"--micro-batch {room}, or less"
            if room > 0
            else "a shorter run.length, or smaller networks",
        )


def _size(count: float) -> str:
    return f"{count / GIGA:,.1f} GB"
