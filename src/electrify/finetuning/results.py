"""What one fine-tuning run came to, as a file that is written once and read by all that show it."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from electrify.errors import DamagedError
from electrify.storage.commit import defined, read_json, write_json


class Result(NamedTuple):
    """A task, a seed, and how good the model was."""

    task: str
    seed: int
    preset: str
    scores: Mapping[str, Mapping[str, float]] = {}
    """By split and metric; not a number where a metric is undefined."""
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


class Answer(Protocol):
    """What a model says of an example."""

    @property
    def prediction(self) -> Any:
        """A class, a score, a text, or a tag for every word."""


def best_of(results: Iterable[Result], score: Callable[[Result], float]) -> Result | None:
    """Return the result with the highest score, the earliest of equals; never one that failed."""

    def known(result: Result) -> float:
        value = score(result)
        return -math.inf if math.isnan(value) else value

    return max((result for result in results if not result.failed), key=known, default=None)


def degenerate(answers: Sequence[Answer], fewest: int = 2) -> str:
    """Return why answers are no answers: all the same, or no numbers; empty if they are fine.

    Fewer than `fewest` are not all the same.
    """
    said = [answer.prediction for answer in answers]
    each = [one for some in said for one in (some if isinstance(some, list) else [some])]
    if not each:
        return ""
    if not isinstance(each[0], str):
        if not np.isfinite(each).all():
            return "answers that are no numbers"
        each = [each[0]] if np.ptp(each) < 1e-6 else each
    if len(said) < fewest or len(set(each)) > 1:
        return ""
    shown = each[0] if isinstance(each[0], str) else f"{each[0]:g}"
    return f"the same answer ({shown}) for every example"


def result_json(result: Result) -> dict[str, Any]:
    """A result as JSON has it: undefined metrics are null."""
    table: dict[str, Any] = defined(result._asdict())
    return table


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "preset", "degenerate", "failed"), str),
    **dict.fromkeys(("seed", "steps", "train_rows", "malformed"), int),
    **dict.fromkeys(("seconds", "examples_per_second"), (int, float)),
    **dict.fromkeys(("scores", "identity"), dict),
}


def write_result(folder: Path, result: Result, identity: Mapping[str, Any]) -> None:
    """Commit `result.json` to a run's folder, with all that decided the result."""
    write_json(folder / "result.json", {**result_json(result), "identity": dict(identity)})


def read_result(path: Path) -> Result:
    """The result of one run, which must have scores or say why not."""
    content = read_json(path)
    if not isinstance(content, dict) or content.keys() != _KINDS.keys():
        raise damaged_result(path, "other fields than " + ", ".join(_KINDS))
    for name, kind in _KINDS.items():
        if not isinstance(content[name], kind) or isinstance(content[name], bool):
            raise damaged_result(path, f"{name}: {content[name]!r}")
    fields = {name: content[name] for name in Result._fields}
    result = Result(**{**fields, "scores": _scores(path, content["scores"])})
    if not result.failed and not result.scores.get("dev"):
        raise damaged_result(path, "no scores, and no reason why")
    return result


def _scores(path: Path, content: dict[str, Any]) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for split, metrics in content.items():
        if not isinstance(metrics, dict):
            raise damaged_result(path, f"scores of {split}: {metrics!r}")
        for name, score in metrics.items():
            if score is not None and type(score) not in (int, float):
                raise damaged_result(path, f"{split} {name}: {score!r}")
        scores[split] = {
            name: math.nan if score is None else float(score) for name, score in metrics.items()
        }
    return scores


def damaged_result(path: Path, got: str) -> DamagedError:
    """The error for a result that is not as it was written."""
    return DamagedError(
        f"{path} is damaged", got=got, fix="remove the job's folder: the same command runs it again"
    )
