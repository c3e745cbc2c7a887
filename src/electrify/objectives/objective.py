"""The base class of objectives: networks, loss, metrics, and how metrics are shown.

An objective is one class in one module, and one row of `recipes.schema.OBJECTIVES`. Everything that
depends on the objective (planning, training, export, model card, report) asks the class.
"""

# V vocabulary

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import nan
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch, Totals
from electrify.config import named, unknown
from electrify.models.fast import enable_fast_path
from electrify.models.initialise import set_bias_from_counts
from electrify.models.pair import Vocabulary
from electrify.objectives.bands import Alarm, Detection, Metrics, Reference, Sizes
from electrify.recipes.schema import OBJECTIVES, Recipe

Sums = dict[str, Tensor]
"""What metrics are computed from; summed over micro-batches, steps and processes."""


class Role(NamedTuple):
    """One network of an objective, stored as an attribute under the same name."""

    description: str
    """What it does, for its model card."""
    section: str = "discriminator"
    """The recipe section that it is built from."""
    every_token: bool = False
    """Whether its head runs on every token, or only on the masked positions."""


class Metric(NamedTuple):
    """How a metric is shown."""

    label: str
    form: str = ".3f"
    card: str = ""
    """Its name in the model card; omitted if empty."""
    curve: str = ""
    """The title of its curve; not drawn if empty."""
    short: str = ""
    """Its name in the progress line; omitted if empty."""
    levels: Callable[[Sizes, Metrics], list[tuple[float, str]]] = lambda sizes, latest: []
    """Return values to compare it with, given the latest metrics, and a label for each."""
    bands: Callable[[Sizes, Metrics], list[tuple[float, float, str]]] = lambda sizes, latest: []
    """Return ranges to compare it with: lower bound, upper bound, label."""
    hint: str = ""
    """How to read its curve, in one sentence."""


class Objective(nn.Module, ABC):
    """A loss over networks, called with some rows of a batch and the totals of the global batch."""

    roles: ClassVar[Mapping[str, Role]]
    """Its networks by name, in the order in which they are listed and exported."""
    main: ClassVar[str]
    """The network whose encoder is the result of pre-training."""
    shown: ClassVar[Mapping[str, Metric]]
    """Its metrics, the most informative first."""
    alarms: ClassVar[tuple[Alarm, ...]] = ()
    watched: ClassVar[str] = ""
    """The metric that alarms track over time; higher is better."""
    judged: ClassVar[str] = ""
    """The loss at masked tokens that a verdict is based on; there is no verdict if empty."""
    former_names: ClassVar[Mapping[str, str]] = {}
    """Names of its metrics and sums in older runs, and their current names."""
    notes: tuple[str, ...] = ()
    """What networks could not share, and what released weights did not contain."""

    @classmethod
    @abstractmethod
    def build(cls, recipe: Recipe, vocabulary: Vocabulary) -> Self:
        """Build the networks of a recipe with their initial weights."""

    @abstractmethod
    def forward(self, batch: Batch[Tensor], totals: Totals) -> tuple[Tensor, Sums]:
        """Return the contribution of these rows to the loss, and their sums for the metrics."""

    @staticmethod
    @abstractmethod
    def metrics(sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the metrics of a number of batches from the sums over them."""

    @classmethod
    def validation_metrics(cls, sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the metrics of an evaluation, which may be more than those of training."""
        return cls.metrics(sums, batches)

    @classmethod
    def headline(cls, sizes: Sizes, metrics: Metrics) -> list[str]:
        """Return the main validation metrics, each with the values to compare it with."""
        shown = {n: metric for n, metric in cls.shown.items() if metric.curve and n in metrics}
        levels = {n: [label for _, label in m.levels(sizes, metrics)] for n, m in shown.items()}
        return [
            f"{metric.label} {_rounded(metrics[name])}"
            + (f" ({'; '.join(levels[name])})" if levels[name] else "")
            for name, metric in shown.items()
        ]

    @classmethod
    def reading(cls, sizes: Sizes, step: int, metrics: Metrics) -> str:
        """Return one sentence that interprets validation metrics, or an empty string."""
        return ""

    @classmethod
    def details(cls, sizes: Sizes, step: int, metrics: Metrics) -> list[str]:
        """Return sentences that compare validation metrics with reference values."""
        return []

    @classmethod
    def detection(cls, metrics: Metrics) -> Detection | None:
        """Return how well replaced tokens are detected, if that is the objective."""
        return None

    @classmethod
    def calibration(cls, metrics: Metrics) -> list[tuple[float, float]]:
        """Return predicted probabilities and how often they came true; empty if not measured."""
        return []

    @classmethod
    def reference(cls, sizes: Sizes) -> Reference | None:
        """Return the published metrics of a run with the same sizes, if there are any."""
        return None

    @property
    def networks(self) -> dict[str, Any]:
        """The networks by role."""
        return {role: getattr(self, role) for role in self.roles}

    def set_progress(self, done: float) -> None:
        """Set what changes during training, after a fraction of the steps."""

    def weight_of(self, role: str) -> float:
        """Return the weight of a network's loss; 0 if the loss does not train it."""
        return 1.0

    def broken_ties(self, recipe: Recipe) -> list[str]:
        """Return what the recipe says the networks share but they do not."""
        return []

    def set_output_biases(self, counts_V: Tensor, mask_rate: float) -> None:
        """Initialize new output biases at token frequencies, so encoders need not learn them."""
        for role, network in self.networks.items():
            if not self.roles[role].every_token:
                set_bias_from_counts(network, role, counts_V)

    def config_fields(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields of the last evaluation to store in the main network's config."""
        return {}


def objective_class(kind: str) -> type[Objective]:
    """Return the class of an objective kind."""
    if kind not in OBJECTIVES:
        raise unknown("objective.kind", kind, OBJECTIVES, "objective")
    cls: type[Objective] = named(OBJECTIVES[kind].where)
    return cls


def build_objective(recipe: Recipe, vocabulary: Vocabulary, fast: bool = True) -> Objective:
    """Build a recipe's objective; without `fast`, keep transformers' attention and dropout."""
    objective = objective_class(recipe.objective.kind).build(recipe, vocabulary)
    if fast and torch.get_default_device().type != "meta":
        for network in objective.networks.values():
            enable_fast_path(network)
    return objective


def _rounded(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def fraction(part: float, total: float) -> float:
    """Return part / total; NaN if the total is 0."""
    return part / total if total else nan
