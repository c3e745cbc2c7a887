"""A pre-training run as its folder tells it, finished or not; nothing in the folder is changed."""

import math
import statistics
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from electrify.errors import DamagedError, UserError
from electrify.objectives.bands import Sizes, sizes_of
from electrify.objectives.objective import Objective, objective_class
from electrify.recipes.schema import Recipe
from electrify.reports.pair import shards_of_run
from electrify.reports.provenance import Source, read_source
from electrify.storage.commit import checked_manifest
from electrify.training import checkpoint
from electrify.training.folder import RunFolder
from electrify.training.journal import METRICS_FILE, TIMING_FILE, records_in, renamed

Records = list[dict[str, Any]]

TRAIN_SPLIT, VALIDATION_SPLIT = "train", "validation"


class Series(NamedTuple):
    """A number along the training, where it was measured."""

    steps: list[int]
    values: list[float]


class RunRecord(NamedTuple):
    """All that is shown of a run."""

    name: str
    path: Path
    about: dict[str, Any]
    """What it was begun with: run.json."""
    recipe: Recipe
    metrics: Records
    timing: Records
    saved: int
    """The step of the newest checkpoint; 0 if there is none."""
    parameters: int | None
    """Of all networks, what they share counted once; None before the first checkpoint."""
    data_state: str
    """In words, whether the shards are still there."""
    sources: list[Source]

    @property
    def step(self) -> int:
        """The last step that is known of."""
        measured: list[int] = [record["step"] for record in self.metrics]
        return max([self.saved, *measured])

    @property
    def steps(self) -> int:
        """How many it is to have."""
        return self.recipe.run.steps

    @property
    def finished(self) -> bool:
        """Whether all steps were done."""
        return self.step >= self.steps

    @property
    def objective(self) -> type[Objective]:
        """What it learns by."""
        return objective_class(self.recipe.objective.kind)

    @property
    def sizes(self) -> Sizes:
        """What its losses depend on."""
        return sizes_of(self.recipe, self.about["shards"]["identity"]["tokenizer"]["vocab_size"])

    @property
    def splits(self) -> dict[str, dict[str, Any]]:
        """Counts of the data, as they were when the run began."""
        splits: dict[str, dict[str, Any]] = self.about["shards"]["splits"]
        return splits

    def series(self, split: str, metric: str) -> Series:
        """A metric of a split, without the measurements in which it is undefined."""
        return _series([record for record in self.metrics if record["split"] == split], metric)

    @property
    def speed(self) -> Series:
        """Tokens a second."""
        return _series(self.timing, "tokens_per_second")

    @property
    def usual_speed(self) -> float:
        """The median over the intervals; not a number if there are none."""
        return statistics.median(self.speed.values) if self.speed.values else math.nan

    @property
    def tokens_seen(self) -> float:
        """Tokens trained on, padding left out; not a number if speeds were not recorded."""
        total, before = 0.0, 0
        for record in self.timing:
            a_step = record["tokens_per_second"] / record["steps_per_second"]
            total, before = total + a_step * (record["step"] - before), record["step"]
        return total or math.nan

    def last(self, split: str) -> dict[str, Any] | None:
        """The newest measurement of a split."""
        return next((r for r in reversed(self.metrics) if r["split"] == split), None)

    @property
    def latest(self) -> dict[str, float]:
        """The newest metrics that are numbers, on the validation set where there are some."""
        newest = self.last(VALIDATION_SPLIT) or self.last(TRAIN_SPLIT) or {}
        return {n: v for n, v in newest.items() if n not in ("step", "split") and v is not None}


def _series(records: Records, metric: str) -> Series:
    found = [(r["step"], float(r[metric])) for r in records if r.get(metric) is not None]
    return Series([step for step, _ in found], [value for _, value in found])


def read_run(folder: Path, name: str) -> RunRecord:
    """A run's folder, which may be trained in at this moment."""
    kept = RunFolder(folder)
    sources = [read_source(folder, "run.json")[1]]
    recipe = kept.recipe
    former = objective_class(recipe.objective.kind).former_names
    metrics = [renamed(r, former) for r in _journal(folder, METRICS_FILE, sources)]
    timing = _journal(folder, TIMING_FILE, sources)
    saved, parameters = _newest_checkpoint(folder, sources)
    about = kept.about
    try:
        state = _data_state(folder)
        run = RunRecord(
            name, folder, about, kept.recipe, metrics, timing, saved, parameters, state, sources
        )
        _check(run)
    except (KeyError, TypeError, AttributeError, ValueError, ZeroDivisionError) as error:
        raise DamagedError(
            f"{folder} is damaged",
            got=f"{error!r}",
            fix="restore run.json and the two .jsonl files from a copy",
        ) from error
    return run


def _check(run: RunRecord) -> None:
    """Read once all that is shown later, so that damage is found before anything is written."""
    if not all(isinstance(record["split"], str) for record in run.metrics):
        raise TypeError("a split without a name")
    numbers = [
        value
        for record in (*run.metrics, *run.timing)
        for name, value in record.items()
        if name != "split" and value is not None
    ]
    for value in numbers:
        float(value)
    for split in run.splits.values():
        sum(split["lengths"])
        sum(split[name] for name in COUNTS)
    float(run.tokens_seen + run.sizes.uniform_loss)


COUNTS = ("documents", "examples", "tokens", "text_tokens", "dropped_tokens", "unknown_tokens")


def _journal(folder: Path, name: str, sources: list[Source]) -> Records:
    if not (folder / name).exists():
        return []
    content, source = read_source(folder, name)
    sources.append(source)
    return records_in(content, folder / name)


def _newest_checkpoint(folder: Path, sources: list[Source]) -> tuple[int, int | None]:
    """The newest checkpoint's step and its parameters, counted in the header of its weights."""
    for step, place in checkpoint.stored(folder / "checkpoints"):
        name = f"checkpoints/{place.name}/manifest.json"
        try:
            files = checked_manifest(folder / name)["files"]
            entry = next(file for file in files if file["name"] == "model.safetensors")
            with safe_open(place / entry["name"], "numpy") as tensors:
                names = tensors.keys()
                count = sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (OSError, UserError, StopIteration, SafetensorError):
            continue  # a run that goes on prunes its checkpoints; a damaged one counts no weights
        weights = f"checkpoints/{place.name}/model.safetensors"
        sources.append(Source(weights, entry["bytes"], entry["sha256"]))
        return step, count
    return 0, None


def _data_state(folder: Path) -> str:
    try:
        shards_of_run(folder)
    except UserError:
        return "not found where they were; these numbers are the run's own copy"
    return "still there, unchanged"
