"""The recipe with which a released model continues on other text."""

from dataclasses import replace
from typing import Any

from electrify.models.base import BaseModel
from electrify.models.pretrained import open_config
from electrify.pipeline.choices import Setting
from electrify.recipes.schedules import Schedules
from electrify.recipes.schema import (
    Discriminator,
    Generator,
    ObjectiveSettings,
    Optimizer,
    Recipe,
    Run,
)

RATE_OF_RECIPE = 0.25
"""Learning rate as a fraction of that which the base was trained with from random weights."""
SMALL, SMALL_RATE, LARGE_RATE = 512, 3e-4, 1e-4
"""Hidden size up to which a released encoder has the first of these learning rates."""
WARMUP = 0.06
"""Fraction of the steps in which the learning rate rises again."""
GENERATOR_DEPTH = 0.5
"""Fraction of the encoder's layers of a generator that is made from them."""
STEPS = 10_000  # the budget sets the number; intervals and warm-up are in proportion
CPU_LENGTH, GPU_LENGTH = 64, 128
CPU_BATCH, GPU_BATCH = 16, 64


def choose_continuation(base: BaseModel, cuda: bool, longest: int) -> list[Setting]:
    """Choose objective, length, batch size and learning rate for a base and a machine."""
    recipe, device = base.recipe, "a GPU" if cuda else "a CPU"
    objective, reason = "mlm", "there is no discriminator"
    if base.discriminator:
        objective, reason = "rtd", "the model has a discriminator"
    length, why_length = GPU_LENGTH if cuda else CPU_LENGTH, f"on {device}"
    size, why_size = GPU_BATCH if cuda else CPU_BATCH, f"on {device}"
    if recipe is not None:
        length = recipe.run.length
        size = recipe.run.batch_size
        why_length = why_size = "as the model was trained"
    if length > longest:
        length, why_length = longest, "the longest text that the model reads"
    if recipe is not None:
        rate = RATE_OF_RECIPE * recipe.optimizer.lr
        why_rate = f"{RATE_OF_RECIPE:.0%} of the {recipe.optimizer.lr:g} that it was trained with"
    else:
        width = int(base.config.hidden_size)
        rate = SMALL_RATE if width <= SMALL else LARGE_RATE
        why_rate = f"for a hidden size of {width}"
    return [
        Setting("objective", objective, reason),
        Setting("length", length, why_length),
        Setting("batch_size", size, why_size),
        Setting("lr", rate, why_rate),
    ]


def continuation(base: BaseModel, chosen: Any, seed: int) -> Recipe:
    """Return the recipe for a base with the chosen objective, length, batch size and rate."""
    objective, own = chosen["objective"], base.recipe or _from_defaults()
    architecture = base.config.model_type
    if objective == "mlm":
        part = Discriminator(
            architecture, init_from=network_before(base, objective) or base.encoder
        )
        recipe = replace(
            Recipe(discriminator=part),
            objective=ObjectiveSettings("mlm", mask_rate=own.objective.mask_rate),
            optimizer=own.optimizer,
            run=own.run,
        )
    else:
        recipe = replace(
            own,
            discriminator=Discriminator(architecture, init_from=base.discriminator or base.encoder),
            generator=_generator(base, own),
            objective=replace(own.objective, kind="rtd"),
            schedules=Schedules(),
        )
    new_head = not network_before(base, objective) or (
        objective == "rtd" and not base.discriminator
    )
    return replace(
        recipe,
        optimizer=replace(
            recipe.optimizer, lr=chosen["lr"], warmup=round(WARMUP * STEPS), schedule="linear"
        ),
        run=replace(
            recipe.run,
            steps=STEPS,
            batch_size=chosen["batch_size"],
            length=chosen["length"],
            seed=seed,
            output_bias="frequencies" if new_head else "zero",
            precision="auto",
            packing=False,
            log_every=100,
            eval_every=1_000,
            save_every=1_000,
            keep_percent=(),
        ),
    )


def network_before(base: BaseModel, objective: str) -> str:
    """Return the released masked LM that continues with an objective; empty if it has none.

    A generator continues as a generator: masked language modelling trains the discriminator's
    encoder, with a new head.
    """
    return "" if objective == "mlm" and base.discriminator else base.masked_lm


def _generator(base: BaseModel, own: Recipe) -> Generator:
    """Return the generator: the released one, or a new one from the encoder's first layers."""
    if base.discriminator and base.masked_lm:
        other = open_config(base.masked_lm).model_type
        same = other == base.config.model_type
        return Generator("" if same else other, init_from=base.masked_lm)
    return Generator(depth=own.generator.depth if base.recipe else GENERATOR_DEPTH)


def _from_defaults() -> Recipe:
    return Recipe(optimizer=Optimizer("adamw", beta2=0.98), run=Run(init="huggingface"))
