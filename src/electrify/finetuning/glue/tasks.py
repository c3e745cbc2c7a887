"""The GLUE tasks as rows of a table: files, columns, labels, metrics, lengths of training.

A new task of this kind is one more row. Columns are found by their names in the header, as headers
differ between copies of GLUE; CoLA's training and development files have none. Labels are in the
order of google-research/electra, which decides the numbers of the classes.
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
    """How the Hub's copy (nyu-mll/glue) calls what differs there from the standard folder."""

    texts: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    """In the order of the Hub's numbers, by our words."""
    splits: Mapping[str, str] = {}


_AS_HERE = HubNames()


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task."""

    name: str
    """Also of the Hub's configuration."""
    title: str
    """Also of the folder, and of the server's file unless `submitted` says otherwise."""
    texts: tuple[str, ...]
    """The names of the columns with one or two texts."""
    label: str = "label"
    """The name of the column with labels."""
    labels: tuple[str, ...] = ()
    """Classes by number, in the words that the GLUE server wants, too; none for scores."""
    score_range: tuple[float, float] = (0.0, 5.0)
    """Of a task without labels; STS-B's. Identities of all tasks carry its upper end."""
    metrics: tuple[MetricName, ...]
    """The first is what papers show; GLUE's own average takes the mean of all."""
    epochs: int = 3
    files: Mapping[Split, str] = field(default_factory=lambda: _SPLITS)
    train_rows: int = 0
    """Of the official training file, to say so where another one is used; 0: not known."""
    test_rows: int = 0
    """Of the official test file."""
    submitted: tuple[Submitted, ...] = ()
    """The server's files; by default one, for a task with an official test file."""
    hub: HubNames = _AS_HERE
    headless: tuple[tuple[int, ...], int] = ((), 0)
    """Where texts and label are in files without a header."""
    symmetric: bool = False
    """Whether both texts may change places."""
    averaged: bool = True
    """Whether it counts in averages: WNLI does not, following BERT."""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.test_rows and not self.submitted:
            file = Submitted(f"{self.title}.tsv", "test", self.test_rows)
            object.__setattr__(self, "submitted", (file,))

    @property
    def kind(self) -> LabelKind:
        """Whether a task is about classes or about a score."""
        return "classes" if self.labels else "score"

    @property
    def outputs(self) -> int:
        """The numbers that a head gives for each example."""
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
    """Return the names of the tasks that count in averages."""
    return [task.name for task in TASKS.values() if task.averaged]
