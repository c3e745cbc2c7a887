"""What every objective answers for: its networks, its loss, its metrics, and how they are shown.

An objective is one class in one file, and one row of `recipes.schema.OBJECTIVES`. Everything that
depends on the objective (planning, training, export, model card, report) asks the class.
"""

# V vocabulary

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from electrify.batches.batch import Batch, Totals
from electrify.config import named, unknown
from electrify.models.fast import enable_fast_path
from electrify.models.initialise import start_at_counts
from electrify.models.pair import Vocabulary
from electrify.objectives.bands import Alarm, Metrics, Reference, Sizes
from electrify.recipes.schema import OBJECTIVES, Recipe

Sums = dict[str, Tensor]
"""What metrics are computed from: adds up over micro-batches, steps and processes."""


class Role(NamedTuple):
    """One network of an objective, which is an attribute of it under the same name."""

    says: str
    """What it does, for its model card."""
    section: str = "discriminator"
    """The section of the recipe that it is built from."""
    every_token: bool = False
    """Whether its head sees every token, or the masked positions alone."""


class Metric(NamedTuple):
    """How a metric is shown."""

    label: str
    form: str = ".3f"
    card: str = ""
    """What the model card calls it; left out of it if empty."""
    curve: str = ""
    """The title of its curve; not drawn if empty."""
    short: str = ""
    """What the progress line calls it; not on it if empty."""
    levels: Callable[[Sizes, Metrics], list[tuple[float, str]]] = lambda sizes, latest: []
    """What to compare it with, given the newest metrics: values and what they are."""
    bands: Callable[[Sizes], list[tuple[float, float, str]]] = lambda sizes: []
    """Ranges that mean something: from, to, and what."""


class Objective(nn.Module, ABC):
    """A loss over networks: called with some rows of a batch and the totals of the whole batch."""

    roles: ClassVar[Mapping[str, Role]]
    """Its networks by name, in the order in which they are listed and exported."""
    main: ClassVar[str]
    """The network whose encoder is what one pre-trains for."""
    shown: ClassVar[Mapping[str, Metric]]
    """Its metrics, the most telling first."""
    alarms: ClassVar[tuple[Alarm, ...]] = ()
    watched: ClassVar[str] = ""
    """The metric whose rise and fall the alarms follow; the higher the better."""
    former_names: ClassVar[Mapping[str, str]] = {}
    """Names that its metrics and sums had in runs of before, and those they have now."""
    notes: tuple[str, ...] = ()
    """In words: what networks could not share, and what released weights did not hold."""

    @classmethod
    @abstractmethod
    def build(cls, recipe: Recipe, vocabulary: Vocabulary) -> Self:
        """Build the networks of a recipe with their starting weights."""

    @abstractmethod
    def forward(self, batch: Batch[Tensor], totals: Totals) -> tuple[Tensor, Sums]:
        """Return these rows' share of the loss, and their sums for the metrics."""

    @staticmethod
    @abstractmethod
    def metrics(sums: Sums, batches: int = 1) -> dict[str, float]:
        """Return the metrics of some batches from the sums over them."""

    @classmethod
    def reading(cls, sizes: Sizes, step: int, metrics: Metrics) -> str:
        """Say in words what validation metrics mean."""
        values = (f"{m.label} {metrics[n]:{m.form}}" for n, m in cls.shown.items() if n in metrics)
        return ", ".join(values)

    @classmethod
    def reference(cls, sizes: Sizes) -> Reference | None:
        """Return what somebody's run of the same sizes showed, if that is known."""
        return None

    @property
    def networks(self) -> dict[str, Any]:
        """The networks by role."""
        return {role: getattr(self, role) for role in self.roles}

    def weight_of(self, role: str) -> float:
        """Return the weight of a network's loss: with 0 it is not trained by it."""
        return 1.0

    def broken_ties(self, recipe: Recipe) -> list[str]:
        """Return what the networks should share by the recipe, and do not."""
        return []

    def start_at_frequencies(self, counts_V: Tensor, mask_rate: float) -> None:
        """Let heads start with what is true of any text, so that encoders need not learn it."""
        for role, network in self.networks.items():
            if not self.roles[role].every_token:
                start_at_counts(network, role, counts_V)

    def config_fields(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the configuration of the main network keeps of its last evaluation."""
        return {}


def objective_class(kind: str) -> type[Objective]:
    """Return the class of a kind of objective."""
    if kind not in OBJECTIVES:
        raise unknown("objective.kind", kind, OBJECTIVES, "objective")
    found: type[Objective] = named(OBJECTIVES[kind].where)
    return found


def build_objective(recipe: Recipe, vocabulary: Vocabulary, fast: bool = True) -> Objective:
    """Build the objective of a recipe; without `fast`, attention and dropout stay transformers'."""
    objective = objective_class(recipe.objective.kind).build(recipe, vocabulary)
    if fast and torch.get_default_device().type != "meta":
        for network in objective.networks.values():
            enable_fast_path(network)
    return objective


def fraction(part: float, whole: float) -> float:
    """Return a fraction; not a number of nothing."""
    return part / whole if whole else float("nan")
