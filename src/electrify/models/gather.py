"""Run a masked-LM head on the masked positions only.

Every masked-LM head in transformers works position by position, so a hook on the encoder that
selects rows makes any head compute logits for those only. No vocabulary-sized tensors are computed
for the other positions.
"""

# B batch, L length, H width, M selected rows

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

HEAD_ROWS = "head_rows_M"
"""The attribute of an encoder that holds the rows to select; None selects all."""


@contextmanager
def gather_head_rows(model: nn.Module, rows_M: Tensor) -> Iterator[None]:
    """Run the head only on these rows of the encoder's output, flattened to B × L.

    The hook stays and its rows are an attribute: torch.compile would compile a model with another
    hook anew in every step.
    """
    encoder: nn.Module = model.base_model  # type: ignore[assignment]
    if not hasattr(encoder, HEAD_ROWS):
        encoder.register_forward_hook(_select_rows)
    setattr(encoder, HEAD_ROWS, rows_M)
    try:
        yield
    finally:
        setattr(encoder, HEAD_ROWS, None)


def _select_rows(encoder: nn.Module, arguments: Any, output: Any) -> Any:
    rows_M = getattr(encoder, HEAD_ROWS)
    if rows_M is None:
        return output
    hidden_BLH = output[0]
    selected_1MH = hidden_BLH.flatten(0, 1).index_select(0, rows_M).unsqueeze(0)
    if isinstance(output, tuple):
        return (selected_1MH, *output[1:])
    output["last_hidden_state"] = selected_1MH
    return output


def flat_rows(positions_BN: Tensor, length: int) -> Tensor:
    """Return positions within the rows of a batch as rows of the batch flattened to B × L."""
    offsets_B1 = torch.arange(len(positions_BN), device=positions_BN.device).unsqueeze(1) * length
    return (positions_BN + offsets_B1).flatten()
