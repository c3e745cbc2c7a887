"""What `pretrain` and `export` can be told. Apart from what they do: help comes at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from electrify.config import AcceptsTextPaths
from electrify.recipes.schema import FromRecipe

NEWEST = -1


@dataclass(frozen=True, kw_only=True)
class Pretrain(FromRecipe):
    """Shards to a pre-trained model. The same command again goes on where it stopped."""

    data: Path
    """A folder of shards, as `electrify prepare` makes it."""
    out: Path
    """The folder of the run."""
    micro_batch: int = 0
    """Examples at a time, for less memory; 0: all of a process's share at once."""
    workers: int = 1
    """Threads that make batches ahead."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto: CUDA if there is one, else the CPU."""
    compile: bool = False
    """Compile the networks first: pays in long runs."""
    shard: bool = False
    """Deal out weights and moments over the processes (FSDP), for very large models."""
    checkpoint_activations: bool = False
    """Compute the layers twice to need less memory, for large models."""
    budget: str = ""
    """A time such as 45m or 8h: as many steps as fit; warm-up and cadences follow them."""
    max_time: str = ""
    """Save and stop half a minute before so much time has passed."""
    save_minutes: float = 15.0
    """Save at least so often, besides every run.save_every steps; 0 for never."""
    on_save_error: Literal["go-on", "stop"] = "go-on"
    """What to do if a checkpoint cannot be written."""
    on_spike: Literal["off", "warn", "skip"] = "warn"
    """What to do if loss or gradient jump."""
    upload: str = ""
    """Where to copy checkpoints to: s3://…, gs://…, hf://…, file://…."""
    track: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Trackers beside metrics.jsonl."""


@dataclass(frozen=True)
class Export(AcceptsTextPaths):
    """A run's networks as folders that transformers loads, with tokenizer and model card."""

    run: tyro.conf.Positional[Path]
    """The folder of a run."""
    out: Path
    """The folder to make."""
    step: int = NEWEST
    """Which checkpoint; -1: the newest that is whole."""
