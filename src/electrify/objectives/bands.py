"""Reference values for losses and metrics: chance levels, typical ranges and alarms.

"Is my loss normal?" has few honest answers: losses depend on the vocabulary, the text and the
networks. Chance levels apply to every run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, log, nan
from typing import NamedTuple

from electrify.recipes.schema import Recipe

Metrics = dict[str, float]

LEAST_PATIENCE, MOST_PATIENCE = 400, 5_000
PLATEAU = (0.65, 0.82)
"""Loss of predicting tokens by frequency alone, as a range of fractions of the uniform loss.

Measured: 0.69 and 0.79.
"""
MASKED_LM_HINT = (
    "How badly masked tokens are predicted; lower is better. Below guessing by frequency, the "
    "network uses the context."
)
FALSE_ALARMS = 0.05
"""The false-alarm rate at which detectors are compared: `recall_at_5`."""
NEAR_FREQUENCY = 0.03
"""A loss this close to the measured one of guessing by frequency, as a fraction, is no better."""


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


class Detection(NamedTuple):
    """How well replaced tokens are told from original ones; NaN where it was not measured."""

    auc: float
    recall: float = nan
    """Fraction of the replaced tokens that are flagged at the false-alarm rate."""
    false_alarm_rate: float = FALSE_ALARMS


def sentence(clauses: str) -> str:
    """Return clauses as a sentence; an empty string stays empty.

    >>> sentence("the loss is below chance")
    'The loss is below chance.'
    """
    return f"{clauses[0].upper()}{clauses[1:]}." if clauses else ""


def masked_lm_reading(network: str, loss: float, sizes: Sizes, latest: Metrics) -> str:
    """Interpret the loss of a masked language model in one clause; empty if it is NaN."""
    low, high = frequency_range(sizes, latest)
    if loss > high:
        return f"the {network} does not predict better than by token frequency yet"
    if loss >= low:
        return f"the {network} still predicts tokens mostly by frequency (normal early on)"
    return f"the {network} predicts better than by token frequency" if loss < low else ""


def masked_lm_details(label: str, loss: float, sizes: Sizes, latest: Metrics) -> list[str]:
    """Return sentences that compare the loss of a masked language model with guessing."""
    low, high = frequency_range(sizes, latest)
    measured = latest.get("unigram_loss", nan)
    frequency = f"between {low:.1f} and {high:.1f}" if isnan(measured) else f"{measured:.2f}"
    text = (
        f"{label} {loss:.2f}: uniform guessing gives {sizes.uniform_loss:.2f}, "
        f"guessing by token frequency {frequency}."
    )
    normal = (
        "Post-norm encoders (ELECTRA, BERT) stay in that range for thousands of steps, which is "
        "normal."
    )
    return [text, normal] if low <= loss <= high else [text]


def guessing_levels(sizes: Sizes, latest: Metrics) -> list[tuple[float, str]]:
    """Return the loss of uniform guessing and, if it was measured, of guessing by frequency."""
    levels = [(sizes.uniform_loss, f"uniform guessing {sizes.uniform_loss:.2f}")]
    if not isnan(measured := latest.get("unigram_loss", nan)):
        levels.append((measured, f"guessing by frequency {measured:.2f}"))
    return levels


def frequency_band(sizes: Sizes, latest: Metrics) -> list[tuple[float, float, str]]:
    """Return the usual losses of guessing by token frequency, unless the run measured its own."""
    if not isnan(latest.get("unigram_loss", nan)):
        return []
    return [(*frequency_range(sizes, latest), "guessing by frequency")]


def frequency_range(sizes: Sizes, latest: Metrics) -> tuple[float, float]:
    """Return the losses that count as guessing by token frequency: near the measured one if any."""
    if isnan(measured := latest.get("unigram_loss", nan)):
        return PLATEAU[0] * sizes.uniform_loss, PLATEAU[1] * sizes.uniform_loss
    return measured * (1 - NEAR_FREQUENCY), measured * (1 + NEAR_FREQUENCY)
