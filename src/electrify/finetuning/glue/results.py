"""What one fine-tuning came to, as a file that is written once and read by all that show it."""

import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from electrify.errors import DamagedError
from electrify.finetuning.glue.presets import reading_of
from electrify.finetuning.glue.tasks import TASKS
from electrify.storage.commit import defined, read_json, write_json


class Result(NamedTuple):
    """A task, a seed, and how good the model was."""

    task: str
    seed: int
    preset: str
    scores: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    """By split and metric, as fractions; not a number where a metric is undefined."""
    degenerate: str = ""
    """Why the model learned nothing; its scores count all the same."""
    failed: str = ""
    """Why there are no scores."""
    seconds: float = 0.0
    examples_per_second: float = 0.0
    steps: int = 0
    train_rows: int = 0
    """Rows of the training file that were used, each counted once."""
    malformed: int = 0
    """Rows of the training and development files that were passed over."""


_KINDS: dict[str, type | tuple[type, ...]] = {
    "task": str,
    "seed": int,
    "preset": str,
    "scores": dict,
    "degenerate": str,
    "failed": str,
    "seconds": (int, float),
    "examples_per_second": (int, float),
    "steps": int,
    "train_rows": int,
    "malformed": int,
    "identity": dict,
}


def main_score(result: Result) -> float:
    """The score on the development examples, as the run's preset reads it.

    An undefined or missing one is never the best.
    """
    reading = reading_of(result.preset, TASKS[result.task])
    scores = [result.scores.get(split, {}).get(metric, math.nan) for split, metric in reading]
    score = sum(scores) / len(scores)
    return -math.inf if math.isnan(score) else score


def as_table(result: Result) -> dict[str, Any]:
    """A result as JSON has it: undefined metrics are null."""
    table: dict[str, Any] = defined(result._asdict())
    return table


def write_result(folder: Path, result: Result, identity: Mapping[str, Any]) -> None:
    """Commit `result.json` to a job's folder, with all that decided the result."""
    write_json(folder / "result.json", {**as_table(result), "identity": identity})


def read_results(folder: Path) -> list[Result]:
    """The results of all finished jobs of a folder, in the order of the tasks and the seeds."""
    results = [read_result(path) for path in (folder / "jobs").glob("*/result.json")]
    tasks = list(TASKS)
    return sorted(results, key=lambda result: (tasks.index(result.task), result.seed))


def read_result(path: Path) -> Result:
    """The result of one job, which must be that of the folder it is in."""
    content = read_json(path)
    if not isinstance(content, dict) or content.keys() != _KINDS.keys():
        raise _damaged(path, "other fields than " + ", ".join(_KINDS))
    for name, kind in _KINDS.items():
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            raise _damaged(path, f"{name}: {content[name]!r}")
    fields = {name: content[name] for name in Result._fields}
    result = Result(**{**fields, "scores": _scores(path, content["scores"])})
    if result.task not in TASKS or path.parent.name != f"{result.task}-{result.seed}":
        raise _damaged(path, f"the result of task {result.task}, seed {result.seed}")
    if not result.failed and not result.scores.get("dev"):
        raise _damaged(path, "no scores, and no reason why")
    return result


def _scores(path: Path, content: dict[str, Any]) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for split, metrics in content.items():
        if not isinstance(metrics, dict):
            raise _damaged(path, f"scores of {split}: {metrics!r}")
        for name, score in metrics.items():
            if score is not None and type(score) not in (int, float):
                raise _damaged(path, f"{split} {name}: {score!r}")
        scores[split] = {
            name: math.nan if score is None else float(score) for name, score in metrics.items()
        }
    return scores


def _damaged(path: Path, got: str) -> DamagedError:
    return DamagedError(
        f"{path} is damaged", got=got, fix="remove the job's folder: the same command runs it again"
    )
