"""Options of `report` and `inspect`, in a module of their own so that --help is fast."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from electrify.config import AcceptsTextPaths


@dataclass(frozen=True, kw_only=True)
class Report(AcceptsTextPaths):
    """Summarize pre-training runs, GLUE results, suites and fine-tuned models in one HTML page."""

    folders: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DIR…", help_behavior_hint="(required)"),
    ]
    """Folders of `pretrain` (finished or still running), `glue`, `suite`, `blimp` or `finetune`."""
    out: Path = Path("report.html")
    """The HTML file to write."""
    examples: int = 4
    """Number of validation examples to corrupt and show as heat maps per run; 0 shows none."""


@dataclass(frozen=True)
class Inspect(AcceptsTextPaths):
    """Show, for each token, the probability that it was replaced; when piped, as a TSV table."""

    model: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")
    ] = ""
    """Exported model, its discriminator/, a run, or any RTD discriminator transformers loads."""
    more: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[MODEL] [TEXT]", help_behavior_hint=""),
    ] = ()
    """The text to inspect; before it or instead of it, a second model to compare."""
    demo: bool = False
    """Use the small English model that comes with electrify; a MODEL is then compared with it."""
    corrupt: bool = False
    """Let the generator replace some tokens first, and show which are detected."""
    rate: float = 0.15
    """Fraction to mask for --corrupt; tokens the generator predicts correctly count as original."""
    seed: int = 0
    """Random seed for the positions and tokens of --corrupt."""
    html: Path | None = None
    """Write the result to this HTML file."""
    json: bool = False
    """Print the result as JSON."""
    serve: bool = False
    """Serve an interactive web page until Ctrl-C."""
    host: str = "127.0.0.1"
    """Address for --serve; the default is reachable from this machine only."""
    port: int = 0
    """Port for --serve; 0 picks a free one."""
