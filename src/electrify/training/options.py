"""Options of `pretrain` and `export`, without heavy imports, so that --help is fast."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from electrify.config import AcceptsTextPaths, to_dict
from electrify.recipes.schema import FromRecipe
from electrify.training.extension import ExtensionSchedule

NEWEST = -1


@dataclass(frozen=True, kw_only=True)
class Pretrain(FromRecipe):
    """Pre-train a model from shards. Run the same command again to resume.

    --resume RUN instead of a recipe resumes a run from its folder alone, with its settings;
    --more 1h or --steps N after it also continues the run beyond its planned steps.
    """

    data: Path
    """Folder of shards made by `electrify prepare`, or its URL (s3://…, gs://…), copied first."""
    out: Path
    """Folder of the run."""
    general: Path | None = None
    """Shards of general text: the run reports how its validation loss on them changes."""
    general_share: float = 0.0
    """Fraction of the training examples taken from --general, which lessens forgetting."""
    micro_batch: int = 0
    """Examples per forward and backward pass (gradient accumulation); 0 disables splitting."""
    workers: int = 1
    """Number of threads that prepare batches in advance; 0 prepares them in the training loop."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto uses CUDA if available, else the CPU."""
    compile: bool = False
    """Compile the networks with torch.compile; worthwhile for long runs."""
    shard: bool = False
    """Shard weights and optimizer state over the processes (FSDP), for very large models."""
    checkpoint_activations: bool = False
    """Recompute activations in the backward pass to save memory, for large models."""
    budget: str = ""
    """Training time such as 45m or 8h; sets steps, warm-up and intervals to fit."""
    max_time: str = ""
    """Time limit of this process, such as 12h; saves and exits 30 s before it. Rerun to resume."""
    save_minutes: float = 15.0
    """Maximum minutes between checkpoints, besides --run.save-every; 0 disables the timer."""
    on_save_error: Literal["continue", "stop"] = "continue"
    """Whether to continue or stop if a checkpoint cannot be written."""
    on_spike: Literal["off", "warn", "skip"] = "warn"
    """Reaction to a spike of the loss or the gradient norm: ignore it, warn, or skip the batch."""
    upload: str = ""
    """URL to copy checkpoints to: s3://…, gs://…, hf://…, file://…."""
    track: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Experiment trackers to log to, in addition to metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class ResumeRun(Pretrain):
    """Resume a run from its folder alone, with its settings and shards; or make it longer."""

    out: Annotated[Path, tyro.conf.Fixed, tyro.conf.Suppress]
    """Folder of the run."""
    more: str = ""
    """Training time to add after the planned steps, such as 1h; measured, then fixed as steps."""
    steps: int | None = None
    """New total number of steps, more than planned."""
    extend_schedule: ExtensionSchedule = "rewarm"
    """rewarm: repeat warm-up and decay; constant: the last rate, at least a tenth of the peak."""


NOT_REPEATED = ("recipe", "name", "data", "out", "budget", "max_time")


def repeated_options(settings: Pretrain) -> dict[str, Any]:
    """Return the options that `--resume` repeats, which are stored in the run."""
    table, names = to_dict(settings), [field.name for field in fields(Pretrain)]
    options = {name: table[name] for name in names if name not in NOT_REPEATED}
    if settings.general is not None:
        options["general"] = str(settings.general.absolute())
    return options


@dataclass(frozen=True)
class Export(AcceptsTextPaths):
    """Export the networks of a run for transformers, with tokenizer and model card."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run."""
    out: Path
    """Folder to create."""
    step: int = NEWEST
    """Step of the checkpoint to export; -1 is the newest intact one."""
