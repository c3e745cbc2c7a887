"""What must hold before the first step, checked on a few tokens in less than two seconds.

Each of these faults trains without complaint and ends in a worse model: a tie that broke, a
parameter that the optimizer moves twice or never, padding that is part of a loss.
"""

# B batch, L length, N slots a row

from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.models.export import in_evaluation
from electrify.models.inputs import Inputs, totals_of
from electrify.models.pair import REFUSALS, Vocabulary
from electrify.models.rtd import ReplacedTokenDetection
from electrify.models.sharing import broken_ties
from electrify.recipes.schema import Sharing
from electrify.training.optim import named_owners
from electrify.training.state import weights_norm

ROWS, REAL, LENGTH = 2, 12, 16


def self_check(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    sharing: Sharing,
    vocabulary: Vocabulary,
    mask: int,
) -> list[str]:
    """Raise if something is wrong; returns the names of parameters that no loss reaches."""
    if isinstance(model, ReplacedTokenDetection):
        check_ties(model, sharing)
    check_listed_once(model, optimizer)
    check_finite(model)
    return check_padding(model, vocabulary, mask)


def check_ties(model: ReplacedTokenDetection, sharing: Sharing) -> None:
    """What the recipe ties is one object."""
    broken = broken_ties(model.generator, model.discriminator, sharing)
    if broken:
        raise _broken("generator and discriminator do not share what they should", broken[0])


def check_listed_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The optimizer has every trainable parameter, and none twice."""
    listed = [id(param) for group in optimizer.param_groups for param in group["params"]]
    if len(listed) != len(set(listed)):
        raise _broken("the optimizer would move a parameter twice", f"{len(listed)} entries")
    owned = {id(parameter): name for name, _, parameter in named_owners(model)}
    if missing := [name for key, name in owned.items() if key not in set(listed)]:
        raise _broken("the optimizer would never move a parameter", missing[0])
    if len(set(listed) - set(owned)):
        raise _broken("the optimizer has parameters that are not the model's", f"{len(listed)}")


def check_finite(model: nn.Module) -> None:
    """Every weight is a number; those of a released model may not be."""
    norm = weights_norm(model)
    if not isfinite(norm):
        raise UserError(
            "self-check: the weights to start from are not finite",
            got=f"their norm is {norm}",
            fix="give --discriminator.init-from or --generator.init-from another model",
        )


def check_padding(model: nn.Module, vocabulary: Vocabulary, mask: int) -> list[str]:
    """No gradient comes from padding or from unused slots, and some comes from real tokens.

    Returns the names of parameters that got no gradient at all.
    """
    inputs = _few_tokens(vocabulary, mask, next(model.parameters()).device)
    seen: list[Tensor] = []

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        output.logits.retain_grad()
        seen.append(output.logits)

    last = model.discriminator if isinstance(model, ReplacedTokenDetection) else None
    with torch.random.fork_rng(devices=[]), in_evaluation(model):
        handle = last.register_forward_hook(keep) if last is not None else None
        try:
            loss, _ = model(inputs, totals_of(inputs))
            loss.backward()
        except (*REFUSALS, IndexError) as error:
            raise UserError(
                "self-check: the networks of this recipe cannot read a few tokens",
                got=f"{type(error).__name__}: {error}",
                fix="change the fields in [discriminator.config] or [generator.config]: heads must "
                "divide the width",
            ) from error
        finally:
            if handle is not None:
                handle.remove()
    untouched = [name for name, _, parameter in named_owners(model) if parameter.grad is None]
    model.zero_grad(set_to_none=True)
    learned = not isinstance(model, ReplacedTokenDetection) or model.weights.discriminator > 0
    if seen and seen[0].grad is not None and learned:
        gradient_BL = seen[0].grad.flatten(2).abs().sum(-1) if seen[0].ndim > 2 else seen[0].grad
        if gradient_BL[inputs.attention_BL == 0].any():
            raise _broken("padding is part of the discriminator's loss", "a gradient at padding")
        if not gradient_BL[inputs.attention_BL == 1].all():
            raise _broken("a real token is not part of the discriminator's loss", "no gradient")
    if not torch.isfinite(loss):
        raise _broken("the loss of a few tokens is not finite", f"{float(loss.detach())}")
    return untouched


def _few_tokens(vocabulary: Vocabulary, mask: int, device: torch.device) -> Inputs:
    """Two rows of any tokens, the second with padding and with an unused slot."""
    ids_BL = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % vocabulary.size
    ids_BL[(ids_BL == mask) | (ids_BL == vocabulary.pad)] = vocabulary.cls
    attention_BL = torch.ones_like(ids_BL)
    ids_BL[1, REAL:], attention_BL[1, REAL:] = vocabulary.pad, 0
    positions_BN = torch.tensor([[1, 3], [2, 0]])
    masked_BL = ids_BL.clone()
    masked_BL[0, [1, 3]], masked_BL[1, 2] = mask, mask
    inputs = Inputs(
        ids_BL,
        masked_BL,
        attention_BL,
        torch.zeros_like(ids_BL),
        positions_BN,
        torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        torch.tensor([[0.3, 0.6], [0.9, 0.5]]),
    )
    return Inputs._make(tensor.to(device) for tensor in inputs)


def _broken(what: str, got: str) -> UserError:
    return UserError(
        f"self-check: {what}",
        got=got,
        fix="nothing was trained; this is a fault of the model or of the code that built it",
    )
