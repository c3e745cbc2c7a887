"""Read GLUE's files: the standard folder of TSVs, or the Hub's Parquet files (nyu-mll/glue).

TSVs are read as in the official code: quotation marks are ordinary characters. Rows that lack a
column or have an unknown label are skipped and counted; a file with more than 10 % of such rows is
refused.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError, needs
from electrify.finetuning.glue.tasks import GlueTask, Split

MOST_MALFORMED = 0.1
GLUE_ON_HUB = "nyu-mll/glue"


class GlueExamples(NamedTuple):
    """The examples of one split."""

    first: list[str]
    second: list[str] | None
    labels: list[float]
    """Class indices, or scores; empty for test files."""
    malformed: int
    """Number of rows that were skipped."""

    def __len__(self) -> int:
        return len(self.first)

    def first_rows(self, count: int) -> "GlueExamples":
        """Return the first `count` examples; 0 returns all."""
        end = count or None
        second = None if self.second is None else self.second[:end]
        return GlueExamples(self.first[:end], second, self.labels[:end], self.malformed)


def read_split(folder: Path, task: GlueTask, split: Split) -> GlueExamples:
    """Read a split of a task; the error for a missing file names its path."""
    labelled = not split.startswith(("test", "ax"))
    files = _files(folder, task, split)
    try:
        contents = [path.read_bytes() for path in files]
    except OSError as error:
        got = f"{files[0]}: {error.strerror}"
        fix = (
            "leave the task out of --tasks, or point --data to a complete GLUE folder; "
            "electrify data glue downloads it"
        )
        raise UserError(f"cannot read a file of {task.title}", got=got, fix=fix) from error
    if files[0].suffix == ".parquet":
        return _examples(files[0], _hub_rows(contents, task), labelled)
    return _examples(files[0], _tsv_rows(files[0], contents[0], task, labelled), labelled)


GlueRow = tuple[Sequence[str | None], float | None]
"""The texts and the label of a row; None for what is missing or invalid."""


def _examples(path: Path, rows: Iterable[GlueRow], labelled: bool) -> GlueExamples:
    texts: list[Sequence[Any]] = []
    labels: list[float] = []
    malformed = 0
    for row_texts, label in rows:
        if any(text is None for text in row_texts) or (labelled and label is None):
            malformed += 1
            continue
        texts.append(row_texts)
        if labelled and label is not None:
            labels.append(label)
    total = len(texts) + malformed
    if not texts:
        got, fix = f"{malformed} malformed rows", "download the file again"
        raise UserError(f"{path} has no examples", got=got, fix=fix)
    if malformed > MOST_MALFORMED * total:
        got = f"{malformed:,} of {total:,} rows lack a column or have an unknown label"
        fix = "download the file again"
        raise UserError(f"{path} does not look like the GLUE file of this name", got=got, fix=fix)
    first, *second = ([*column] for column in zip(*texts, strict=True))
    return GlueExamples(first, second[0] if second else None, labels, malformed)


def has_split(folder: Path, task: GlueTask, split: Split) -> bool:
    """Return whether the files of a split exist."""
    return split in task.files and _files(folder, task, split)[0].is_file()


def check_folder(folder: Path) -> None:
    """Refuse a GLUE folder that does not exist."""
    if not folder.is_dir():
        raise UserError(
            f"the GLUE folder {folder} does not exist",
            got=f"{folder}",
            fix=f"download GLUE from the Hub ({GLUE_ON_HUB}): electrify data glue --out {folder}; "
            "or use the folder that contains CoLA, SST-2, …",
        )


def data_fingerprint(folder: Path, task: GlueTask) -> dict[str, str]:
    """Return the hashes of the training and development files of a task."""
    hashes: dict[str, str] = {}
    for split in ("train", *task.dev_splits):
        if has_split(folder, task, split):
            data = b"".join(path.read_bytes() for path in _files(folder, task, split))
            hashes[split] = hashlib.sha256(data).hexdigest()[:16]
    return hashes


def hub_prefix(task: GlueTask, split: Split) -> str:
    """Return how the paths of a split's files begin on the Hub.

    >>> from electrify.finetuning.glue.tasks import TASKS
    >>> hub_prefix(TASKS["mnli"], "dev"), hub_prefix(TASKS["mnli"], "ax")
    ('mnli/validation_matched-', 'ax/test-')
    """
    config = "ax" if split == "ax" else task.name
    name = task.hub.splits.get(split) or {"dev": "validation", "ax": "test"}.get(split, split)
    return f"{config}/{name}-"


def _files(folder: Path, task: GlueTask, split: Split) -> list[Path]:
    """Return the Parquet files of a split if the folder is a copy of the Hub's, else its TSV."""
    if parquet := sorted(folder.glob(f"{hub_prefix(task, split)}*.parquet")):
        return parquet
    base = folder / task.title
    if not base.is_dir():  # some copies of GLUE spell the folders in another case
        matches = (p for p in folder.iterdir() if p.name.lower() == task.title.lower())
        base = next(matches, base)
    path = base / task.files[split]
    return [path.resolve() if ".." in task.files[split] else path]


def _tsv_rows(path: Path, data: bytes, task: GlueTask, labelled: bool) -> Iterator[GlueRow]:
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path} is not valid UTF-8",
            got=f"line {line}: {error.reason}",
            fix="convert the file to UTF-8",
        ) from error
    rows = [line.rstrip("\r").split("\t") for line in lines]
    if rows and rows[-1] == [""]:
        rows.pop()
    columns, label, start = _columns(path, rows, task, labelled)
    last = max(*columns, label if labelled else 0)
    for row in rows[start:]:
        if len(row) <= last:
            yield [None], None
        else:
            yield [row[column] for column in columns], _label(task, row[label])


def _columns(
    path: Path, rows: Sequence[Sequence[str]], task: GlueTask, labelled: bool
) -> tuple[tuple[int, ...], int, int]:
    """Return the columns of the texts and of the label, and the index of the first data row."""
    if not rows:
        raise UserError(f"{path} is empty", got="no lines", fix="download the file again")
    header = [name.strip().lower() for name in rows[0]]
    wanted = [name.lower() for name in task.texts]
    if all(name in header for name in wanted):
        texts = tuple(header.index(name) for name in wanted)
        if not labelled:
            return texts, 0, 1
        if task.label.lower() in header:
            return texts, header.index(task.label.lower()), 1
        fix = f"use a file with a column {task.label}"
        raise UserError(f"{path} has no labels", got=f"columns {', '.join(rows[0])}", fix=fix)
    if task.headless[0] and labelled:
        return (*task.headless, 0)
    got = f"line 1: {', '.join(rows[0])[:200]}"
    fix = f"use a file with a header and the columns {', '.join(task.texts)}"
    raise UserError(f"{path} lacks columns of {task.title}", got=got, fix=fix)


def _label(task: GlueTask, text: Any) -> float | None:
    """Return a label as a class index or score; None if it is not a valid label of the task."""
    if task.labels:
        return float(task.labels.index(text)) if text in task.labels else None
    try:
        score = float(text)
    except (TypeError, ValueError):
        return None
    return score if task.score_range[0] <= score <= task.score_range[1] else None


def _hub_rows(contents: Sequence[bytes], task: GlueTask) -> Iterator[GlueRow]:
    parquet = needs("pyarrow.parquet", extra="data", why="reading the Hub's copy of GLUE")
    names, words = task.hub.texts or task.texts, task.hub.labels or task.labels
    for content in contents:
        table = parquet.read_table(io.BytesIO(content), columns=[*names, "label"])
        columns = (table.column(name).to_pylist() for name in (*names, "label"))
        for *texts, label in zip(*columns, strict=True):
            if words:
                label = words[label] if label is not None and 0 <= label < len(words) else None
            yield texts, _label(task, label)
