"""Pool the vectors of a text's tokens into one vector."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

Pooling = Literal["mean", "cls", "max"]
POOLINGS: Mapping[str, str] = {
    "mean": "mean of the vectors of all tokens",
    "cls": "vector of the first token, [CLS]",
    "max": "maximum of the vectors of all tokens, in each dimension",
}
"""What each kind of pooling is, for cards."""


def pool(hidden_BLD: Tensor, attention_BL: Tensor, how: Pooling) -> Tensor:
    """Return one vector for each text; padding is ignored.

    >>> hidden = torch.tensor([[[1.0], [4.0], [9.0]]])
    >>> [pool(hidden, torch.tensor([[1, 1, 0]]), how).item() for how in ("mean", "cls", "max")]
    [2.5, 1.0, 4.0]
    """
    if how == "cls":
        return hidden_BLD[:, 0]
    mask_BL1 = attention_BL.unsqueeze(-1).to(hidden_BLD.dtype)
    if how == "max":
        return hidden_BLD.masked_fill(mask_BL1 == 0, -torch.inf).amax(dim=1)
    return (hidden_BLD * mask_BL1).sum(dim=1) / mask_BL1.sum(dim=1).clamp(min=1e-9)
