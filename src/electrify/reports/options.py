"""What `report` and `inspect` can be told. Apart from what they do, so that help comes at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electrify.config import AcceptsTextPaths


@dataclass(frozen=True, kw_only=True)
class Report(AcceptsTextPaths):
    """Runs of `pretrain`, results of `glue` and models of `finetune` as one HTML page."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR…")]
    """Folders of runs, which may be going on, of GLUE results, of models for one's own data."""
    out: Path = Path("report.html")
    """The file to write."""
    examples: int = 4
    """Held-out examples to corrupt and to show as heat maps, for each run; 0 for none."""


@dataclass(frozen=True)
class Inspect(AcceptsTextPaths):
    """Each token's probability of having been replaced, in colour; in a pipe, as a table."""

    model: tyro.conf.Positional[str]
    """An `electrify export`, its discriminator, a run, or any ELECTRA-like discriminator."""
    text: tyro.conf.Positional[str] = ""
    """What to look at."""
    corrupt: bool = False
    """Let the generator fill a share of the tokens first, and see what is caught."""
    rate: float = 0.15
    """The share it fills; a token that it guesses right stays original."""
    seed: int = 0
    """Of the generator's choice of places and tokens."""
    html: Path | None = None
    """Write a page to this file instead."""
    json: bool = False
    """Print JSON instead."""
    serve: bool = False
    """Open a page on this machine to try texts in, until Ctrl-C."""
    host: str = "127.0.0.1"
    """Where --serve listens; the default cannot be reached from other machines."""
    port: int = 0
    """For --serve; 0: any that is free."""
