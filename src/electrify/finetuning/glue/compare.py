"""`electrify glue compare A B`: two sets of results, seed by seed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from electrify.config import AcceptsTextPaths
from electrify.errors import UserError
from electrify.finetuning.glue.results import need_results, paired_differences
from electrify.finetuning.glue.tables import comparison_text
from electrify.storage.commit import differences, read_json


@dataclass(frozen=True)
class Compare(AcceptsTextPaths):
    """Whether one model is better than another on the tasks and seeds that both have."""

    first: tyro.conf.Positional[Path]
    """A folder of `electrify glue`."""
    second: tyro.conf.Positional[Path]
    """Another one."""


def compare(settings: Compare) -> list[dict[str, Any]]:
    """Print and return the differences with their intervals."""
    both = [need_results(folder) for folder in (settings.first, settings.second)]
    for line in unlike(settings.first, settings.second):
        print(f"note: {line}")
    found = paired_differences(*both)
    if not found:
        raise UserError(
            "nothing to compare: no task with the same seed is in both",
            got=f"{settings.first} and {settings.second}",
            fix="run the same tasks and seeds with both models",
        )
    print(comparison_text(found, settings.first.name, settings.second.name))
    return [difference._asdict() for difference in found]


def unlike(first: Path, second: Path) -> list[str]:
    """In what the jobs that both have differ beside the model; other dev files are an error."""
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
            raise UserError(f"{task}: measured on other development files", got=got, fix=fix)
        if differing := differences(mine, theirs, free={"source", "model"}):
            notes[f"{task}: {differing}"] = None
    return list(notes)
