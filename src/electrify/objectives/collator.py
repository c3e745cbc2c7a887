"""Objectives in your own training loop: a data collator, and a module for `transformers.Trainer`.

    model = ReplacedTokenDetection(generator, discriminator)
    collate = MaskingCollator(tokenizer)
    Trainer(WithDictOutput(model), args, train_dataset=examples, data_collator=collate)

`TrainingArguments` needs `remove_unused_columns=False`, because the collator creates the fields of
the batch, and `save_strategy="no"`, because networks that share weights are saved with their own
`save_pretrained`.
"""

# B batch, L length

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.batches.loader import masked_batch
from electrify.batches.masking import Masking
from electrify.errors import UserError
from electrify.objectives.objective import Objective
from electrify.tokens.tokenizer import SPECIAL_ROLES, SpecialIds


class MaskingCollator:
    """Pads tokenized examples and masks them as the official code does.

    Examples are what a transformers tokenizer returns: `input_ids`, and optionally `token_type_ids`
    and `attention_mask`. Every row has as many slots as an example of `length` tokens needs, by
    default the longest in the batch. Masks are seeded from torch's generator, so every worker of a
    `DataLoader` draws its own.
    """

    def __init__(self, tokenizer: Any, mask_rate: float = 0.15, length: int | None = None) -> None:
        self.mask_rate, self.length = mask_rate, length
        ids: dict[str, Any] = {n: getattr(tokenizer, f"{n}_token_id", None) for n in SPECIAL_ROLES}
        if missing := [role for role, number in ids.items() if number is None and role != "unk"]:
            raise UserError(
                "the tokenizer lacks special tokens",
                got=f"no {', '.join(missing)} token",
                fix='call tokenizer.add_special_tokens({"mask_token": "[MASK]", …}) and resize the '
                "embeddings of both networks",
            )
        self.special = SpecialIds(**ids)

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the fields of a `Batch` as tensors."""
        lengths_B = np.array([_real_tokens(example) for example in examples])
        ids_BL = np.full((len(examples), int(lengths_B.max())), self.special.pad)
        types_BL = np.zeros_like(ids_BL)
        for row, (example, length) in enumerate(zip(examples, lengths_B, strict=True)):
            ids_BL[row, :length] = example["input_ids"][:length]
            if "token_type_ids" in example:
                types_BL[row, :length] = example["token_type_ids"][:length]
        masking = Masking(self.mask_rate, self.length or ids_BL.shape[1])
        seed, step = torch.randint(2**62, (2,)).tolist()
        batch = masked_batch(ids_BL, lengths_B, types_BL, self.special, masking, (seed, step))
        fields = batch.map(torch.from_numpy)._asdict()
        return {name: tensor for name, tensor in fields.items() if tensor is not None}


def _real_tokens(example: Mapping[str, Any]) -> int:
    """Return the number of tokens before the padding, which must come last."""
    mask = example.get("attention_mask")
    if mask is None:
        return len(example["input_ids"])
    count = sum(int(real) for real in mask)  # small integer types would overflow
    if not all(mask[:count]):
        raise UserError(
            "examples must be padded at the end",
            got="an attention_mask with padding before text",
            fix='set tokenizer.padding_side = "right", or do not pad: the collator pads',
        )
    return count


class WithDictOutput(nn.Module):
    """An objective that takes the fields of a batch as arguments and returns a dictionary.

    Losses are means over the given batch, as in `Trainer`, not over a global batch.
    """

    accepts_loss_kwargs = False  # so that `Trainer` does not pass num_items_in_batch

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, return_loss: bool = True, **fields: Tensor) -> dict[str, Tensor]:
        """Return the loss, and sums for the metrics; `Trainer` needs `return_loss` to evaluate."""
        batch = Batch(**fields)
        loss, sums = self.objective(batch, batch.totals())
        return {"loss": loss, **sums}
