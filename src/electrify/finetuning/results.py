"""The result of one fine-tuning run, and its file, which all tables and reports read."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, Protocol

import numpy as np

from electrify.errors import DamagedError
from electrify.storage.commit import defined, read_json, write_json


class Result(NamedTuple):
    """The scores of one task and seed."""

    task: str
    seed: int
    preset: str
    scores: Mapping[str, Mapping[str, float]] = {}
    """By split and metric; NaN if a metric is undefined."""
    degenerate: str = ""
    """Why the model learned nothing, if so; its scores still count."""
    failed: str = ""
    """Why there are no scores, if so."""
    seconds: float = 0.0
    examples_per_second: float = 0.0
    steps: int = 0
    train_rows: int = 0
    """Number of rows of the training file that were used, each counted once."""
    malformed: int = 0
    """Number of rows of the training and development files that were skipped."""


class Answer(Protocol):
    """The prediction of a model for an example."""

    @property
    def prediction(self) -> Any:
        """Return a class, a score, a text, or a tag for every word."""


def best_of(results: Iterable[Result], score: Callable[[Result], float]) -> Result | None:
    """Return the result with the highest score, the first of equals; failed ones are excluded."""

    def defined_score(result: Result) -> float:
        value = score(result)
        return -math.inf if math.isnan(value) else value

    return max((result for result in results if not result.failed), key=defined_score, default=None)


def degenerate(answers: Sequence[Answer], fewest: int = 2) -> str:
    """Return why predictions are degenerate: NaN or infinite, or all the same; empty if not.

    Fewer than `fewest` predictions never count as all the same.
    """
    predictions = [answer.prediction for answer in answers]
    values = [v for p in predictions for v in (p if isinstance(p, list) else [p])]
    if not values:
        return ""
    if not isinstance(values[0], str):
        if not np.isfinite(values).all():
            return "NaN or infinite predictions"
        values = [values[0]] if np.ptp(values) < 1e-6 else values
    if len(predictions) < fewest or len(set(values)) > 1:
        return ""
    shown = values[0] if isinstance(values[0], str) else f"{values[0]:g}"
    return f"the same prediction ({shown}) for every example"


def result_json(result: Result) -> dict[str, Any]:
    """Return a result as JSON values: undefined metrics are null."""
    table: dict[str, Any] = defined(result._asdict())
    return table


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "preset", "degenerate", "failed"), str),
    **dict.fromkeys(("seed", "steps", "train_rows", "malformed"), int),
    **dict.fromkeys(("seconds", "examples_per_second"), (int, float)),
    **dict.fromkeys(("scores", "identity"), dict),
}


def write_result(folder: Path, result: Result, identity: Mapping[str, Any]) -> None:
    """Commit `result.json` to the folder of a run, with the identity of the run."""
    write_json(folder / "result.json", {**result_json(result), "identity": dict(identity)})


def read_result(path: Path) -> Result:
    """Read the result of a run, which must have scores or a reason for having none."""
    content = read_json(path)
    if not isinstance(content, dict) or content.keys() != _KINDS.keys():
        raise damaged_result(path, "the fields are not " + ", ".join(_KINDS))
    for name, kind in _KINDS.items():
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            raise damaged_result(path, f"{name}: {content[name]!r}")
    fields = {name: content[name] for name in Result._fields}
    result = Result(**{**fields, "scores": _scores(path, content["scores"])})
    if not result.failed and not result.scores.get("dev"):
        raise damaged_result(path, "neither scores nor a reason for the failure")
    return result


def _scores(path: Path, content: dict[str, Any]) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for split, metrics in content.items():
        if not isinstance(metrics, dict) or {*map(type, metrics.values())} - {int, float, NoneType}:
            raise damaged_result(path, f"scores of {split}: {metrics!r}")
        scores[split] = {n: math.nan if s is None else float(s) for n, s in metrics.items()}
    return scores


def damaged_result(path: Path, got: str) -> DamagedError:
    """Return the error for a result that is not as it was written."""
    return DamagedError(
        f"{path} is damaged", got=got, fix="remove the folder of the job and rerun the command"
    )
