"""Initialise weights as ELECTRA's code does (`official`), and the output biases of heads.

The official code draws every weight and embedding matrix from a truncated normal with σ 0.02 (cut
at 2σ), except for the layers that were written without an initialiser and so are Glorot uniform:
the projections after the embeddings and the last layer of every head. Biases are 0; LayerNorm
weights are 1 and their biases 0.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.models.sharing import PROJECTIONS

SIGMA = 0.02
# The last layers of discriminator heads and fine-tuning heads.
LAST_LAYERS = ("discriminator_predictions.dense_prediction", "classifier", "score")


@torch.no_grad()
def initialise(model: Any, generator: torch.Generator) -> None:
    """Initialise a model as the official code does."""
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


NEW_WEIGHTS = "newly_initialised"
"""The attribute of a network with released weights that names the parameters they lacked."""


@torch.no_grad()
def set_bias_from_counts(network: Any, role: str, counts_V: Tensor) -> None:
    """Set the output bias of a masked-LM head to the log frequencies of the tokens, if it is new.

    Otherwise the first thing that the encoder learns is a direction common to all tokens that
    encodes these frequencies; after short training little else is left in its hidden states.
    """
    log_V = torch.log((counts_V.float() + 0.5) / (counts_V.float() + 0.5).sum())
    _set_bias(network.get_output_embeddings(), log_V - log_V.mean(), role, network)


@torch.no_grad()
def set_bias_from_rate(network: Any, role: str, rate: float) -> None:
    """Set the output bias of a discriminator's head to the log odds of a replaced token, if new."""
    in_encoder = {id(module) for module in network.base_model.modules()}
    head = [module for module in network.modules() if id(module) not in in_encoder]
    last = [module for module in head if isinstance(module, nn.Linear)][-1]
    log_odds = math.log(rate / (1 - rate))
    bias = torch.tensor([log_odds]) if len(last.weight) == 1 else torch.tensor([0.0, log_odds])
    _set_bias(last, bias, role, network)


def _set_bias(layer: Any, bias: Tensor, role: str, network: Any) -> None:
    if getattr(layer, "bias", None) is None:
        raise UserError(
            f"the head of the {role} has no output bias to set",
            got=f"run.output_bias = frequencies with {network.config.model_type}",
            fix="use --run.output-bias zero",
        )
    if _is_new(layer.bias, network):
        layer.bias.copy_(bias)


def _is_new(parameter: Tensor, network: Any) -> bool:
    """Return whether a parameter was not among the released weights of a network, if it has any."""
    new = getattr(network, NEW_WEIGHTS, None)
    named = network.named_parameters(remove_duplicate=False)
    return new is None or any(other is parameter and name in new for name, other in named)
