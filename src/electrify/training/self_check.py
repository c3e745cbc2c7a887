"""Checks before the first step, on a few tokens, in less than two seconds.

Each of these faults raises no error in training and gives a worse model: weights that are no longer
tied, a parameter that the optimizer updates twice or never, padding that contributes to a loss.
"""

# B batch, L length, N slots per row

from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch
from electrify.errors import UserError
from electrify.models.export import in_evaluation
from electrify.models.inputs import call
from electrify.models.pair import BUILD_ERRORS, Vocabulary
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
    """Raise an error if something is wrong; returns the names of parameters without a gradient."""
    if broken := objective.broken_ties(recipe):
        raise _failed("the networks do not share the weights they should", broken[0])
    check_listed_once(objective, optimizer)
    check_finite(objective)
    return check_padding(objective, vocabulary, mask)


def check_listed_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Check that the optimizer has every trainable parameter exactly once."""
    listed = [id(param) for group in optimizer.param_groups for param in group["params"]]
    if len(listed) != len(set(listed)):
        raise _failed("the optimizer would update a parameter twice", f"{len(listed)} entries")
    owned = {id(parameter): name for name, _, parameter in named_owners(model)}
    if missing := [name for key, name in owned.items() if key not in set(listed)]:
        raise _failed("the optimizer would never update a parameter", missing[0])
    if len(set(listed) - set(owned)):
        raise _failed(
            "the optimizer has parameters that are not the model's", f"{len(listed)} entries"
        )


def check_finite(model: nn.Module) -> None:
    """Check that every weight is finite; those of a pre-trained model may not be."""
    norm = weights_norm(model)
    if not isfinite(norm):
        raise UserError(
            "self-check: the starting weights are not finite",
            got=f"their norm is {norm}",
            fix="use another model for --discriminator.init-from or --generator.init-from",
        )


def check_padding(objective: Objective, vocabulary: Vocabulary, mask: int) -> list[str]:
    """Check that every real token contributes to the loss, and padding and unused slots do not.

    Returns the names of parameters without a gradient.
    """
    batch = _few_tokens(vocabulary, mask, next(objective.parameters()).device)
    logits_of: dict[str, Tensor] = {}

    def keep_logits(role: str, module: nn.Module, arguments: Any, output: Any) -> None:
        output.logits.retain_grad()
        logits_of[role] = output.logits

    handles = [
        network.register_forward_hook(partial(keep_logits, role))
        for role, network in objective.networks.items()
        if objective.roles[role].every_token and objective.weight_of(role) > 0
    ]
    with torch.random.fork_rng(devices=[]), in_evaluation(objective):
        try:
            loss, _ = objective(batch, batch.totals())
            loss.backward()
        except (*BUILD_ERRORS, IndexError) as error:
            raise UserError(
                "self-check: the networks of this recipe fail on a small batch",
                got=f"{type(error).__name__}: {error}",
                fix="change [discriminator.config] or [generator.config]; the number of attention "
                "heads must divide the width",
            ) from error
        finally:
            for handle in handles:
                handle.remove()
    unused = [name for name, _, parameter in named_owners(objective) if parameter.grad is None]
    objective.zero_grad(set_to_none=True)
    for role, logits in logits_of.items():
        if logits.grad is None:
            continue
        gradient_BL = logits.grad.flatten(2).abs().sum(-1) if logits.ndim > 2 else logits.grad
        if gradient_BL[batch.attention_BL == 0].any():
            raise _failed(f"padding is part of the {role}'s loss", "a gradient at padding")
        if not gradient_BL[batch.attention_BL == 1].all():
            raise _failed(f"a real token is not part of the {role}'s loss", "no gradient")
    if not torch.isfinite(loss):
        raise _failed("the loss of a small batch is not finite", f"{float(loss.detach())}")
    return unused


def check_packing(network: Any, vocabulary: Vocabulary, length: int) -> None:
    """Check that the output for a document does not depend on the others in its row.

    Documents A and B make the rows A A and A B: the first document of both rows must have the same
    output, and those of the first row as well, up to rounding. Some architectures mix neighbouring
    tokens outside attention, and some take no mask of pairs of tokens.
    """
    half = min(length // 2, MOST_CHECKED)
    first_L = torch.arange(half) * 7 % vocabulary.size
    ids_BL = torch.stack([first_L, first_L, first_L, (first_L + 1) % vocabulary.size]).view(2, -1)
    zeros_BL = torch.zeros_like(ids_BL)
    none_BN = torch.zeros(2, 0)
    starts_BK = torch.tensor([[0, half, 2 * half]] * 2)
    batch = Batch(ids_BL, ids_BL, zeros_BL + 1, zeros_BL, none_BN, none_BN, none_BN, starts_BK)
    batch = batch.map(lambda tensor: tensor.to(next(network.parameters()).device))
    try:
        with torch.random.fork_rng(devices=[]), in_evaluation(network), torch.no_grad():
            logits = call(network, batch.ids_BL, batch).logits.float()
    except (*BUILD_ERRORS, IndexError) as error:
        raise _cannot_pack(network, f"{type(error).__name__}: {error}") from error
    scale = float(logits.abs().max())
    neighbour = float((logits[0, :half] - logits[1, :half]).abs().max())
    order = float((logits[0, :half] - logits[0, half:]).abs().max())
    if not (neighbour <= 1e-6 * scale and order <= ROUNDING * scale):
        by = f"{neighbour:.2g} with its neighbour and by {order:.2g} with its place in the row"
        raise _cannot_pack(network, f"the logits of a document change by {by}")


MOST_CHECKED = 256  # tokens per document
ROUNDING = 0.02  # relative, of 16 bits; positions that do not start at 0 change logits by far more


def _cannot_pack(network: Any, got: str) -> UserError:
    return UserError(
        f"{network.config.model_type} cannot keep the documents of a packed row apart",
        got=got,
        fix="add --run.no-packing, or use an architecture that docs/architectures.md lists as "
        "packing",
    )


def _few_tokens(vocabulary: Vocabulary, mask: int, device: torch.device) -> Batch[Tensor]:
    """Return two rows of arbitrary tokens, the second with padding and an unused slot."""
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


def _failed(what: str, got: str) -> UserError:
    return UserError(
        f"self-check: {what}",
        got=got,
        fix="nothing was trained; this is a bug in the model or in the code that built it",
    )
