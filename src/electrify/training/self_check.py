"""What must hold before the first step, checked on a few tokens in less than two seconds.

Each of these faults trains without complaint and ends in a worse model: a tie that broke, a
parameter that the optimizer moves twice or never, padding that is part of a loss.
"""

# B batch, L length, N slots a row

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.models.export import in_evaluation
from electrify.models.pair import REFUSALS, Vocabulary
from electrify.objectives.objective import Objective
from electrify.recipes.schema import Recipe
from electrify.training.optim import named_owners
from electrify.training.state import weights_norm

ROWS, REAL, LENGTH = 2, 12, 16


def self_check(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    vocabulary: Vocabulary,
    mask: int,
) -> list[str]:
    """Raise if something is wrong; returns the names of parameters that no loss reaches."""
    if broken := objective.broken_ties(recipe):
        raise _broken("the networks do not share what they should", broken[0])
    check_listed_once(objective, optimizer)
    check_finite(objective)
    return check_padding(objective, vocabulary, mask)


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


def check_padding(objective: Objective, vocabulary: Vocabulary, mask: int) -> list[str]:
    """No gradient comes from padding or from unused slots, and some comes from real tokens.

    Returns the names of parameters that got no gradient at all.
    """
    batch = _few_tokens(vocabulary, mask, next(objective.parameters()).device)
    seen: dict[str, Tensor] = {}

    def keep(role: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            output.logits.retain_grad()
            seen[role] = output.logits

        return hook

    handles = [
        network.register_forward_hook(keep(role))
        for role, network in objective.networks.items()
        if objective.roles[role].every_token and objective.weight_of(role) > 0
    ]
    with torch.random.fork_rng(devices=[]), in_evaluation(objective):
        try:
            loss, _ = objective(batch, batch.totals())
            loss.backward()
        except (*REFUSALS, IndexError) as error:
            raise UserError(
                "self-check: the networks of this recipe cannot read a few tokens",
                got=f"{type(error).__name__}: {error}",
                fix="change the fields in [discriminator.config] or [generator.config]: heads must "
                "divide the width",
            ) from error
        finally:
            for handle in handles:
                handle.remove()
    untouched = [name for name, _, parameter in named_owners(objective) if parameter.grad is None]
    objective.zero_grad(set_to_none=True)
    for role, logits in seen.items():
        if logits.grad is None:
            continue
        gradient_BL = logits.grad.flatten(2).abs().sum(-1) if logits.ndim > 2 else logits.grad
        if gradient_BL[batch.attention_BL == 0].any():
            raise _broken(f"padding is part of the {role}'s loss", "a gradient at padding")
        if not gradient_BL[batch.attention_BL == 1].all():
            raise _broken(f"a real token is not part of the {role}'s loss", "no gradient")
    if not torch.isfinite(loss):
        raise _broken("the loss of a few tokens is not finite", f"{float(loss.detach())}")
    return untouched


def _few_tokens(vocabulary: Vocabulary, mask: int, device: torch.device) -> Batch[Tensor]:
    """Two rows of any tokens, the second with padding and with an unused slot."""
    ids_BL = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % vocabulary.size
    ids_BL[(ids_BL == mask) | (ids_BL == vocabulary.pad)] = vocabulary.cls
    attention_BL = torch.ones_like(ids_BL)
    ids_BL[1, REAL:], attention_BL[1, REAL:] = vocabulary.pad, 0
    positions_BN = torch.tensor([[1, 3], [2, 0]])
    masked_BL = ids_BL.clone()
    masked_BL[0, [1, 3]], masked_BL[1, 2] = mask, mask
    batch = Batch(
        ids_BL,
        masked_BL,
        attention_BL,
        torch.zeros_like(ids_BL),
        positions_BN,
        torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        torch.tensor([[0.3, 0.6], [0.9, 0.5]]),
    )
    return batch.map(lambda tensor: tensor.to(device))


def _broken(what: str, got: str) -> UserError:
    return UserError(
        f"self-check: {what}",
        got=got,
        fix="nothing was trained; this is a fault of the model or of the code that built it",
    )
