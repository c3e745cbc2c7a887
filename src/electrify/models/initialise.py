"""Starting weights: `huggingface` as the architecture has them, or `official` as ELECTRA's code.

Officially every matrix and table is truncated normal with σ 0.02 (cut at 2σ), but for the layers
that were written without an initialiser and so are Glorot uniform: the projections after the tables
and the last layer of every head. Biases are 0, LayerNorms 1 and 0.
"""

from typing import Any, Literal

import torch
from torch import nn

from electrify.models.sharing import PROJECTIONS

Kind = Literal["official", "huggingface"]
SIGMA = 0.02
# The last layers of discriminator and fine-tuning heads.
LAST_LAYERS = ("discriminator_predictions.dense_prediction", "classifier", "score")


@torch.no_grad()
def initialise(model: Any, generator: torch.Generator) -> None:
    """Give a model the official starting weights."""
    prefix = model.base_model_prefix
    glorot = {f"{prefix}.{path}" for path in PROJECTIONS} | set(LAST_LAYERS)
    for name, module in model.named_modules():
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter):
            nn.init.zeros_(bias)
        if not isinstance(weight, nn.Parameter):
            continue
        if weight.ndim < 2:
            nn.init.ones_(weight)
        elif name in glorot:
            nn.init.xavier_uniform_(weight, generator=generator)
        else:
            nn.init.trunc_normal_(weight, std=SIGMA, a=-2 * SIGMA, b=2 * SIGMA, generator=generator)
