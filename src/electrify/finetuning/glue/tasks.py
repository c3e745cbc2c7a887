"""The GLUE tasks as a table: files, columns, labels, metrics and epochs.

To add a similar task, add a row. Columns are found by their names in the header, because copies of
GLUE order them differently; CoLA's training and development files have no header. Class indices
follow the order of labels in google-research/electra.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from electrify.finetuning.metrics import MetricName
from electrify.finetuning.options import LabelKind

Split = Literal["train", "dev", "dev_mismatched", "test", "test_mismatched", "ax"]

_SPLITS: dict[Split, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}


class Submitted(NamedTuple):
    """A file for the GLUE server."""

    name: str
    split: Split
    rows: int


class HubNames(NamedTuple):
    """Names in the Hub's copy (nyu-mll/glue) that differ from the standard folder."""

    texts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """Our labels in the order of the Hub's class indices."""
    splits: Mapping[str, str] = {}


_SAME_NAMES = HubNames()


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A GLUE task."""

    name: str
    """Name in commands and results, and of the Hub's configuration."""
    title: str
    """Name in tables, of the folder, and (unless `submitted` is given) of the server's file."""
    texts: tuple[str, ...]
    """Names of the columns with one or two texts."""
    label: str = "label"
    """Name of the label column."""
    labels: tuple[str, ...] = ()
    """Class labels by index, as in the files and on the server; empty for regression tasks."""
    score_range: tuple[float, float] = (0.0, 5.0)
    """Range of scores of a regression task. Identities of all tasks contain its maximum."""
    metrics: tuple[MetricName, ...]
    """The first one is what papers report; GLUE's own average uses the mean of all."""
    epochs: int = 3
    files: Mapping[Split, str] = field(default_factory=lambda: _SPLITS)
    train_rows: int = 0
    """Rows of the official training file, to note when another one was used; 0 if unknown."""
    test_rows: int = 0
    """Rows of the official test file."""
    submitted: tuple[Submitted, ...] = ()
    """Files for the server; by default one, if `test_rows` is given."""
    hub: HubNames = _SAME_NAMES
    headless: tuple[tuple[int, ...], int] = ((), 0)
    """Column indices of the texts and of the label in files without a header."""
    symmetric: bool = False
    """Whether the two texts can be swapped."""
    averaged: bool = True
    """Whether averages include the task; following BERT, they exclude WNLI."""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.test_rows and not self.submitted:
            file = Submitted(f"{self.title}.tsv", "test", self.test_rows)
            object.__setattr__(self, "submitted", (file,))

    @property
    def kind(self) -> LabelKind:
        """Return whether the labels are classes or scores."""
        return "classes" if self.labels else "score"

    @property
    def dev_splits(self) -> list[Split]:
        """Return the development splits; MNLI has two."""
        return [split for split in self.files if split.startswith("dev")]

    @property
    def outputs(self) -> int:
        """Return the number of outputs of the head."""
        return len(self.labels) or 1


_BINARY = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")

_ROWS = (
    GlueTask(
        name="cola", title="CoLA", texts=("sentence",), labels=_BINARY, metrics=("mcc",),
        headless=((3,), 1), train_rows=8551, test_rows=1063,
    ),
    GlueTask(
        name="sst2", title="SST-2", texts=("sentence",), labels=_BINARY, metrics=("accuracy",),
        train_rows=67_349, test_rows=1821, aliases=("sst",),
    ),
    GlueTask(
        name="mrpc", title="MRPC", texts=("#1 String", "#2 String"), label="Quality",
        labels=_BINARY, metrics=("accuracy", "f1"), symmetric=True,
        train_rows=3668, test_rows=1725, hub=HubNames(texts=_SENTENCES),
    ),
    GlueTask(
        name="stsb", title="STS-B", texts=_SENTENCES, label="score", score_range=(0.0, 5.0),
        metrics=("spearman", "pearson"), epochs=10, symmetric=True,
        train_rows=5749, test_rows=1379, aliases=("sts",),
    ),
    GlueTask(
        name="qqp", title="QQP", texts=("question1", "question2"), label="is_duplicate",
        labels=_BINARY, metrics=("accuracy", "f1"), train_rows=363_846, test_rows=390_965,
    ),
    GlueTask(
        name="mnli", title="MNLI", texts=_SENTENCES, label="gold_label",
        labels=("contradiction", "entailment", "neutral"), metrics=("accuracy",),
        files={
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
            "ax": "../diagnostic/diagnostic.tsv",
        },
        train_rows=392_702,
        submitted=(
            Submitted("MNLI-m.tsv", "test", 9796),
            Submitted("MNLI-mm.tsv", "test_mismatched", 9847),
            Submitted("AX.tsv", "ax", 1104),
        ),
        hub=HubNames(
            texts=("premise", "hypothesis"),
            labels=("entailment", "neutral", "contradiction"),
            splits={
                "dev": "validation_matched",
                "dev_mismatched": "validation_mismatched",
                "test": "test_matched",
            },
        ),
    ),
    GlueTask(
        name="qnli", title="QNLI", texts=("question", "sentence"), labels=_ENTAILED,
        metrics=("accuracy",), train_rows=104_743, test_rows=5463,
    ),
    GlueTask(
        name="rte", title="RTE", texts=_SENTENCES, labels=_ENTAILED, metrics=("accuracy",),
        epochs=10, train_rows=2490, test_rows=3000,
    ),
    GlueTask(
        name="wnli", title="WNLI", texts=_SENTENCES, labels=_BINARY, metrics=("accuracy",),
        train_rows=635, test_rows=146, averaged=False,
    ),
)  # fmt: skip

TASKS: dict[str, GlueTask] = {task.name: task for task in _ROWS}


def averaged_tasks() -> list[str]:
    """Return the names of the tasks that averages include."""
    return [task.name for task in TASKS.values() if task.averaged]
