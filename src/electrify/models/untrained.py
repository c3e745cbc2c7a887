"""A copy of a model with random weights, to compare the model with."""

import shutil
from pathlib import Path

import torch
import transformers
from transformers import AutoModel

from electrify.models.pretrained import open_config, open_tokenizer
from electrify.storage.commit import fsync_folder

RANDOM_SEED = 1
"""Seed of the random weights, so that every copy of a model is the same."""


def write_untrained(source: str, out: Path) -> None:
    """Write a model with the configuration and the tokenizer of another, and random weights.

    The weights are initialized as transformers does it for the architecture. The folder is complete
    or absent, and the same for the same configuration.
    """
    if out.is_dir():
        return
    half = out.with_name(f".{out.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    config = open_config(source)
    name = next(iter(config.architectures or []), "")
    kind = getattr(transformers, name, None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_SEED)
        network = (kind or AutoModel.from_config)(config)
    network.float().save_pretrained(half)
    open_tokenizer(source).save_pretrained(half)
    half.rename(out)
    fsync_folder(out.parent)
