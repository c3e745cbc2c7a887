"""Starting weights: `huggingface` as the architecture has them, or `official` as ELECTRA's code.

Officially every matrix and table is truncated normal with σ 0.02 (cut at 2σ), but for the layers
that were written without an initialiser and so are Glorot uniform: the projections after the tables
and the last layer of every head. Biases are 0, LayerNorms 1 and 0.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from electrify.errors import UserError
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


@torch.no_grad()
def start_at_frequencies(networks: Mapping[str, Any], counts_V: Tensor, mask_rate: float) -> None:
    """Let heads begin with what is true of any text, so that bodies need not learn it.

    A masked-LM head starts at how often tokens occur, a discriminator's at how rarely they are
    replaced. Otherwise the first thing that a body learns is one direction that all tokens share
    and that says just that; in short trainings little else is left of its vectors.
    """
    log_V = torch.log((counts_V.float() + 0.5) / (counts_V.float() + 0.5).sum())
    for role, network in networks.items():
        if role == "discriminator":
            inside = {id(module) for module in network.base_model.modules()}
            outside = [m for m in network.modules() if id(m) not in inside]
            last = [module for module in outside if isinstance(module, nn.Linear)][-1]
            odds = math.log(mask_rate / (1 - mask_rate))
            start = torch.tensor([odds]) if len(last.weight) == 1 else torch.tensor([0.0, odds])
        else:
            last, start = network.get_output_embeddings(), log_V - log_V.mean()
        if getattr(last, "bias", None) is None:
            raise UserError(
                f"the {role} has no bias to start at",
                got=f"{network.config.model_type} and run.output_bias = frequencies",
                fix="--run.output-bias zero",
            )
        last.bias.copy_(start)
