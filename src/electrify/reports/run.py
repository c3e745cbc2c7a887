"""A pre-training run as read from its folder, finished or not; the folder is never changed."""

import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from electrify.errors import DamagedError, UserError
from electrify.objectives.bands import Sizes, sizes_of
from electrify.objectives.objective import Objective, objective_class
from electrify.objectives.verdict import RunVerdict, run_verdict
from electrify.recipes.schema import Recipe
from electrify.reports.provenance import Source, read_source
from electrify.storage.commit import checked_manifest
from electrify.training.batch_plan import BatchPlans
from electrify.training.clock import TIME_PARTS, time_shares
from electrify.training.extension import Extension, extensions_of, planned_ends, progress_of
from electrify.training.folder import RunFolder
from electrify.training.journal import (
    METRICS_FILE,
    TIMING_FILE,
    parse_records,
    renamed,
    seconds_logged,
)
from electrify.training.training import Progress

Records = list[dict[str, Any]]

TRAIN_SPLIT, VALIDATION_SPLIT = "train", "validation"


class Series(NamedTuple):
    """A metric over steps."""

    steps: list[int]
    values: list[float]


class RunRecord(NamedTuple):
    """All that is shown of a run."""

    name: str
    path: Path
    about: dict[str, Any]
    """The contents of run.json."""
    recipe: Recipe
    metrics: Records
    timing: Records
    saved: int
    """The step of the latest checkpoint; 0 if there is none."""
    parameters: int | None
    """Parameters of all networks, shared ones counted once; None without a checkpoint."""
    data_state: str
    """A description of whether the shards still exist."""
    sources: list[Source]

    @property
    def step(self) -> int:
        """The last known step."""
        logged: list[int] = [record["step"] for record in self.metrics]
        return max([self.saved, *logged])

    @property
    def steps(self) -> int:
        """The planned number of steps, including extensions."""
        return planned_ends(self.recipe, self.extensions)[-1]

    @property
    def extensions(self) -> list[Extension]:
        """The extensions of the run beyond the steps of its recipe."""
        return extensions_of(self.about, self.path / "run.json")

    @property
    def examples_seen(self) -> int:
        """The number of examples up to the last known step; those of later epochs count again."""
        progress = Progress(progress_of(self.recipe, self.extensions))
        return BatchPlans(self.recipe, progress)(self.step).first

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.steps

    @property
    def objective(self) -> type[Objective]:
        """The class of its objective."""
        return objective_class(self.recipe.objective.kind)

    @property
    def sizes(self) -> Sizes:
        """The settings that its losses depend on."""
        return sizes_of(self.recipe, self.about["shards"]["identity"]["tokenizer"]["vocab_size"])

    @property
    def splits(self) -> dict[str, dict[str, Any]]:
        """Counts of the data when the run was started."""
        splits: dict[str, dict[str, Any]] = self.about["shards"]["splits"]
        return splits

    def series(self, split: str, metric: str) -> Series:
        """Return a metric of a split where it is defined."""
        return _series([record for record in self.metrics if record["split"] == split], metric)

    @property
    def speed(self) -> Series:
        """Tokens per second over steps."""
        return _series(self.timing, "tokens_per_second")

    @property
    def median_speed(self) -> float:
        """Median tokens per second; NaN if no speed was logged."""
        return statistics.median(self.speed.values) if self.speed.values else math.nan

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens per step, without padding; NaN if no speed was logged."""
        return self.tokens_seen / self.timing[-1]["step"] if self.timing else math.nan

    @property
    def tokens_seen(self) -> float:
        """Number of tokens trained on, without padding; NaN if no speed was logged."""
        total, previous = 0.0, 0
        for record in self.timing:
            per_step = record["tokens_per_second"] / record["steps_per_second"]
            total, previous = total + per_step * (record["step"] - previous), record["step"]
        return total or math.nan

    @property
    def seconds(self) -> float:
        """Wall time of training, without setting up and pauses; 0 if no speed was logged."""
        return seconds_logged(self.timing)

    @property
    def time_shares(self) -> dict[str, float]:
        """The fraction of the time spent on each part; empty if it was not measured."""
        measured = [record for record in self.timing if "seconds" in record]
        sums = {n: sum(r.get(f"{n}_seconds", 0.0) for r in measured) for n in TIME_PARTS}
        total = sum(record["seconds"] for record in measured)
        return time_shares(sums, total) if any(sums.values()) else {}

    @property
    def verdict(self) -> RunVerdict | None:
        """What it has learned; None if its objective has no verdict or nothing was logged."""
        return run_verdict(self.objective, self.sizes, self.metrics, self.steps)

    def last(self, split: str) -> dict[str, Any] | None:
        """Return the latest record of a split."""
        return next((r for r in reversed(self.metrics) if r["split"] == split), None)

    @property
    def latest(self) -> dict[str, float]:
        """The latest defined metrics, on the validation set if it was evaluated."""
        record = self.last(VALIDATION_SPLIT) or self.last(TRAIN_SPLIT) or {}
        return {n: v for n, v in record.items() if n not in ("step", "split") and v is not None}


def _series(records: Records, metric: str) -> Series:
    found = [(r["step"], float(r[metric])) for r in records if r.get(metric) is not None]
    return Series([step for step, _ in found], [value for _, value in found])


def read_run(folder: Path, name: str) -> RunRecord:
    """Read the folder of a run, which may still be training."""
    run_folder = RunFolder(folder)
    sources = [read_source(folder, "run.json")[1]]
    about, recipe = run_folder.about, run_folder.recipe
    former = objective_class(recipe.objective.kind).former_names
    metrics = [renamed(r, former) for r in _journal(folder, METRICS_FILE, sources)]
    timing = _journal(folder, TIMING_FILE, sources)
    saved, parameters = _newest_checkpoint(run_folder, sources)
    try:
        state = _data_state(run_folder)
        run = RunRecord(
            name, folder, about, recipe, metrics, timing, saved, parameters, state, sources
        )
        _check(run)
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise DamagedError(
            f"{folder} is damaged",
            got=f"{error!r}",
            fix="restore run.json and the two .jsonl files from a backup",
        ) from error
    return run


def _check(run: RunRecord) -> None:
    """Read everything that is shown later, so that damage is found before anything is written."""
    if not all(isinstance(record["split"], str) for record in run.metrics):
        raise TypeError("the name of a split is not a string")
    for record in (*run.metrics, *run.timing):
        for name, value in record.items():
            if name != "split" and value is not None:
                float(value)
    for split in run.splits.values():
        sum(split["lengths"])
        sum(split[name] for name in COUNTS)
    float(run.tokens_seen + run.tokens_per_step + run.seconds + run.sizes.uniform_loss + run.steps)
    str(run.verdict)


COUNTS = ("documents", "examples", "tokens", "text_tokens", "dropped_tokens", "unknown_tokens")


def _journal(folder: Path, name: str, sources: list[Source]) -> Records:
    if not (folder / name).exists():
        return []
    content, source = read_source(folder, name)
    sources.append(source)
    return parse_records(content, folder / name)


def _newest_checkpoint(folder: RunFolder, sources: list[Source]) -> tuple[int, int | None]:
    """Return the step and the parameter count of the latest checkpoint, from its header."""
    for step, path in folder.saved():
        try:
            files = checked_manifest(path / "manifest.json")["files"]
            entry = next(file for file in files if file["name"] == "model.safetensors")
            with safe_open(path / entry["name"], "numpy") as tensors:
                names = tensors.keys()
                count = sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (OSError, UserError, StopIteration, SafetensorError):
            continue  # pruned by the running training, or damaged
        weights = f"checkpoints/{path.name}/model.safetensors"
        sources.append(Source(weights, entry["bytes"], entry["sha256"]))
        return step, count
    return 0, None


def _data_state(folder: RunFolder) -> str:
    try:
        _ = folder.shards
    except UserError:
        return "no longer at their original path; these numbers are the copy in the run"
    return "unchanged"
