"""Objectives in loops that are not ours: a data collator, and a module for `transformers.Trainer`.

    model = ReplacedTokenDetection(generator, discriminator)
    collate = MaskingCollator(tokenizer)
    Trainer(WithDictOutput(model), args, train_dataset=examples, data_collator=collate)

`TrainingArguments` needs `remove_unused_columns=False`: the collator makes the fields of a batch.
"""

# B batch, L length, N slots a row

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.batches.loader import masked_batch
from electrify.batches.masking import Masking
from electrify.objectives.objective import Objective
from electrify.tokens.tokenizer import SPECIAL_ROLES, SpecialIds


class MaskingCollator:
    """Pads tokenized examples and masks them as the official code does.

    Examples are what a tokenizer of transformers returns: `input_ids`, perhaps `token_type_ids`.
    Masks are drawn by torch's generator, so that every worker of a `DataLoader` has its own.
    """

    def __init__(self, tokenizer: Any, mask_rate: float = 0.15, length: int = 512) -> None:
        self.masking = Masking(mask_rate, length)
        self.special = SpecialIds(**{n: getattr(tokenizer, f"{n}_token_id") for n in SPECIAL_ROLES})

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the fields of a `Batch` as tensors."""
        lengths_B = np.array([len(example["input_ids"]) for example in examples])
        ids_BL = np.full((len(examples), int(lengths_B.max())), self.special.pad)
        types_BL = np.zeros_like(ids_BL)
        for row, example in enumerate(examples):
            ids_BL[row, : lengths_B[row]] = example["input_ids"]
            types_BL[row, : lengths_B[row]] = example.get("token_type_ids", 0)
        seed, step = torch.randint(2**62, (2,)).tolist()
        batch = masked_batch(ids_BL, lengths_B, types_BL, self.special, self.masking, (seed, step))
        return batch.map(torch.from_numpy)._asdict()


class WithDictOutput(nn.Module):
    """An objective that takes the fields of a batch and returns a dictionary with its loss.

    Losses are means over the batch at hand, as in `Trainer`, not over a global batch.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, **fields: Tensor) -> dict[str, Tensor]:
        """Return the loss, and sums for the metrics."""
        batch = Batch(**fields)
        loss, sums = self.objective(batch, batch.totals())
        return {"loss": loss, **sums}
