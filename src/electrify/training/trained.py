"""A run's networks with the weights of one of its checkpoints, to be exported or asked."""

import sys
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file

from electrify.errors import DamagedError, UserError
from electrify.objectives.objective import Objective, build_objective
from electrify.recipes.schema import Recipe
from electrify.tokens import tokenizer as tokenizers
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training import checkpoint
from electrify.training.checkpoint import Stored
from electrify.training.data import vocabulary_of
from electrify.training.folder import RunFolder
from electrify.training.options import NEWEST
from electrify.training.state import load_model


class Trained(NamedTuple):
    """What a run has come to at a step."""

    step: int
    recipe: Recipe
    tokenizer: LoadedTokenizer
    objective: Objective
    """In evaluation mode."""


def load_trained(run: Path, step: int = NEWEST) -> Trained:
    """The networks of a run at a step, or at its newest whole checkpoint."""
    folder = RunFolder(run)
    recipe = folder.recipe
    chosen = _chosen(folder, step)
    tokenizer = tokenizers.load_tokenizer(folder.tokenizer)
    objective = build_objective(folder.with_own_sizes(recipe), vocabulary_of(tokenizer))
    tensors = load_file(chosen.folder / "model.safetensors")
    load_model(objective, tensors, str(chosen.folder))
    objective.eval()
    return Trained(chosen.step, recipe, tokenizer, objective)


def _chosen(folder: RunFolder, step: int) -> Stored:
    if step == NEWEST:
        found = checkpoint.newest(folder.checkpoints, lambda text: print(text, file=sys.stderr))
        if found is not None:
            return found
        raise UserError(
            f"{folder.path} has no checkpoint yet",
            got="a run before its first save",
            fix=f"wait: it saves every {folder.recipe.run.save_every:,} steps",
        )
    known = checkpoint.stored(folder.checkpoints)
    for one in known:
        if one.step == step and not (wrong := checkpoint.faults(one.folder)):
            return one
        if one.step == step:
            raise DamagedError(
                f"{one.folder} is damaged", got="; ".join(wrong), fix="take another --step"
            )
    raise UserError(
        f"{folder.path} has no such checkpoint",
        got=f"--step {step}",
        fix=f"there are: {', '.join(str(one.step) for one in known)}" if known else "train first",
    )
