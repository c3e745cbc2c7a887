"""One fine-tuning run of any benchmark: train, answer, measure, commit.

A benchmark is a `Problem`: GLUE, SQuAD and your own files are three. Everything else is here, once.

FOLDER/identity.json   what decides the result, if the folder is not part of a build: written first
       checkpoints     while it trains
       …               what the problem keeps beside the result
       result.json     scores and what they came from: written last
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from electrify.errors import DamagedError, GuardError
from electrify.finetuning.encoder import HEADS_DRAWN, Encoder, open_encoder
from electrify.finetuning.fit import Fitted, OnProgress, fit, forget, outputs, silent
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
"""What a model gives for each example."""


class PreparedSplit(NamedTuple):
    """Examples as they were read and as a model takes them."""

    examples: Any
    rows: Any
    """With the tokens of each in `lengths`, and `collate`: from numbers of some to a batch."""


class TrainedModel(NamedTuple):
    """A model that was trained, and what it says of each split that is measured."""

    model: Any
    encoder: Encoder
    splits: Mapping[str, PreparedSplit]
    outputs: Mapping[str, Outputs]
    answers: Mapping[str, Sequence[Any]]
    scores: Mapping[str, Mapping[str, float]]
    fitted: Fitted


class Problem(Protocol):
    """What a benchmark says of itself."""

    preset: str = ""
    """The settings, as results call them."""
    identity: Mapping[str, Any] = {}
    """All that decides the result; empty inside a build, which has its own."""
    splits: Sequence[str] = ("dev",)
    """What to measure; "train" is what to learn from."""
    answered_together: int = 64
    """Examples in a batch of prediction."""
    fewest_answers: int = 2
    """As many answers that are all the same make a run degenerate."""

    @property
    def name(self) -> str:
        """The task, as results call it."""

    def read(self, split: str) -> Any:
        """Return the examples of a split."""

    def prepare(self, examples: Any, encoder: Encoder, learn: bool) -> Any:
        """Return examples as a model takes them, to learn from or to be answered."""

    def head(self, encoder: Encoder, seed: int) -> Any:
        """Return the encoder under a new head; torch's generator has the seed, too."""

    def answers(self, rows: Any, said: Outputs) -> Sequence[Any]:
        """Return what outputs mean: an `Answer` for each example."""

    def measure(self, examples: Any, answers: Sequence[Any]) -> Mapping[str, float]:
        """Return the scores of answers; the first is what models are chosen by."""

    def keep(self, folder: Path, trained: TrainedModel) -> None:
        """Write what is kept of a run beside its result."""

    def counts(self, splits: Mapping[str, PreparedSplit]) -> Mapping[str, Any]:
        """Return `train_rows` and `malformed` of a result, if the benchmark reports them."""
        return {}

    def learned(self, model: Any) -> None:
        """Do to a trained model what has to be done before it answers."""
        return None


def run_one(
    problem: Problem,
    model: str,
    seed: int,
    folder: Path,
    settings: Fit,
    device: str = "auto",
    on_progress: OnProgress = silent,
) -> Result:
    """Run one seed; a training that breaks down is a result that says so, and a warning why."""
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
    on_progress: OnProgress = silent,
) -> Result:
    """Fine-tune, measure, commit; a training that breaks down is an error.

    After a kill it resumes where it was. `stored_result` gives a result that was committed before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if problem.identity:
        write_json(folder / "identity.json", dict(problem.identity))
    encoder, splits = load_splits(problem, model)
    train = splits[TRAIN].rows
    network = new_model(problem, encoder, seed)
    fitted = fit(network, train.lengths, train.collate, settings, seed, folder, device, on_progress)
    trained = _answered(problem, encoder, splits, network, fitted)
    problem.keep(folder, trained)
    doubts = (degenerate(some, problem.fewest_answers) for some in trained.answers.values())
    result = Result(
        problem.name,
        seed,
        problem.preset,
        scores=trained.scores,
        degenerate=next(filter(None, doubts), ""),
        seconds=fitted.seconds,
        examples_per_second=fitted.examples_per_second,
        steps=fitted.steps,
        **problem.counts(splits),
    )
    return commit(problem, folder, result)


def commit(problem: Problem, folder: Path, result: Result) -> Result:
    """Write the result of a run, which makes it finished."""
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder, result, problem.identity)
    forget(folder)
    return result


def new_model(problem: Problem, encoder: Encoder, seed: int) -> Any:
    """Build the model that is trained; what is new in it is drawn by the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return problem.head(encoder, seed)


def _answered(
    problem: Problem,
    encoder: Encoder,
    splits: Mapping[str, PreparedSplit],
    model: Any,
    fitted: Fitted,
) -> TrainedModel:
    problem.learned(model)
    said, answers, scores = {}, {}, {}
    for name in problem.splits:
        examples, rows = splits[name]
        said[name] = outputs(model, rows.lengths, rows.collate, problem.answered_together)
        answers[name] = problem.answers(rows, said[name])
        scores[name] = problem.measure(examples, answers[name])
    return TrainedModel(model, encoder, splits, said, answers, scores, fitted)


class Latest:
    """Keeps what was made last while a command runs, for the next seed of the same problem.

    It lets go of it before it makes something else, so that no two of them are in memory.
    """

    def __init__(self) -> None:
        self.key: Any = None
        self.value: Any = None

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made for an equal key, or make it."""
        if self.key is None or self.key != key:
            self.clear()
            self.value = make()
            self.key = key
        return self.value

    def clear(self) -> None:
        """Let go of it."""
        self.key = self.value = None

    def __enter__(self) -> "Latest":
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()


LOADED = Latest()
"""The examples of one problem. Workers of a pool have one each."""


def load_splits(problem: Problem, model: str) -> tuple[Encoder, dict[str, PreparedSplit]]:
    """Read and tokenise what a problem learns from and is measured on, once for all its seeds."""

    def made() -> tuple[Encoder, dict[str, PreparedSplit]]:
        encoder, splits = open_encoder(model), {}
        for name in (TRAIN, *problem.splits):
            examples = problem.read(name)
            splits[name] = PreparedSplit(
                examples, problem.prepare(examples, encoder, name == TRAIN)
            )
        return encoder, splits

    loaded: tuple[Encoder, dict[str, PreparedSplit]] = LOADED.get((problem, model), made)
    return loaded


def stored_result(problem: Problem, folder: Path) -> Result | None:
    """Return the result that a folder has; one of other settings is refused."""
    begun, path = folder / "identity.json", folder / "result.json"
    if not begun.is_file() and not path.is_file():
        return None
    before = read_json(path if path.is_file() else begun)
    if path.is_file():
        if "identity" not in before:
            if problem.identity:
                raise damaged_result(path, "no identity")
            print(f"note: {path} is of an earlier version of electrify: this seed is trained again")
            return None
        before = before["identity"]
    refuse_other(
        folder,
        before,
        problem.identity,
        others="other settings, another model or other data",
        free={"source"},
        later=HEADS_DRAWN,
        free_later={"preset"},
    )
    if not path.is_file():
        return None
    forget(folder)  # of a process that was killed just after the result
    return read_result(path)


TO_PUBLISH = "files"
"""The folder of a run with what a build publishes of it."""


def publish(out: Path, folder: Path) -> list[dict[str, Any]]:
    """Commit the files of a run to a build; returns their entries for its manifest."""
    staged = folder / TO_PUBLISH
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    if not files:
        fix = f"remove {folder}: the same command trains it again"
        raise DamagedError("the model of a finished run is missing", got=f"no {staged}", fix=fix)
    entries = []
    for path in files:
        name = path.relative_to(staged)
        (out / name).parent.mkdir(exist_ok=True)
        entries.append(committed_file(out, name.as_posix(), partial(shutil.copyfile, path)))
    return entries


def progressing(update: Update, name: str, done: int, count: int) -> OnProgress:
    """Report the steps of one of several runs, of which some are done."""

    def on_progress(step: int, steps: int, loss: float) -> None:
        update((done + step / steps) / count, f"{name} {step:,}/{steps:,} loss {loss:.3f}")

    return on_progress
