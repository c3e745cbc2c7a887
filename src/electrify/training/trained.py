"""Load the networks of a run with the weights of one of its checkpoints."""

import sys
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import load_file

from electrify.errors import DamagedError, UserError
from electrify.objectives.objective import Objective, build_objective
from electrify.recipes.schema import Recipe
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training import checkpoint
from electrify.training.checkpoint import Stored
from electrify.training.data import vocabulary_of
from electrify.training.folder import RunFolder
from electrify.training.options import NEWEST
from electrify.training.state import load_model


class Trained(NamedTuple):
    """The networks of a run at a step."""

    step: int
    recipe: Recipe
    tokenizer: LoadedTokenizer
    objective: Objective
    """In evaluation mode."""


def load_trained(run: Path, step: int = NEWEST) -> Trained:
    """Load the networks of a run at a step, or at its newest intact checkpoint."""
    folder = RunFolder(run)
    recipe = folder.recipe
    chosen = _checkpoint_at(folder, step)
    tokenizer = folder.load_tokenizer()
    objective = build_objective(folder.with_own_sizes(recipe), vocabulary_of(tokenizer))
    tensors = load_file(chosen.folder / "model.safetensors")
    load_model(objective, tensors, str(chosen.folder))
    objective.eval()
    return Trained(chosen.step, recipe, tokenizer, objective)


def _checkpoint_at(folder: RunFolder, step: int) -> Stored:
    run = folder.fingerprints
    if step == NEWEST:
        warn = lambda text: print(text, file=sys.stderr)  # noqa: E731
        found = checkpoint.newest(folder.checkpoints, warn, run)
        if found is not None:
            return found
        raise UserError(
            f"{folder.path} has no checkpoint yet",
            got="a run before its first checkpoint",
            fix=f"wait: it saves every {folder.recipe.run.save_every:,} steps",
        )
    stored = {candidate.step: candidate for candidate in checkpoint.stored(folder.checkpoints)}
    if step not in stored:
        own = ", ".join(str(candidate.step) for candidate in folder.saved())
        raise UserError(
            f"{folder.path} has no such checkpoint",
            got=f"--step {step}",
            fix=f"use one of {own}" if own else "train first",
        )
    if faults := checkpoint.faults(stored[step].folder, run(step)):
        raise DamagedError(
            f"{stored[step].folder} is damaged", got="; ".join(faults), fix="use another --step"
        )
    return stored[step]
