"""Reference values for losses and metrics: chance levels, typical ranges and alarms.

"Is my loss normal?" has few honest answers: losses depend on the vocabulary, the text and the
networks. Chance levels apply to every run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, nan
from typing import NamedTuple

from electrify.recipes.schema import Recipe

Metrics = dict[str, float]

LEAST_PATIENCE, MOST_PATIENCE = 400, 5_000
PLATEAU = (0.65, 0.82)
"""Loss of predicting tokens by frequency alone, as a range of fractions of the uniform loss.

Measured: 0.69 and 0.79.
"""


class Sizes(NamedTuple):
    """The settings of a run that its losses depend on."""

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
        """The loss of uniform guessing over the vocabulary."""
        return log(self.vocab_size)

    @property
    def patience(self) -> int:
        """Number of steps before alarms are raised: half the warm-up, within bounds."""
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
    """Metrics that somebody published for a run, at one step."""

    step: int
    metrics: Metrics


@dataclass(frozen=True)
class Observation:
    """What an alarm is decided by; `seen["auc"]` is NaN if it was not measured."""

    step: int
    sizes: Sizes
    metrics: Metrics
    best: float = 0.0
    """The best value of the watched metric since alarms were enabled."""
    rising: bool = False
    """Whether the watched metric is increasing."""

    def __getitem__(self, metric: str) -> float:
        return self.metrics.get(metric, nan)


class Alarm(NamedTuple):
    """A training failure that raises no exception."""

    kind: str
    holds: Callable[[Observation], bool]
    """Return whether the metrics of one logging interval show this failure."""
    text: Callable[[Observation], str]
    """Return the symptom, its usual causes, and the options to change."""


def not_learning(network: str, metric: str, causes: str) -> Alarm:
    """Return the alarm for a masked language model whose loss stays at uniform guessing."""
    return Alarm(
        "generator learns nothing",  # checkpoints store alarms under this name
        lambda seen: seen[metric] > seen.sizes.uniform_loss - 0.25,
        lambda seen: (
            f"the {network} is not learning: loss {seen[metric]:.2f} after {seen.step:,} steps, "
            f"while uniform guessing gives {seen.sizes.uniform_loss:.2f}. Usual causes: {causes}"
        ),
    )


def sentence(clauses: str) -> str:
    """Return clauses as a sentence; an empty string stays empty.

    >>> sentence("the loss is below chance")
    'The loss is below chance.'
    """
    return f"{clauses[0].upper()}{clauses[1:]}." if clauses else ""


def masked_lm_reading(network: str, loss: float, sizes: Sizes) -> str:
    """Interpret the loss of a masked language model in one clause; empty if it is NaN."""
    ((low, high, _),) = frequency_band(sizes)
    if loss > high:
        return f"the {network} does not predict better than by token frequency yet"
    if loss >= low:
        return f"the {network} still predicts tokens mostly by frequency (normal early on)"
    return f"the {network} predicts better than by token frequency" if loss < low else ""


def masked_lm_details(label: str, loss: float, sizes: Sizes) -> list[str]:
    """Return sentences that compare the loss of a masked language model with guessing."""
    ((low, high, _),) = frequency_band(sizes)
    text = (
        f"{label} {loss:.2f}: uniform guessing gives {sizes.uniform_loss:.2f}, "
        f"guessing by token frequency between {low:.1f} and {high:.1f}."
    )
    normal = (
        "Post-norm encoders (ELECTRA, BERT) stay in that range for thousands of steps, which is "
        "normal."
    )
    return [text, normal] if low <= loss <= high else [text]


def uniform_level(sizes: Sizes, latest: Metrics) -> list[tuple[float, str]]:
    """Return the loss of uniform guessing."""
    return [(sizes.uniform_loss, f"uniform guessing {sizes.uniform_loss:.2f}")]


def frequency_band(sizes: Sizes) -> list[tuple[float, float, str]]:
    """Return the range of losses of guessing by token frequency."""
    low, high = (fraction * sizes.uniform_loss for fraction in PLATEAU)
    return [(low, high, "guessing by frequency")]
