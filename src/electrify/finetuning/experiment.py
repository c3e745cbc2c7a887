"""Run one fine-tuning experiment of any benchmark: train, predict, evaluate, commit.

A benchmark implements `Problem`: GLUE, SQuAD and your own files do. Everything else they share.

FOLDER/identity.json   everything that determines the result, unless a build has it; written first
       checkpoints     during training
       …               files that the problem saves next to the result
       result.json     scores and identity; written last
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from electrify.errors import DamagedError, GuardError
from electrify.finetuning.devices import finetuning_precision
from electrify.finetuning.encoder import HEADS_INITIALIZED, Encoder, open_encoder
from electrify.finetuning.fit import (
    FitResult,
    OnProgress,
    fit,
    no_progress,
    outputs,
    remove_checkpoints,
)
from electrify.finetuning.options import Fit
from electrify.finetuning.results import (
    Result,
    damaged_result,
    degenerate,
    read_result,
    write_result,
)
from electrify.progress import Update
from electrify.storage.build import committed_file
from electrify.storage.commit import read_json, write_json
from electrify.storage.folder import refuse_other
from electrify.training.observer import warn

TRAIN = "train"
Outputs = Sequence[NDArray[np.float32]]
"""The outputs of a model for each example."""


class PreparedSplit(NamedTuple):
    """Examples as they were read, and as inputs of a model."""

    examples: Any
    rows: Any
    """Has `lengths`, the number of tokens of each row, and `collate`, from indices to a batch."""


class TrainedModel(NamedTuple):
    """A trained model, with its outputs, answers and scores for each evaluated split."""

    model: Any
    encoder: Encoder
    splits: Mapping[str, PreparedSplit]
    outputs: Mapping[str, Outputs]
    answers: Mapping[str, Sequence[Any]]
    scores: Mapping[str, Mapping[str, float]]
    fitted: FitResult


class Problem(Protocol):
    """What a benchmark implements to be fine-tuned and evaluated."""

    preset: str = ""
    """Name of the settings in results."""
    identity: Mapping[str, Any] = {}
    """Everything that determines the result; empty inside a build, which has its own identity."""
    splits: Sequence[str] = ("dev",)
    """Splits to evaluate on; the training split is always "train"."""
    answered_together: int = 64
    """Batch size for prediction."""
    fewest_answers: int = 2
    """Minimum number of answers for a run with identical answers to count as degenerate."""

    @property
    def name(self) -> str:
        """Return the name of the task in results."""

    def read(self, split: str) -> Any:
        """Return the examples of a split."""

    def prepare(self, examples: Any, encoder: Encoder, learn: bool) -> Any:
        """Return examples as model inputs, to learn from or to predict."""

    def head(self, encoder: Encoder, seed: int) -> Any:
        """Return the encoder with a new head; torch's global generator is seeded too."""

    def answers(self, rows: Any, outputs: Outputs) -> Sequence[Any]:
        """Convert model outputs to an `Answer` for each example."""

    def measure(self, examples: Any, answers: Sequence[Any]) -> Mapping[str, float]:
        """Return the scores of answers; the first one selects the best model."""

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Save files of a run next to its result."""

    def counts(self, splits: Mapping[str, PreparedSplit]) -> Mapping[str, Any]:
        """Return `train_rows` and `malformed` for the result, if the benchmark reports them."""
        return {}

    def learned(self, model: Any) -> None:
        """Prepare a trained model for prediction, if necessary."""
        return None


def run_one(
    problem: Problem,
    model: str,
    seed: int,
    folder: Path,
    settings: Fit,
    device: str = "auto",
    on_progress: OnProgress = no_progress,
) -> Result:
    """Run one seed; if training diverges, warn and commit a failed result."""
    try:
        return train_and_measure(problem, model, seed, folder, settings, device, on_progress)
    except GuardError as error:
        warn(f"{problem.name} seed {seed}: {error.what}\n  got: {error.got}")
        counts = problem.counts(load_splits(problem, model)[1])
        failed = Result(problem.name, seed, problem.preset, failed=error.what, **counts)
        return commit(problem, folder, failed)


def train_and_measure(
    problem: Problem,
    model: str,
    seed: int,
    folder: Path,
    settings: Fit,
    device: str = "auto",
    on_progress: OnProgress = no_progress,
) -> Result:
    """Fine-tune, evaluate and commit one seed; diverging training is an error.

    A killed run is resumed. `stored_result` returns a result that was committed before.
    """
    encoder, splits = load_splits(problem, model)
    train = splits[TRAIN].rows
    network = new_model(problem, encoder, seed)
    folder.mkdir(parents=True, exist_ok=True)
    if problem.identity:  # after what may be refused: the settings can then still be changed
        write_json(folder / "identity.json", dict(problem.identity))
    fitted = fit(network, train.lengths, train.collate, settings, seed, folder, device, on_progress)
    problem.learned(network)
    raw, answers, scores = {}, {}, {}
    together = problem.answered_together
    precision = finetuning_precision(settings.precision, device)
    for name in problem.splits:
        examples, rows = splits[name]
        raw[name] = outputs(network, rows.lengths, rows.collate, together, precision)
        answers[name] = problem.answers(rows, raw[name])
        scores[name] = problem.measure(examples, answers[name])
    problem.keep(folder, TrainedModel(network, encoder, splits, raw, answers, scores, fitted))
    reasons = (degenerate(split, problem.fewest_answers) for split in answers.values())
    result = Result(
        problem.name,
        seed,
        problem.preset,
        scores=scores,
        degenerate=next(filter(None, reasons), ""),
        seconds=fitted.seconds,
        examples_per_second=fitted.examples_per_second,
        steps=fitted.steps,
        **problem.counts(splits),
    )
    return commit(problem, folder, result)


def commit(problem: Problem, folder: Path, result: Result) -> Result:
    """Write the result of a run, which marks it as finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder, result, problem.identity)
    remove_checkpoints(folder)
    return result


def new_model(problem: Problem, encoder: Encoder, seed: int) -> Any:
    """Build the model to train; new weights are initialized from the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return problem.head(encoder, seed)


class LastValueCache(AbstractContextManager["LastValueCache"]):
    """Caches the last value while a command runs, for the next seed of the same problem.

    The old value is released before a new one is made, so that memory never holds both.
    """

    def __init__(self) -> None:
        self.key: Any = None
        self.value: Any = None

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the cached value if the key is equal; otherwise make and cache a new one."""
        if self.key is None or self.key != key:
            self.clear()
            self.value = make()
            self.key = key
        return self.value

    def clear(self) -> None:
        """Release the cached value."""
        self.key = self.value = None

    def __exit__(self, *error: object) -> None:
        self.clear()


LOADED = LastValueCache()
"""The tokenized examples of the last problem; every worker process has its own."""


def load_splits(problem: Problem, model: str) -> tuple[Encoder, dict[str, PreparedSplit]]:
    """Read and tokenize the splits of a problem, once for all its seeds."""

    def load() -> tuple[Encoder, dict[str, PreparedSplit]]:
        encoder, splits = open_encoder(model), {}
        for name in (TRAIN, *problem.splits):
            examples = problem.read(name)
            splits[name] = PreparedSplit(
                examples, problem.prepare(examples, encoder, name == TRAIN)
            )
        return encoder, splits

    loaded: tuple[Encoder, dict[str, PreparedSplit]] = LOADED.get((problem, model), load)
    return loaded


class WithIdentity(Protocol):
    """A problem, or what stands for it, with everything that determines its result."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Return everything that determines the result."""


def stored_result(problem: WithIdentity, folder: Path) -> Result | None:
    """Return the result stored in a folder, if any; refuse one with different settings."""
    started, path = folder / "identity.json", folder / "result.json"
    finished = path.is_file()
    if not finished and not started.is_file():
        return None
    before = read_json(path if finished else started)
    if finished:
        if "identity" not in before:
            if problem.identity:
                raise damaged_result(path, "no identity")
            print(f"note: {path} is from an older version of electrify; this seed is trained again")
            return None
        before = before["identity"]
    refuse_other(
        folder,
        before,
        problem.identity,
        others="different settings, a different model or different data",
        free={"source"},
        later=HEADS_INITIALIZED,
        free_later={"preset"},
    )
    if not finished:
        return None
    remove_checkpoints(folder)  # a process may have been killed right after writing the result
    return read_result(path)


TO_PUBLISH = "files"
"""Folder in a run with the files that a build publishes."""


def publish(out: Path, folder: Path) -> list[dict[str, Any]]:
    """Commit the files of a run to a build; returns their manifest entries."""
    staged = folder / TO_PUBLISH
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    if not files:
        fix = f"remove {folder} and rerun the command to train it again"
        raise DamagedError("the model of a finished run is missing", got=f"no {staged}", fix=fix)
    entries = []
    for path in files:
        name = path.relative_to(staged)
        (out / name).parent.mkdir(exist_ok=True)
        entries.append(committed_file(out, name.as_posix(), partial(shutil.copyfile, path)))
    return entries


def progress_reporter(update: Update, name: str, done: int, count: int) -> OnProgress:
    """Return a callback that reports the progress of one of `count` runs, after `done` of them."""
    return lambda step, steps, loss: update(
        (done + step / steps) / count, f"{name} {step:,}/{steps:,} loss {loss:.3f}"
    )
