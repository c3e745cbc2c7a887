"""Options of `report` and `inspect`, in a module of their own so that --help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electrify.config import AcceptsTextPaths


@dataclass(frozen=True, kw_only=True)
class Report(AcceptsTextPaths):
    """Write pre-training runs, GLUE results and fine-tuned models to one HTML page."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR…")]
    """Folders written by `pretrain` (finished or still running), `glue` or `finetune`."""
    out: Path = Path("report.html")
    """The HTML file to write."""
    examples: int = 4
    """Number of validation examples to corrupt and show as heat maps per run; 0 shows none."""


@dataclass(frozen=True)
class Inspect(AcceptsTextPaths):
    """Show, for each token, the probability that it was replaced; piped output is a table."""

    model: tyro.conf.Positional[str]
    """An export, its discriminator, a run, or any ELECTRA-like discriminator."""
    text: tyro.conf.Positional[str] = ""
    """The text to inspect."""
    corrupt: bool = False
    """Let the generator replace some tokens first, and show which are detected."""
    rate: float = 0.15
    """Fraction of tokens to mask for --corrupt; correctly predicted tokens stay original."""
    seed: int = 0
    """Random seed for the positions and tokens of --corrupt."""
    html: Path | None = None
    """Write an HTML page to this file instead."""
    json: bool = False
    """Print JSON instead."""
    serve: bool = False
    """Serve a page on this machine to try texts in, until Ctrl-C."""
    host: str = "127.0.0.1"
    """Address for --serve; other machines cannot reach the default."""
    port: int = 0
    """Port for --serve; 0 picks a free one."""
