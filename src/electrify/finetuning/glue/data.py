"""GLUE's files as examples: the standard folder of TSVs, or the Hub's Parquet (nyu-mll/glue).

TSVs are read as officially: a quotation mark is an ordinary character. Rows that lack a column or
have an unknown label are passed over and counted; a file of which more than a tenth is so is not
the right file.
"""

import hashlib
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
    """Numbers of classes, or scores; empty for test files."""
    malformed: int
    """Rows that were passed over."""

    def __len__(self) -> int:
        return len(self.first)

    def first_rows(self, count: int) -> "GlueExamples":
        """The first so many; 0: all."""
        end = count or None
        second = self.second[:end] if self.second is not None else None
        texts = self.first[:end], second
        return GlueExamples(*texts, self.labels[:end], self.malformed)


def read_split(folder: Path, task: GlueTask, split: Split) -> GlueExamples:
    """A split of a task; an absent file is an error that says where it was looked for."""
    labelled = not split.startswith(("test", "ax"))
    files = _hub_files(folder, task, split) or [_tsv_path(folder, task, split)]
    try:
        data = b"".join(path.read_bytes() for path in files)
    except OSError as error:
        got = f"{files[0]}: {error.strerror}"
        fix = "give --data the GLUE folder, or leave the task out of --tasks"
        raise UserError(f"{task.title} lacks a file", got=got, fix=fix) from error
    if files[0].suffix == ".parquet":
        return _examples(files[0], _hub_rows(files, task), labelled)
    return _examples(files[0], _tsv_rows(files[0], data, task, labelled), labelled)


GlueRow = tuple[Sequence[str | None], float | None]
"""Its texts and its label, as far as the file has them."""


def _examples(path: Path, rows: Iterable[GlueRow], labelled: bool) -> GlueExamples:
    texts: list[Sequence[Any]] = []
    labels: list[float] = []
    malformed = 0
    for some, value in rows:
        if any(text is None for text in some) or (labelled and value is None):
            malformed += 1
            continue
        texts.append(some)
        if labelled and value is not None:
            labels.append(value)
    _check_enough(path, len(texts), malformed)
    first, *second = ([*column] for column in zip(*texts, strict=True))
    return GlueExamples(first, second[0] if second else None, labels, malformed)


def has_split(folder: Path, task: GlueTask, split: Split) -> bool:
    """Whether a split is there."""
    if split not in task.files:
        return False
    return bool(_hub_files(folder, task, split)) or _tsv_path(folder, task, split).is_file()


def check_folder(folder: Path) -> None:
    """Raise if a folder is no GLUE folder at all."""
    if not folder.is_dir():
        raise UserError(
            f"no GLUE folder {folder}",
            got=f"{folder}",
            fix="give the folder that holds CoLA, SST-2, …, or a copy of the Hub's "
            f"{GLUE_ON_HUB} (hf download {GLUE_ON_HUB} --repo-type dataset --local-dir glue)",
        )


def data_fingerprint(folder: Path, task: GlueTask) -> dict[str, str]:
    """What identifies the files a task is trained and measured on."""
    splits: tuple[Split, ...] = ("train", "dev", "dev_mismatched")
    found: dict[str, str] = {}
    for split in splits:
        if has_split(folder, task, split):
            files = _hub_files(folder, task, split) or [_tsv_path(folder, task, split)]
            digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
            found[split] = digest.hexdigest()[:16]
    return found


def _tsv_path(folder: Path, task: GlueTask, split: Split) -> Path:
    base = folder / task.title
    if not base.is_dir():  # copies differ in case
        alike = [p for p in folder.iterdir() if p.name.lower() == task.title.lower()]
        base = alike[0] if alike else base
    path = base / task.files[split]
    return path.resolve() if ".." in task.files[split] else path


def _tsv_rows(path: Path, data: bytes, task: GlueTask, labelled: bool) -> Iterator[GlueRow]:
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path} is not UTF-8", got=f"line {line}: {error.reason}", fix="convert the file"
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
            yield [row[column] for column in columns], _number(task, row[label])


def _columns(
    path: Path, rows: Sequence[Sequence[str]], task: GlueTask, labelled: bool
) -> tuple[tuple[int, ...], int, int]:
    """Where texts and label are, and the first row of data."""
    if not rows:
        raise UserError(f"{path} is empty", got="no lines", fix="get the file again")
    header = [name.strip().lower() for name in rows[0]]
    wanted = [name.lower() for name in task.texts]
    if all(name in header for name in wanted):
        texts = tuple(header.index(name) for name in wanted)
        if not labelled:
            return texts, 0, 1
        if task.label.lower() in header:
            return texts, header.index(task.label.lower()), 1
        fix = f"a column {task.label} is needed"
        raise UserError(f"{path} has no labels", got=f"columns {', '.join(rows[0])}", fix=fix)
    if task.headless[0] and labelled:
        return (*task.headless, 0)
    got = f"line 1: {', '.join(rows[0])[:200]}"
    fix = f"columns {', '.join(task.texts)} are needed, with a header"
    raise UserError(f"{path} lacks columns of {task.title}", got=got, fix=fix)


def _number(task: GlueTask, text: Any) -> float | None:
    """A label as a number; None if it is none of this task's."""
    if task.labels:
        return float(task.labels.index(text)) if text in task.labels else None
    try:
        score = float(text)
    except (TypeError, ValueError):
        return None
    return score if task.score_range[0] <= score <= task.score_range[1] else None


def _check_enough(path: Path, good: int, malformed: int) -> None:
    if not good:
        raise UserError(
            f"{path} has no examples", got=f"{malformed} malformed rows", fix="get the file again"
        )
    if malformed > MOST_MALFORMED * (good + malformed):
        got = f"{malformed:,} of {good + malformed:,} rows lack a column or have another label"
        fix = "get the file again"
        raise UserError(f"{path} does not look like the GLUE file of this name", got=got, fix=fix)


def _hub_files(folder: Path, task: GlueTask, split: Split) -> list[Path]:
    """The Parquet files of a split in a copy of the Hub's data set, if that is what this is."""
    config = "ax" if split == "ax" else task.name
    name = task.hub.splits.get(split) or {"dev": "validation", "ax": "test"}.get(split, split)
    return sorted((folder / config).glob(f"{name}-*.parquet"))


def _hub_rows(files: Sequence[Path], task: GlueTask) -> Iterator[GlueRow]:
    parquet = needs("pyarrow.parquet", extra="data", why="reading the Hub's copy of GLUE")
    names, words = task.hub.texts or task.texts, task.hub.labels or task.labels
    for path in files:
        table = parquet.read_table(path, columns=[*names, "label"])
        columns = (table.column(name).to_pylist() for name in (*names, "label"))
        for *texts, label in zip(*columns, strict=True):
            if words:
                label = words[label] if label is not None and 0 <= label < len(words) else None
            yield texts, _number(task, label)
