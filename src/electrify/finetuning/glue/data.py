"""GLUE's files as examples: the standard folder of TSVs, or the Hub's Parquet (nyu-mll/glue).

TSVs are read as officially: a quotation mark is an ordinary character. Rows that lack a column or
have an unknown label are passed over and counted; a file of which more than a tenth is so is not
the right file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.errors import UserError
from electrify.finetuning.glue.tasks import GlueTask, Split

MOST_MALFORMED = 0.1
UNLABELLED = "-1"
HUB_NAME = "nyu-mll/glue"


class Examples(NamedTuple):
    """The examples of one split."""

    first: list[str]
    second: list[str] | None
    labels: list[float]
    """Numbers of classes, or scores; empty for test files."""
    malformed: int
    """Rows that were passed over."""
    source: str
    """The file's name and the beginning of its SHA-256."""

    def __len__(self) -> int:
        return len(self.first)


def read_split(folder: Path, task: GlueTask, split: Split) -> Examples:
    """A split of a task; an absent file is an error that says where it was looked for."""
    hub = _hub_folder(folder, task, split)
    if hub is not None:
        return _read_hub(hub, task, split)
    path = _tsv_path(folder, task, split)
    return _read_tsv(path, task, labelled=not split.startswith(("test", "ax")))


def has_split(folder: Path, task: GlueTask, split: Split) -> bool:
    """Whether a split is there."""
    if split not in task.files:
        return False
    return _hub_folder(folder, task, split) is not None or _tsv_path(folder, task, split).is_file()


def check_folder(folder: Path) -> None:
    """Raise if a folder is no GLUE folder at all."""
    if not folder.is_dir():
        raise UserError(
            f"no GLUE folder {folder}",
            got=f"{folder}",
            fix="give the folder that holds CoLA, SST-2, …, or a copy of the Hub's "
            f"{HUB_NAME} (hf download {HUB_NAME} --repo-type dataset --local-dir glue)",
        )


def fingerprint(folder: Path, task: GlueTask) -> dict[str, str]:
    """What identifies the files a task is trained and measured on."""
    splits: tuple[Split, ...] = ("train", "dev", "dev_mismatched")
    found: dict[str, str] = {}
    for split in splits:
        if not has_split(folder, task, split):
            continue
        hub = _hub_folder(folder, task, split)
        files = hub if hub is not None else [_tsv_path(folder, task, split)]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in files))
        found[split] = digest.hexdigest()[:16]
    return found


def _tsv_path(folder: Path, task: GlueTask, split: Split) -> Path:
    base = folder / task.folder
    if not base.is_dir():  # copies differ in case
        alike = [p for p in folder.iterdir() if p.name.lower() == task.folder.lower()]
        base = alike[0] if alike else base
    return (
        (base / task.files[split]).resolve()
        if ".." in task.files[split]
        else (base / task.files[split])
    )


def _read_tsv(path: Path, task: GlueTask, labelled: bool) -> Examples:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{task.title} lacks a file",
            got=f"{path}: {error.strerror}",
            fix="give --data the GLUE folder, or leave the task out of --tasks",
        ) from error
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
    first: list[str] = []
    second: list[str] = []
    labels: list[float] = []
    malformed = 0
    last = max(*columns, label if labelled else 0)
    for row in rows[start:]:
        value = _number(task, row[label]) if labelled and len(row) > last else None
        if len(row) <= last or (labelled and value is None):
            malformed += 1
            continue
        texts = [row[column] for column in columns]
        first.append(texts[0])
        second += texts[1:]
        if value is not None:
            labels.append(value)
    _check_enough(path, len(first), malformed)
    source = f"{path.name} {hashlib.sha256(data).hexdigest()[:16]}"
    return Examples(first, second if len(columns) > 1 else None, labels, malformed, source)


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
        raise UserError(
            f"{path} has no labels",
            got=f"columns {', '.join(rows[0])}",
            fix=f"a column {task.label} is needed",
        )
    if task.headless[0] and labelled:
        return (*task.headless, 0)
    raise UserError(
        f"{path} lacks columns of {task.title}",
        got=f"line 1: {', '.join(rows[0])[:200]}",
        fix=f"columns {', '.join(task.texts)} are needed, with a header",
    )


def _number(task: GlueTask, text: str) -> float | None:
    """A label as a number; None if it is none of this task's."""
    if task.labels:
        return float(task.labels.index(text)) if text in task.labels else None
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0.0 <= score <= 5.0 else None


def _check_enough(path: Path, good: int, malformed: int) -> None:
    if not good:
        raise UserError(
            f"{path} has no examples", got=f"{malformed} malformed rows", fix="get the file again"
        )
    if malformed > MOST_MALFORMED * (good + malformed):
        raise UserError(
            f"{path} does not look like the GLUE file of this name",
            got=f"{malformed:,} of {good + malformed:,} rows lack a column or have another label",
            fix="get the file again",
        )


def _hub_folder(folder: Path, task: GlueTask, split: Split) -> list[Path] | None:
    """The Parquet files of a split in a copy of the Hub's data set, if that is what this is."""
    config = "ax" if split == "ax" else task.hub.config
    name = HUB_SPLITS.get((task.name, split), HUB_SPLITS.get(("", split), split))
    found = sorted((folder / config).glob(f"{name}-*.parquet"))
    return found or None


HUB_SPLITS: dict[tuple[str, str], str] = {
    ("", "dev"): "validation",
    ("", "ax"): "test",
    ("mnli", "dev"): "validation_matched",
    ("mnli", "dev_mismatched"): "validation_mismatched",
    ("mnli", "test"): "test_matched",
    ("mnli", "test_mismatched"): "test_mismatched",
}


def _read_hub(files: Sequence[Path], task: GlueTask, split: Split) -> Examples:
    first: list[str] = []
    second: list[str] = []
    labels: list[float] = []
    malformed = 0
    labelled = not split.startswith(("test", "ax"))
    for row in _parquet_rows(files, (*task.hub.texts, "label")):
        *texts, label = row
        value = _hub_number(task, label) if labelled else 0.0
        if any(text is None for text in texts) or value is None:
            malformed += 1
            continue
        first.append(texts[0])
        second += texts[1:]
        if labelled:
            labels.append(value)
    _check_enough(files[0], len(first), malformed)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    pair = second if len(task.hub.texts) > 1 else None
    return Examples(first, pair, labels, malformed, f"{files[0].name} {digest[:16]}")


def _hub_number(task: GlueTask, label: Any) -> float | None:
    if label is None or (task.labels and not 0 <= label < len(task.hub.labels)):
        return None
    if not task.labels:
        return float(label)
    return float(task.labels.index(task.hub.labels[label]))


def _parquet_rows(files: Sequence[Path], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise UserError(
            "the Hub's copy of GLUE is Parquet, which needs pyarrow",
            got=str(error),
            fix='pip install "electrify[data]"',
        ) from error
    for path in files:
        table = parquet.read_table(path, columns=list(columns))
        yield from zip(*(table.column(name).to_pylist() for name in columns), strict=True)
