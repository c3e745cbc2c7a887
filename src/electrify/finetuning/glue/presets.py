"""Presets: published hyperparameters for GLUE. Every result carries the name of its preset.

A preset also defines which metrics make up the score of a run: papers differ in the metrics and in
using one or both MNLI development sets.

The size is inferred from the hidden size: small up to 384, large from 1,024. Sources: the paper's
appendix; google-research/electra configure_finetuning.py; the experiments of lmtuners (seed-003)
and electra_pytorch (seed-004).
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
"""The (split, metric) pairs whose mean is the score of a run."""


AVERAGES: dict[AverageName, Callable[[GlueTask], Reading]] = {
    "average": lambda task: (("dev", task.metrics[0]),),
    "seed-003 style": lambda task: tuple((split, task.metrics[0]) for split in task.dev_splits),
    "GLUE": lambda task: tuple((s, metric) for s in task.dev_splits for metric in task.metrics),
}
"""The score of a task in each average: the first metric, MNLI matched; the first metric, MNLI
matched and mismatched (lmtuners); the mean of all metrics (the GLUE server). All exclude WNLI."""


def describe_reading(reading: Reading) -> str:
    """Describe the metrics of a reading, and whether it uses both development sets.

    >>> from electrify.finetuning.glue.tasks import TASKS
    >>> describe_reading(AVERAGES["seed-003 style"](TASKS["mnli"]))
    'accuracy, mean of matched and mismatched'
    """
    metrics = " and ".join(dict.fromkeys(metric for _, metric in reading))
    both = len({split for split, _ in reading}) > 1
    return f"{metrics}, mean of matched and mismatched" if both else metrics


def size_of(width: int) -> Size:
    """Return the ELECTRA size that is nearest to a hidden size.

    >>> [size_of(width) for width in (256, 384, 768, 1024)]
    ['small', 'small', 'base', 'large']
    """
    if width >= 1024:
        return "large"
    return "small" if width <= 384 else "base"


@dataclass(frozen=True)
class Preset:
    """Hyperparameters of one publication, by model size and task."""

    description: str
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
    """Whether regression targets are divided by the maximum of their range."""
    doubled: bool = True
    """Whether symmetric tasks (MRPC and STS-B) are trained on both orders of their texts."""
    chains: Mapping[str, str] = field(default_factory=dict)
    """The other task whose fine-tuned model a task starts from."""
    task_rates: Mapping[str, float] = field(default_factory=dict)
    """Learning rates of single tasks, which override the rate of the size."""
    task_epochs: Mapping[str, float] = field(default_factory=dict)
    """Epochs of single tasks, which override those of the task."""
    average: AverageName = "average"
    """The average whose metrics define the score of a run, in tables and to choose the best."""


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
        "google-research/electra as it runs: 1e-4, summed loss, off-by-one layer-decay exponents",
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
    """Return the preset of a result; in its label, overridden options follow the preset's name.

    >>> preset_of("seed-003, epochs 1.0") is PRESETS["seed-003"]
    True
    """
    return PRESETS.get(label.partition(",")[0])


def reading_of(label: str, task: GlueTask) -> Reading:
    """Return the metrics that make up the score of a run with this preset label."""
    return AVERAGES[average_of([label])](task)


def average_of(labels: Iterable[str]) -> AverageName:
    """Return the average that all presets agree on, or else the default average."""
    names = {preset.average if (preset := preset_of(label)) else "average" for label in labels}
    return names.pop() if len(names) == 1 else "average"


def aggregate_of(labels: Iterable[str]) -> Aggregate:
    """Return the aggregate that all presets agree on, or else the mean."""
    names = {preset.aggregate if (preset := preset_of(label)) else "mean" for label in labels}
    return names.pop() if len(names) == 1 else "mean"


class TaskPlan(NamedTuple):
    """How to fine-tune one task: a preset for a task and a size, with the user's overrides."""

    fit: Fit
    head: HeadKind
    reduction: Reduction
    length: int
    score_scale: float
    doubled: bool
    starts_from: str = ""
    """Task whose fine-tuned model to start from; empty starts from the encoder."""
    init_head: InitHead = "new"
    """Whether an own head is initialized from the seed or keeps matching pre-trained weights."""


def plan_for(
    preset: Preset,
    task: GlueTask,
    width: int,
    length: int = 128,
    changes: Mapping[str, object] | None = None,
    head: HeadKind | None = None,
) -> TaskPlan:
    """Return the plan of a preset for a task and an encoder's hidden size."""
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
