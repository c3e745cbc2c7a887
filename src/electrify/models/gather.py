"""Run a model's head only where it is needed.

Every masked-LM head in transformers works position by position, so a hook on the body that keeps
some rows makes any head compute logits for those alone: no vocabulary-sized numbers for the others.
"""

# B batch, L length, H width, M rows that are kept

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def head_only_on(model: nn.Module, rows_M: Tensor) -> Iterator[None]:
    """Inside, the head sees only some rows of the body's output, which is flattened to B × L."""

    def keep(module: nn.Module, arguments: Any, output: Any) -> Any:
        hidden_BLH = output[0]
        kept_1MH = hidden_BLH.flatten(0, 1).index_select(0, rows_M).unsqueeze(0)
        if isinstance(output, tuple):
            return (kept_1MH, *output[1:])
        output["last_hidden_state"] = kept_1MH
        return output

    body: nn.Module = model.base_model  # type: ignore[assignment]
    handle = body.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()


def flat_rows(positions_BN: Tensor, length: int) -> Tensor:
    """Positions in each row of a batch as rows of the batch flattened to B × L."""
    offsets_B1 = torch.arange(len(positions_BN), device=positions_BN.device).unsqueeze(1) * length
    return (positions_BN + offsets_B1).flatten()
