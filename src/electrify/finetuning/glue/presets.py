"""Known ways to fine-tune on GLUE, each a row with a name that every result carries.

A preset also says which scores of a run are its score: papers differ in metrics and in the halves
of MNLI.

Sizes are told apart by width, as ELECTRA's own settings are: small up to 384, large from 1,024.
Sources: the paper's appendix; google-research/electra configure_finetuning.py; the experiments of
lmtuners (seed-003) and electra_pytorch (seed-004).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from electrify.finetuning.glue.tasks import GlueTask, Split
from electrify.finetuning.metrics import MetricName
from electrify.finetuning.options import Fit, HeadKind, InitHead, Reduction
from electrify.finetuning.stats import Aggregate

Size = Literal["small", "base", "large"]
AverageName = Literal["average", "seed-003 style", "GLUE"]
Reading = tuple[tuple[Split, MetricName], ...]
"""The scores of a run whose mean is its score."""


def _first(task: GlueTask) -> Reading:
    return (("dev", task.metrics[0]),)


def _first_of_both(task: GlueTask) -> Reading:
    return tuple((split, task.metrics[0]) for split in _dev_splits(task))


def _all_of_both(task: GlueTask) -> Reading:
    return tuple((split, metric) for split in _dev_splits(task) for metric in task.metrics)


def _dev_splits(task: GlueTask) -> list[Split]:
    return [split for split in task.files if split.startswith("dev")]


AVERAGES: dict[AverageName, Callable[[GlueTask], Reading]] = {
    "average": _first,
    "seed-003 style": _first_of_both,
    "GLUE": _all_of_both,
}
"""How a task's score is read for each average: the first metric, MNLI matched; the first metric,
MNLI matched and mismatched (lmtuners); the mean of all metrics (the GLUE server). None has WNLI."""


def described(reading: Reading) -> str:
    """Name the metrics of a reading, and both halves of a development set if it has both.

    >>> from electrify.finetuning.glue.tasks import TASKS
    >>> described(AVERAGES["seed-003 style"](TASKS["mnli"]))
    'accuracy, mean of matched and mismatched'
    """
    metrics = " and ".join(dict.fromkeys(metric for _, metric in reading))
    both = len({split for split, _ in reading}) > 1
    return f"{metrics}, mean of matched and mismatched" if both else metrics


def size_of(width: int) -> Size:
    """Which of ELECTRA's sizes a width is nearest to.

    >>> [size_of(width) for width in (256, 384, 768, 1024)]
    ['small', 'small', 'base', 'large']
    """
    if width >= 1024:
        return "large"
    return "small" if width <= 384 else "base"


@dataclass(frozen=True)
class Preset:
    """One way to fine-tune."""

    says: str
    seeds: int
    aggregate: Aggregate
    rates: Mapping[Size, float]
    fit: Fit
    head: HeadKind = "official"
    reduction: Reduction = "mean"
    decays: Mapping[Size, float] = field(
        default_factory=lambda: {"small": 0.8, "base": 0.8, "large": 0.9}
    )
    scaled: bool = True
    """Whether scores are divided by the upper end of their range to be learned."""
    doubled: bool = True
    """Whether MRPC and STS-B are seen in both orders."""
    chains: Mapping[str, str] = field(default_factory=dict)
    """From which other task's model a task starts."""
    task_rates: Mapping[str, float] = field(default_factory=dict)
    """Rates of single tasks in place of the size's."""
    task_epochs: Mapping[str, float] = field(default_factory=dict)
    """Epochs of single tasks in place of the table's."""
    average: AverageName = "average"
    """How the score of a run is read, in its cell and when the best run is chosen."""


_PAPER_RATES: dict[Size, float] = {"small": 3e-4, "base": 1e-4, "large": 5e-5}
_CODE_RATES: dict[Size, float] = {"small": 1e-4, "base": 1e-4, "large": 5e-5}
_NO_DECAY: dict[Size, float] = {"small": 1.0, "base": 1.0, "large": 1.0}

PRESETS = {
    "paper": Preset(
        "the paper's appendix: 3e-4 for small, no weight decay, layer-wise rates as intended",
        seeds=10,
        aggregate="median",
        rates=_PAPER_RATES,
        fit=Fit(weight_decay=0.0, layers="intended"),
    ),
    "official-code": Preset(
        "google-research/electra as it runs: 1e-4, summed loss, the exponent slip",
        seeds=10,
        aggregate="median",
        rates=_CODE_RATES,
        fit=Fit(weight_decay=0.01, layers="official"),
        reduction="sum",
    ),
    "seed-003": Preset(
        "lmtuners: own head, median of 5; RTE and STS-B from an MNLI model; RTE at 2e-5",
        seeds=5,
        aggregate="median",
        rates=_PAPER_RATES,
        fit=Fit(optimizer="adamw", schedule="linear", layers="intended"),
        head="own",
        decays=_NO_DECAY,
        scaled=False,
        doubled=False,
        chains={"rte": "mnli", "stsb": "mnli"},
        task_rates={"rte": 2e-5},
        average="seed-003 style",
    ),
    "seed-004": Preset(
        "electra_pytorch: mean of 10, no weight decay, both orders of MRPC and STS-B",
        seeds=10,
        aggregate="mean",
        rates=_PAPER_RATES,
        fit=Fit(weight_decay=0.0, layers="official"),
        scaled=False,
    ),
}


def preset_of(label: str) -> Preset | None:
    """Return the preset that a result was made with; its label may go on with what was changed.

    >>> preset_of("seed-003, epochs 1.0") is PRESETS["seed-003"]
    True
    """
    return PRESETS.get(label.partition(",")[0])


def reading_of(label: str, task: GlueTask) -> Reading:
    """Return which scores of a run are its score, by the label of its preset."""
    return AVERAGES[average_of([label])](task)


def average_of(labels: Iterable[str]) -> AverageName:
    """Return the average that all presets agree on; if they do not, the usual one."""
    names = {known.average if (known := preset_of(label)) else None for label in labels}
    only = names.pop() if len(names) == 1 else None
    return only or "average"


def aggregate_of(labels: Iterable[str]) -> Aggregate:
    """Return the aggregate that all presets agree on; if they do not, the mean."""
    kinds = {known.aggregate if (known := preset_of(label)) else None for label in labels}
    only = kinds.pop() if len(kinds) == 1 else None
    return only or "mean"


class TaskPlan(NamedTuple):
    """How one task is fine-tuned: a preset for a task and a size, with the user's changes."""

    fit: Fit
    head: HeadKind
    reduction: Reduction
    length: int
    score_scale: float
    doubled: bool
    starts_from: str = ""
    """The task whose model it starts from; empty: the encoder itself."""
    init_head: InitHead = "new"
    """Whether an own head is drawn by the seed or keeps the model's weights that fit."""


def plan_for(
    preset: Preset,
    task: GlueTask,
    width: int,
    length: int = 128,
    changes: Mapping[str, object] | None = None,
    head: HeadKind | None = None,
) -> TaskPlan:
    """What a preset means for a task and an encoder of some width."""
    size = size_of(width)
    settings = replace(
        preset.fit,
        lr=preset.task_rates.get(task.name, preset.rates[size]),
        layer_decay=preset.decays[size],
        epochs=preset.task_epochs.get(task.name, float(task.epochs)),
    )
    settings = replace(settings, **(changes or {}))  # type: ignore[arg-type]
    return TaskPlan(
        settings,
        head or preset.head,
        preset.reduction,
        length,
        task.score_range[1] if preset.scaled else 1.0,
        preset.doubled and task.symmetric,
    )
