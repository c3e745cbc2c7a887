"""Find the results of evaluating an exported model, for its card.

A result belongs to a model if it has the fingerprint of one of its networks. The files are those of
`squad` and `blimp`, and those of `glue` and `suite`, which have the format of all benchmarks
(finetuning/results.py). Every score keeps the name and the SHA-256 of its file.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result
from electrify.finetuning.suite.file import SuiteTask, read_suite
from electrify.finetuning.suite.record import COPY
from electrify.objectives.card_metadata import CardScore
from electrify.storage.commit import read_json, sha256_of

RESULT_FILE = "result.json"
DEPTH = 4  # folders below a result folder: a suite has models, tasks and seeds


class _File(NamedTuple):
    """A result file: its content, its name for the card, and its folder."""

    content: Mapping[str, Any]
    name: str
    path: Path


class _Format(NamedTuple):
    """A format of result files."""

    fields: frozenset[str]
    """Fields by which the format is recognised."""
    fingerprint: Callable[[_File], str]
    """Returns the fingerprint of the model that was evaluated; empty if it is not known."""
    scores: Callable[[_File, str, str], Iterator[CardScore]]
    """Yields the scores, given the role of the network and the SHA-256 of the file."""


def scores_of(folders: Iterable[Path], networks: Mapping[str, str]) -> list[CardScore]:
    """Return the scores in result folders of the networks with these fingerprints, by role."""
    roles = {fingerprint: role for role, fingerprint in reversed(list(networks.items()))}
    scores: list[CardScore] = []
    for file, kind in (found for folder in folders for found in _result_files(folder)):
        role = roles.get(kind.fingerprint(file))
        if role is not None:
            digest = sha256_of(file.path)
            scores += [s for s in kind.scores(file, role, digest) if math.isfinite(s.value)]
    return scores


def check_folders(folders: Sequence[Path]) -> None:
    """Refuse folders without results."""
    for folder in folders:
        if not folder.is_dir() or next(_result_files(folder), None) is None:
            raise UserError(
                f"{folder} contains no results",
                got="no such folder" if not folder.is_dir() else f"no {RESULT_FILE} of a benchmark",
                fix="give --scores the --out of electrify glue, squad, blimp or suite, after it "
                "has finished",
            )


def need_scores(folders: Sequence[Path], networks: Mapping[str, str]) -> list[CardScore]:
    """Return the scores in result folders, each of which must have some of this model."""
    for folder in folders:
        if not scores_of([folder], networks):
            found = {kind.fingerprint(file) for file, kind in _result_files(folder)}
            raise UserError(
                f"the results in {folder} are of another model, or failed",
                got=f"fingerprints {', '.join(sorted(f or 'unknown' for f in found))[:200]}",
                fix="evaluate the exported model itself, whose fingerprints are "
                + ", ".join(f"{value} ({role})" for role, value in networks.items()),
            )
    return scores_of(folders, networks)


def result_folders_beside(*folders: Path) -> list[Path]:
    """Return the folders with results next to the given ones, in alphabetical order."""
    parents = dict.fromkeys(folder.resolve().parent for folder in folders)
    beside = (path for parent in parents for path in sorted(parent.iterdir()) if _readable(path))
    return [path for path in beside if next(_result_files(path, tolerant=True), None) is not None]


def _result_files(folder: Path, tolerant: bool = False) -> Iterator[tuple[_File, _Format]]:
    """Yield the result files of a folder and their formats; unfinished ones are left out."""
    for path in _named(folder, RESULT_FILE, DEPTH):
        try:
            content = read_json(path)
        except (UserError, OSError):
            if tolerant:  # someone else's file
                continue
            raise
        if not isinstance(content, dict):
            continue
        name = path.relative_to(folder.parent).as_posix()
        for kind in FORMATS:
            if kind.fields <= content.keys():
                yield _File(content, name, path), kind
                break


def _named(folder: Path, name: str, depth: int) -> Iterator[Path]:
    """Yield the files of a name in a folder and, to a depth, in its visible folders."""
    if (folder / name).is_file():
        yield folder / name
    if depth:
        inner = (path for path in folder.iterdir() if not path.name.startswith("."))
        for path in sorted(path for path in inner if _readable(path) and not path.is_symlink()):
            yield from _named(path, name, depth - 1)


def _readable(path: Path) -> bool:
    """Return whether this is a folder that may be listed and entered."""
    return path.is_dir() and os.access(path, os.R_OK | os.X_OK)


def _shared_fingerprint(file: _File) -> str:
    return str(file.content["identity"].get("model") or "")


def _shared_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    """Yield the scores of a seed on a task of GLUE, or on any task of a suite."""
    content, row = file.content, _suite_task(file)
    settings = f"{content['preset']}, {content['train_rows']:,} training rows"
    for split, metrics in content["scores"].items():
        about = _DATASETS.get(row.benchmark, _own_dataset)(file, row, split)
        for metric, value in metrics.items():
            if value is not None and not metric.endswith(NOT_SCORES):
                known = (*about, metric, float(value), role, file.name, digest)
                yield CardScore(*known, content["seed"], settings)


def _suite_task(file: _File) -> SuiteTask:
    """Return the row of a suite that a result is of; for other folders, one of the task's name.

    A suite may give a GLUE task another name, and the name of a GLUE task to other files.
    """
    task, suite = file.content["task"], file.path.absolute().parents[3] / COPY
    rows = read_suite(suite).tasks if suite.is_file() else []
    named = SuiteTask(name=task, task=task if task in TASKS else "")
    return next((row for row in rows if row.name == task), named)


_About = tuple[str, str, str, str, str]
"""The first fields of a CardScore: dataset, its name on the Hub, configuration, split, task."""


def _glue_dataset(file: _File, row: SuiteTask, split: str) -> _About:
    task = TASKS[row.task]
    shown = GLUE_SPLITS.get((row.task, split), split)
    kind = "text-classification" if task.labels else "sentence-similarity"
    return f"GLUE {task.title}", "nyu-mll/glue", task.name, shown, kind


def _squad_dataset(file: _File, row: SuiteTask, split: str) -> _About:
    return _squad_version(file.content["identity"]["version"])


def _squad_version(version: str) -> _About:
    dataset = SQUAD_DATASETS.get(version, "squad")
    return f"SQuAD {version}", dataset, "", "validation", "question-answering"


def _own_dataset(file: _File, row: SuiteTask, split: str) -> _About:
    return row.name, row.name, "", split, OWN_TASKS.get(row.kind, "other")


_DATASETS = {"glue": _glue_dataset, "squad": _squad_dataset, "own": _own_dataset}
OWN_TASKS = {"classes": "text-classification", "tags": "token-classification"}
"""The Hub's names of kinds of labels."""
GLUE_SPLITS = {
    **{(task, "dev"): "validation" for task in TASKS},
    ("mnli", "dev"): "validation_matched",
    ("mnli", "dev_mismatched"): "validation_mismatched",
}
"""The Hub's names of the development splits."""
SQUAD_DATASETS = {"1.1": "rajpurkar/squad", "2.0": "rajpurkar/squad_v2"}
NOT_SCORES = ("total", "thresh")
"""How the names of numbers of SQuAD's script end that are not scores."""


def _squad_fingerprint(file: _File) -> str:
    manifest = file.path.with_name("manifest.json")
    return str(read_json(manifest)["identity"]["model"]) if manifest.is_file() else ""


def _squad_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    content = file.content
    settings, questions = content.get("settings", {}), content.get("train", {}).get("questions")
    trained = "" if questions is None else f"{questions:,} training questions"
    for metric, value in content["scores"].items():
        if not metric.endswith(NOT_SCORES) and value is not None:
            about = (*_squad_version(content["version"]), metric, float(value), role)
            yield CardScore(*about, file.name, digest, settings.get("seed"), trained)


def _blimp_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    """Yield the accuracy on all pairs and by phenomenon; the file has those by paradigm, too."""
    for score in (file.content["overall"], *file.content["phenomena"]):
        everything = score["name"] == "all"
        name = "BLiMP" if everything else f"BLiMP {score['name'].replace('_', ' ')}"
        config = "" if everything else score["name"]
        about = (name, "nyu-mll/blimp", config, "train", "other", "accuracy")
        pairs = f"{score['pairs']:,} pairs"
        yield CardScore(*about, float(score["accuracy"]), role, file.name, digest, None, pairs)


FORMATS = (
    _Format(frozenset([*Result._fields, "identity"]), _shared_fingerprint, _shared_scores),
    _Format(frozenset(["version", "head", "scores"]), _squad_fingerprint, _squad_scores),
    _Format(
        frozenset(["fingerprint", "overall", "phenomena"]),
        lambda file: str(file.content["fingerprint"]),
        _blimp_scores,
    ),
)
