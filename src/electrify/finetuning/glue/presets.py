"""Known ways to fine-tune on GLUE, each a row with a name that every result carries.

Sizes are told apart by width, as ELECTRA's own settings are: small up to 384, large from 1,024.
Sources: the paper's appendix; google-research/electra configure_finetuning.py; the experiments of
lmtuners (seed-003) and electra_pytorch (seed-004).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from electrify.finetuning.glue.reading import AVERAGES, Aggregate, AverageName, Reading
from electrify.finetuning.glue.tasks import GlueTask
from electrify.finetuning.options import Fit, HeadKind, InitHead, Reduction

Size = Literal["small", "base", "large"]


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
    score_scale: float = 5.0
    """Scores are divided by this to be learned."""
    doubled: bool = True
    """Whether MRPC and STS-B are seen in both orders."""
    chains: Mapping[str, str] = field(default_factory=dict)
    """From which other task's model a task starts."""
    task_rates: Mapping[str, float] = field(default_factory=dict)
    """Rates of single tasks in place of the size's."""
    task_epochs: Mapping[str, float] = field(default_factory=dict)
    """Epochs of single tasks in place of the table's."""
    average: AverageName = "average of 8 tasks"
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
        score_scale=1.0,
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
        score_scale=1.0,
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
    return only or "average of 8 tasks"


def aggregate_of(labels: Iterable[str]) -> Aggregate:
    """Return the aggregate that all presets agree on; if they do not, the mean."""
    kinds = {known.aggregate if (known := preset_of(label)) else None for label in labels}
    only = kinds.pop() if len(kinds) == 1 else None
    return only or "mean"


class Plan(NamedTuple):
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


def plan(
    preset: Preset,
    task: GlueTask,
    width: int,
    length: int = 128,
    changes: Mapping[str, object] | None = None,
    head: HeadKind | None = None,
) -> Plan:
    """What a preset means for a task and an encoder of some width."""
    size = size_of(width)
    settings = replace(
        preset.fit,
        lr=preset.task_rates.get(task.name, preset.rates[size]),
        layer_decay=preset.decays[size],
        epochs=preset.task_epochs.get(task.name, float(task.epochs)),
    )
    settings = replace(settings, **(changes or {}))  # type: ignore[arg-type]
    return Plan(
        settings,
        head or preset.head,
        preset.reduction,
        length,
        preset.score_scale,
        preset.doubled and task.symmetric,
    )
