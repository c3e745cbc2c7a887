"""Which losses and metrics are normal: what chance gives, and what is alarming.

"Is my loss normal?" has few honest answers: losses depend on the vocabulary, the text and the
networks. Chance levels hold for every run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, nan
from typing import NamedTuple

from electrify.recipes.schema import Recipe

Metrics = dict[str, float]

LEAST_PATIENCE, MOST_PATIENCE = 400, 5_000
PLATEAU = (0.65, 0.82)
"""Shares of chance at which text guessed by frequency alone lies: 0.69 and 0.79 were measured."""


class Sizes(NamedTuple):
    """What the losses of a run depend on, as far as it is known beforehand."""

    vocab_size: int
    mask_rate: float = 0.15
    warmup: int = 10_000
    objective: str = "rtd"
    architecture: str = ""
    width: int = 0
    batch_size: int = 0
    length: int = 0

    @property
    def uniform_loss(self) -> float:
        """The loss of a masked language model that knows nothing."""
        return log(self.vocab_size)

    @property
    def patience(self) -> int:
        """Steps before a run can be judged: half the warm-up, within bounds."""
        return min(max(self.warmup // 2, LEAST_PATIENCE), MOST_PATIENCE)


def sizes_of(recipe: Recipe, vocab_size: int) -> Sizes:
    """Return the sizes of a recipe with a vocabulary."""
    return Sizes(
        vocab_size,
        recipe.objective.mask_rate,
        recipe.optimizer.warmup,
        recipe.objective.kind,
        recipe.discriminator.architecture,
        int(recipe.discriminator.config.get("hidden_size", 0)),
        recipe.run.batch_size,
        recipe.run.length,
    )


class Reference(NamedTuple):
    """What somebody's run showed."""

    step: int
    metrics: Metrics


@dataclass(frozen=True)
class Seen:
    """What an alarm is decided by; `seen["auc"]` is not a number if it was not measured."""

    step: int
    sizes: Sizes
    metrics: Metrics
    best: float = 0.0
    """The best of the watched metric since the run could first be judged."""
    rising: bool = False
    """Whether the watched metric has been going up."""

    def __getitem__(self, metric: str) -> float:
        return self.metrics.get(metric, nan)


class Alarm(NamedTuple):
    """Something that goes wrong without an error."""

    kind: str
    holds: Callable[[Seen], bool]
    """Whether the numbers of one interval look like it."""
    text: Callable[[Seen], str]
    """What is seen, usual causes, and the options to change."""


def not_learning(network: str, metric: str, causes: str) -> Alarm:
    """Return the alarm of a masked language model whose loss stays at that of guessing."""
    return Alarm(
        "generator learns nothing",  # the name under which checkpoints remember it
        lambda seen: seen[metric] > seen.sizes.uniform_loss - 0.25,
        lambda seen: (
            f"the {network} learns nothing: loss {seen[metric]:.2f} after {seen.step:,} steps, "
            f"where chance is {seen.sizes.uniform_loss:.2f}. Usual causes: {causes}"
        ),
    )


def masked_lm_reading(label: str, loss: float, sizes: Sizes) -> list[str]:
    """Say how the loss of a masked language model compares with guessing."""
    said = [f"{label} {loss:.2f}, chance {sizes.uniform_loss:.2f}"]
    ((low, high, _),) = frequency_band(sizes)
    if low <= loss <= high:
        said.append(
            f"between {low:.1f} and {high:.1f} tokens are guessed mostly by frequency; bodies with "
            "post-norm (ELECTRA, BERT) stay there for thousands of steps, which is normal"
        )
    return said


def uniform_level(sizes: Sizes, latest: Metrics) -> list[tuple[float, str]]:
    """Return the loss of uniform guessing."""
    return [(sizes.uniform_loss, f"chance {sizes.uniform_loss:.2f}")]


def frequency_band(sizes: Sizes) -> list[tuple[float, float, str]]:
    """Return the losses of guessing by the tokens' frequencies."""
    low, high = (share * sizes.uniform_loss for share in PLATEAU)
    return [(low, high, "guessing by frequency")]
