"""Options of `pretrain` and `export`, without heavy imports, so that --help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from electrify.config import AcceptsTextPaths
from electrify.recipes.schema import FromRecipe

NEWEST = -1


@dataclass(frozen=True, kw_only=True)
class Pretrain(FromRecipe):
    """Pre-train a model from shards. Run the same command again to resume."""

    data: Path
    """Folder of shards made by `electrify prepare`."""
    out: Path
    """Folder of the run."""
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


@dataclass(frozen=True)
class Export(AcceptsTextPaths):
    """Export the networks of a run for transformers, with tokenizer and model card."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run."""
    out: Path
    """Folder to create."""
    step: int = NEWEST
    """Step of the checkpoint to export; -1 is the newest intact one."""
