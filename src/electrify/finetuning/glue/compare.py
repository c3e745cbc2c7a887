"""`electrify glue compare A B`: compare the results of two models, seed by seed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from electrify.config import AcceptsTextPaths
from electrify.errors import UserError
from electrify.finetuning.differences import differences_table
from electrify.finetuning.glue.results import need_results, paired_differences
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.table import terminal
from electrify.storage.commit import differences, read_json


@dataclass(frozen=True)
class Compare(AcceptsTextPaths):
    """Test whether one model is better than another on the tasks and seeds that both have."""

    first: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """Results of the first model: the --out of `electrify glue`."""
    second: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="B")]
    """Results of the second model."""


def compare(settings: Compare) -> list[dict[str, Any]]:
    """Print and return the differences, with intervals and p-values."""
    both = [need_results(folder) for folder in (settings.first, settings.second)]
    for note in other_differences(settings.first, settings.second):
        print(f"note: {note}")
    found = paired_differences(*both)
    if not found:
        raise UserError(
            "nothing to compare: the folders have no task and seed in common",
            got=f"{settings.first} and {settings.second}",
            fix="run the same tasks and seeds with both models",
        )
    names = settings.first.name, settings.second.name
    titles = {name: task.title for name, task in TASKS.items()}
    print(terminal(differences_table(found, *names, titles)))
    return [difference._asdict() for difference in found]


def other_differences(first: Path, second: Path) -> list[str]:
    """Describe how common jobs differ besides the model; different dev files are an error."""
    notes: dict[str, None] = {}
    for path in sorted(first.glob("jobs/*/result.json")):
        other = second / "jobs" / path.parent.name / "result.json"
        if not other.is_file():
            continue
        mine, theirs = (read_json(file)["identity"] for file in (path, other))
        task = path.parent.name.rpartition("-")[0]
        if mine["data"].get("dev") != theirs["data"].get("dev"):
            got = f"{first} and {second}"
            fix = "run both on the same data"
            raise UserError(f"{task}: the development files are different", got=got, fix=fix)
        if differing := differences(mine, theirs, free={"source", "model"}):
            notes[f"{task}: {differing}"] = None
    return list(notes)
