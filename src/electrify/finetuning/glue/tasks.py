"""The GLUE tasks as rows of a table: files, columns, labels, metrics, lengths of training.

Columns are found by their names in the header, as headers differ between copies of GLUE; CoLA's
training and development files have none. Labels are in the order of google-research/electra, which
decides the numbers of the classes; `server` has the words the GLUE server wants.
"""

from typing import Literal, NamedTuple

Split = Literal["train", "dev", "dev_mismatched", "test", "test_mismatched", "ax"]
Metric = Literal["mcc", "accuracy", "f1", "pearson", "spearman"]


class Submitted(NamedTuple):
    """A file for the GLUE server."""

    name: str
    split: Split
    rows: int


class HubColumns(NamedTuple):
    """How the Hub's copy (nyu-mll/glue) calls a task, its texts and its labels."""

    config: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    """In the order of the Hub's numbers, by our words."""


class GlueTask(NamedTuple):
    """One task."""

    name: str
    title: str
    folder: str
    files: dict[Split, str]
    texts: tuple[str, ...]
    """The names of the columns with one or two texts."""
    label: str
    labels: tuple[str, ...]
    """Classes by number; none for scores."""
    metrics: tuple[Metric, ...]
    """The first is what papers show; GLUE's own average takes the mean of all."""
    epochs: int
    submitted: tuple[Submitted, ...]
    server: tuple[str, ...]
    hub: HubColumns
    headless: tuple[tuple[int, ...], int] = ((), 0)
    """Where texts and label are in files without a header."""
    symmetric: bool = False
    """Whether both texts may change places."""
    train_rows: int = 0
    """Of the official training file, to say so where another one is used."""
    averaged: bool = True
    """Whether it counts in averages: WNLI does not, following BERT."""


SCORE_RANGE = (0.0, 5.0)
"""Of STS-B."""

_SPLITS: dict[Split, str] = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_MNLI: dict[Split, str] = {
    "train": "train.tsv",
    "dev": "dev_matched.tsv",
    "dev_mismatched": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test_mismatched": "test_mismatched.tsv",
    "ax": "../diagnostic/diagnostic.tsv",
}
_BINARY = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")
_THREE = ("contradiction", "entailment", "neutral")
_SENTENCES = ("sentence1", "sentence2")


def _file(name: str, rows: int) -> tuple[Submitted, ...]:
    return (Submitted(f"{name}.tsv", "test", rows),)


TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask(
            "cola",
            "CoLA",
            "CoLA",
            _SPLITS,
            ("sentence",),
            "label",
            _BINARY,
            ("mcc",),
            3,
            _file("CoLA", 1063),
            _BINARY,
            HubColumns("cola", ("sentence",), _BINARY),
            headless=((3,), 1),
            train_rows=8551,
        ),
        GlueTask(
            "sst2",
            "SST-2",
            "SST-2",
            _SPLITS,
            ("sentence",),
            "label",
            _BINARY,
            ("accuracy",),
            3,
            _file("SST-2", 1821),
            _BINARY,
            HubColumns("sst2", ("sentence",), _BINARY),
            train_rows=67_349,
        ),
        GlueTask(
            "mrpc",
            "MRPC",
            "MRPC",
            _SPLITS,
            ("#1 String", "#2 String"),
            "Quality",
            _BINARY,
            ("accuracy", "f1"),
            3,
            _file("MRPC", 1725),
            _BINARY,
            HubColumns("mrpc", _SENTENCES, _BINARY),
            symmetric=True,
            train_rows=3668,
        ),
        GlueTask(
            "stsb",
            "STS-B",
            "STS-B",
            _SPLITS,
            _SENTENCES,
            "score",
            (),
            ("spearman", "pearson"),
            10,
            _file("STS-B", 1379),
            (),
            HubColumns("stsb", _SENTENCES, ()),
            symmetric=True,
            train_rows=5749,
        ),
        GlueTask(
            "qqp",
            "QQP",
            "QQP",
            _SPLITS,
            ("question1", "question2"),
            "is_duplicate",
            _BINARY,
            ("accuracy", "f1"),
            3,
            _file("QQP", 390_965),
            _BINARY,
            HubColumns("qqp", ("question1", "question2"), _BINARY),
            train_rows=363_846,
        ),
        GlueTask(
            "mnli",
            "MNLI",
            "MNLI",
            _MNLI,
            _SENTENCES,
            "gold_label",
            _THREE,
            ("accuracy",),
            3,
            (
                Submitted("MNLI-m.tsv", "test", 9796),
                Submitted("MNLI-mm.tsv", "test_mismatched", 9847),
                Submitted("AX.tsv", "ax", 1104),
            ),
            _THREE,
            HubColumns(
                "mnli", ("premise", "hypothesis"), ("entailment", "neutral", "contradiction")
            ),
            train_rows=392_702,
        ),
        GlueTask(
            "qnli",
            "QNLI",
            "QNLI",
            _SPLITS,
            ("question", "sentence"),
            "label",
            _ENTAILED,
            ("accuracy",),
            3,
            _file("QNLI", 5463),
            _ENTAILED,
            HubColumns("qnli", ("question", "sentence"), _ENTAILED),
            train_rows=104_743,
        ),
        GlueTask(
            "rte",
            "RTE",
            "RTE",
            _SPLITS,
            _SENTENCES,
            "label",
            _ENTAILED,
            ("accuracy",),
            10,
            _file("RTE", 3000),
            _ENTAILED,
            HubColumns("rte", _SENTENCES, _ENTAILED),
            train_rows=2490,
        ),
        GlueTask(
            "wnli",
            "WNLI",
            "WNLI",
            _SPLITS,
            _SENTENCES,
            "label",
            _BINARY,
            ("accuracy",),
            3,
            _file("WNLI", 146),
            _BINARY,
            HubColumns("wnli", _SENTENCES, _BINARY),
            train_rows=635,
            averaged=False,
        ),
    )
}
