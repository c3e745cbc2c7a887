"""Starting weights: `huggingface` as the architecture has them, or `official` as ELECTRA's code.

Officially every matrix and table is truncated normal with σ 0.02 (cut at 2σ), but for the layers
that were written without an initialiser and so are Glorot uniform: the projections after the tables
and the last layer of every head. Biases are 0, LayerNorms 1 and 0.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.models.sharing import PROJECTIONS

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


@torch.no_grad()
def start_at_counts(network: Any, role: str, counts_V: Tensor) -> None:
    """Let a masked-LM head start at how often tokens occur, so that the encoder need not learn it.

    Otherwise the first thing that an encoder learns is one direction that all tokens share and that
    says just that; in short trainings little else is left of its vectors.
    """
    log_V = torch.log((counts_V.float() + 0.5) / (counts_V.float() + 0.5).sum())
    _set_bias(network.get_output_embeddings(), log_V - log_V.mean(), role, network)


@torch.no_grad()
def start_at_rate(network: Any, role: str, rate: float) -> None:
    """Let the head of a detector start at how often there is something to detect."""
    inside = {id(module) for module in network.base_model.modules()}
    outside = [module for module in network.modules() if id(module) not in inside]
    last = [module for module in outside if isinstance(module, nn.Linear)][-1]
    odds = math.log(rate / (1 - rate))
    start = torch.tensor([odds]) if len(last.weight) == 1 else torch.tensor([0.0, odds])
    _set_bias(last, start, role, network)


def _set_bias(layer: Any, start: Tensor, role: str, network: Any) -> None:
    if getattr(layer, "bias", None) is None:
        raise UserError(
            f"the {role} has no bias to start at",
            got=f"{network.config.model_type} and run.output_bias = frequencies",
            fix="--run.output-bias zero",
        )
    layer.bias.copy_(start)
