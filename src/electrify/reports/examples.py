"""Validation examples of a run: masked, filled in by the generator, and judged."""

# B batch, L length, N slots per row

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.batches.masking import Flags, Ids
from electrify.errors import UserError
from electrify.objectives.rtd import corrupt, weights_of
from electrify.reports.pair import replaced_probs, sampled
from electrify.training.data import validation_task
from electrify.training.engine import single_process
from electrify.training.folder import RunFolder
from electrify.training.trained import Trained
from electrify.training.training import Task


class CorruptedExample(NamedTuple):
    """One example, without padding."""

    number: int
    """Its index in the validation split."""
    ids_L: Ids
    masked_L: Ids
    """The generator's input."""
    chosen_L: Flags
    """The masked positions."""
    filled_L: Ids
    """The discriminator's input."""
    replaced_L: Flags
    """The labels."""
    probs_L: NDArray[np.float32] | None
    """Predicted probabilities of being replaced; None in a masked-LM run."""


def validation_batches(run: Path, loaded: Trained) -> Task:
    """Return the batches on which a run is evaluated."""
    data = RunFolder(run).shards
    validation = validation_task(loaded.recipe, data, loaded.tokenizer, single_process())
    if validation is None:
        raise UserError(
            f"{run} has no validation examples",
            got="shards without a validation split",
            fix="run `electrify prepare` with --validation 0.01 to set some aside",
        )
    return validation.task


def corrupted_example(loaded: Trained, task: Task, number: int) -> CorruptedExample:
    """Return a validation example with the same masks and samples as in every evaluation."""
    step, row = divmod(number, task.batch_size)
    inputs = task.tensors(task.batches[step].rows(row, row + 1))
    networks = loaded.objective.networks
    generator = networks.get("generator") or networks["model"]
    size = loaded.tokenizer.vocab_size
    sampled_BN = sampled(generator, inputs, weights_of(loaded.recipe), size)
    corrupted = corrupt(inputs, sampled_BN)
    real = int(inputs.attention_BL.sum())
    chosen_L = np.zeros(real, dtype=np.bool_)
    chosen_L[inputs.positions_BN[inputs.weights_BN > 0].numpy()] = True
    probs_L = None
    if "discriminator" in networks:
        probs_BL = replaced_probs(networks["discriminator"], corrupted.ids_BL, inputs)
        probs_L = probs_BL[0, :real].numpy()
    return CorruptedExample(
        number,
        inputs.ids_BL[0, :real].numpy(),
        inputs.masked_BL[0, :real].numpy(),
        chosen_L,
        corrupted.ids_BL[0, :real].numpy(),
        corrupted.labels_BL[0, :real].numpy().astype(np.bool_),
        probs_L,
    )
