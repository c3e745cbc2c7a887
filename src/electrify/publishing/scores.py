"""Find the results of evaluating an exported model, for its card.

A result belongs to a model if it has the fingerprint of one of its networks. The files are those of
`glue`, `squad` and `blimp`, and every result.json in the format that all benchmarks share
(finetuning/results.py). Every score keeps the name and the SHA-256 of its file.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError
from electrify.finetuning.glue.tasks import TASKS
from electrify.finetuning.results import Result
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
    beside = (path for parent in parents for path in sorted(parent.iterdir()) if path.is_dir())
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
        for path in sorted(path for path in inner if path.is_dir() and not path.is_symlink()):
            yield from _named(path, name, depth - 1)


def _shared_fingerprint(file: _File) -> str:
    return str(file.content["identity"].get("model") or "")


def _shared_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    content = file.content
    task = TASKS.get(content["task"])
    if task is not None:
        name, dataset, config = f"GLUE {task.title}", "nyu-mll/glue", task.name
        kind = "text-classification" if task.labels else "sentence-similarity"
    else:
        name, dataset, config, kind = content["task"], content["task"], "", "other"
    for split, metrics in content["scores"].items():
        shown = GLUE_SPLITS.get((content["task"], split), split) if task else split
        for metric, value in metrics.items():
            if value is not None:
                about = (name, dataset, config, shown, kind, metric, float(value), role)
                yield CardScore(*about, file.name, digest, content["seed"])


GLUE_SPLITS = {
    **{(task, "dev"): "validation" for task in TASKS},
    ("mnli", "dev"): "validation_matched",
    ("mnli", "dev_mismatched"): "validation_mismatched",
}
"""The Hub's names of the development splits."""
SQUAD_DATASETS = {"1.1": "rajpurkar/squad", "2.0": "rajpurkar/squad_v2"}


def _squad_fingerprint(file: _File) -> str:
    manifest = file.path.with_name("manifest.json")
    return str(read_json(manifest)["identity"]["model"]) if manifest.is_file() else ""


def _squad_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    content = file.content
    version, seed = content["version"], content.get("settings", {}).get("seed")
    dataset = SQUAD_DATASETS.get(version, "squad")
    for metric, value in content["scores"].items():
        if not metric.endswith(("total", "thresh")) and value is not None:
            about = (f"SQuAD {version}", dataset, "", "validation", "question-answering")
            yield CardScore(*about, metric, float(value), role, file.name, digest, seed)


def _blimp_scores(file: _File, role: str, digest: str) -> Iterator[CardScore]:
    """Yield the accuracy on all pairs and by phenomenon; the file has those by paradigm, too."""
    for score in (file.content["overall"], *file.content["phenomena"]):
        everything = score["name"] == "all"
        name = "BLiMP" if everything else f"BLiMP {score['name'].replace('_', ' ')}"
        config = "" if everything else score["name"]
        about = (name, "nyu-mll/blimp", config, "train", "other", "accuracy")
        yield CardScore(*about, float(score["accuracy"]), role, file.name, digest)


FORMATS = (
    _Format(frozenset([*Result._fields, "identity"]), _shared_fingerprint, _shared_scores),
    _Format(frozenset(["version", "head", "scores"]), _squad_fingerprint, _squad_scores),
    _Format(
        frozenset(["fingerprint", "overall", "phenomena"]),
        lambda file: str(file.content["fingerprint"]),
        _blimp_scores,
    ),
)
