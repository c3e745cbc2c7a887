"""Held-out examples of a run as its networks see them: hidden, filled in, judged."""

# B batch, L length, N slots a row

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from electrify.batches.masking import Flags, Ids
from electrify.errors import UserError
from electrify.objectives.rtd import corrupt, weights_of
from electrify.reports.pair import sampled, shards_of_run, suspicion
from electrify.training.data import validation_task
from electrify.training.trained import Trained
from electrify.training.training import Task


class CorruptedExample(NamedTuple):
    """One example, without padding."""

    number: int
    """In the validation split."""
    ids_L: Ids
    masked_L: Ids
    """What the generator sees."""
    chosen_L: Flags
    """Where the generator was asked."""
    filled_L: Ids
    """What the discriminator sees."""
    replaced_L: Flags
    """The labels."""
    suspicion_L: NDArray[np.float32] | None
    """The probability of having been replaced; None in a masked-LM run, which has no opinion."""


def validation_batches(run: Path, loaded: Trained) -> Task:
    """The batches on which a run is evaluated."""
    data, here = shards_of_run(run), torch.device("cpu")
    found = validation_task(loaded.recipe, data, loaded.tokenizer, here)
    if found is None:
        raise UserError(
            f"{run} has no held-out examples",
            got="shards without a validation split",
            fix="electrify prepare --validation 0.01 leaves some out of training",
        )
    return found.task


def examples(loaded: Trained, task: Task, numbers: Sequence[int]) -> list[CorruptedExample]:
    """Some held-out examples, with the masks and samples that they have in every evaluation."""
    return [_example(loaded, task, number) for number in numbers]


def _example(loaded: Trained, task: Task, number: int) -> CorruptedExample:
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
    suspicion_L = None
    if "discriminator" in networks:
        said_BL = suspicion(networks["discriminator"], corrupted.ids_BL, inputs)
        suspicion_L = said_BL[0, :real].numpy()
    return CorruptedExample(
        number,
        inputs.ids_BL[0, :real].numpy(),
        inputs.masked_BL[0, :real].numpy(),
        chosen_L,
        corrupted.ids_BL[0, :real].numpy(),
        corrupted.labels_BL[0, :real].numpy().astype(np.bool_),
        suspicion_L,
    )
