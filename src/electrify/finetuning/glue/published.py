"""Published GLUE results to compare with yours, each with its source and caveats.

Scores are in percent, as published: Matthews correlation for CoLA, Spearman's correlation for STS-B
and accuracy for the others, unless a note says otherwise.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from electrify.finetuning.glue.tasks import averaged_tasks


class Remark(NamedTuple):
    """A caveat about a published row."""

    text: str
    tasks: tuple[str, ...] = ()
    """Tasks that it is about, without which it is not shown; empty for the whole row."""
    average: bool = False
    """Whether it is about the average, which is shown only with all tasks."""


class Published(NamedTuple):
    """A row of a published table."""

    model: str
    parameters: str
    split: Literal["dev", "test"]
    scores: Mapping[str, float]
    """Published scores by task name."""
    aggregate: str
    """The statistic of the scores and the number of runs."""
    source: str
    notes: tuple[Remark, ...] = ()
    deviations: Mapping[str, float] = {}
    """Published standard deviations over the runs, by task name."""

    def has(self, tasks: Collection[str]) -> bool:
        """Return whether the row has a score of any of the tasks."""
        return bool(self.scores.keys() & set(tasks))

    def remarks(self, tasks: Collection[str]) -> list[str]:
        """Return the caveats that apply if only these tasks are shown."""
        complete = set(tasks) >= set(averaged_tasks())
        return [
            note.text
            for note in self.notes
            if (complete if note.average else not note.tasks or set(tasks) & set(note.tasks))
        ]

    @property
    def average(self) -> float | None:
        """Return the mean over all averaged tasks, if the row has all of them."""
        scores = [self.scores.get(name) for name in averaged_tasks()]
        known = [score for score in scores if score is not None]
        return sum(known) / len(known) if len(known) == len(scores) else None


_by = dict[str, float]
_OFFICIAL = "google-research/electra, README"
_LMTUNERS = "shoarora/lmtuners, experiments and model cards"
_PYTORCH = "richarddwang/electra_pytorch, README"
_PAPER = "Clark et al. 2020"
_THESEUS = "BERT-of-Theseus, README, as copied by shoarora/lmtuners"

_MANY = "median of many seeds"
_MATCHED = Remark("MNLI is matched only", ("mnli",))
_MEAN_OF_HALVES = Remark("MNLI is the mean of matched and mismatched", ("mnli",))
_BOTH = (_MEAN_OF_HALVES, Remark("RTE and STS-B start from an MNLI model", ("rte", "stsb")))
_MEANS = (
    Remark("MRPC and QQP are means of F1 and accuracy", ("mrpc", "qqp")),
    Remark("STS-B is the mean of Pearson and Spearman", ("stsb",)),
    _MEAN_OF_HALVES,
)
_TYPED = Remark(
    "shoarora/lmtuners prints 91. for SST-2 on dev; 91.2 is the official value", ("sst2",)
)
_NOT_AVERAGES = Remark("electra_pytorch calls these medians averages")
_DEV_AS_TEST = Remark(
    "shoarora/lmtuners prints the dev row (57.0 91.2 88.0 …) as the test row; these are the "
    "paper's test scores, as in electra_pytorch"
)
_DOT = Remark("electra_pytorch prints 6.36 for RTE; its average of 79.7 needs 63.6", ("rte",))
_GPT = Remark(
    "shoarora/lmtuners' first table, which names no split, prints QNLI's 88.1 under MNLI and 85.3 "
    "under QNLI; these are the values of its later tables",
    ("mnli", "qnli"),
)
_SPLIT_UNNAMED = Remark(
    "the first table of shoarora/lmtuners names no split; a later one says test; no CoLA"
)
STABILITY = (
    "14 models pre-trained with different seeds, best of 10 runs per task: mean 81.38, standard "
    "deviation 0.57, range 80.42 to 82.23"
)
"""Table 4 of electra_pytorch's README."""

PUBLISHED: tuple[Published, ...] = (
    Published(
        "ELECTRA-Large", "335M", "dev",
        _by(cola=69.1, sst2=96.9, mrpc=90.8, stsb=92.6, qqp=92.4, mnli=90.9, qnli=95.0, rte=88.0),
        _MANY, _OFFICIAL, (_MATCHED,),
    ),
    Published(
        "ELECTRA-Base", "110M", "dev",
        _by(cola=67.7, sst2=95.1, mrpc=89.5, stsb=91.2, qqp=91.5, mnli=88.8, qnli=93.2, rte=82.7),
        _MANY, _OFFICIAL, (_MATCHED,),
    ),
    Published(
        "ELECTRA-Small++", "14M", "dev",
        _by(cola=57.0, sst2=91.2, mrpc=88.0, stsb=87.5, qqp=89.0, mnli=81.3, qnli=88.4, rte=66.7),
        _MANY, _OFFICIAL, (_MATCHED, _TYPED),
    ),
    Published(
        "ELECTRA-Small-OWT", "14M", "dev",
        _by(cola=56.8, sst2=88.3, mrpc=87.4, stsb=86.8, qqp=88.3, mnli=78.9, qnli=87.9, rte=68.5),
        _MANY, _OFFICIAL, (_MATCHED, _NOT_AVERAGES),
    ),
    Published(
        "ELECTRA-Small-OWT (electra_pytorch)", "14M", "dev",
        _by(
            cola=58.72, sst2=88.03, mrpc=86.04, stsb=86.16,
            qqp=88.63, mnli=80.4, qnli=87.45, rte=67.46,
        ),
        "mean of 10 seeds", _PYTORCH, (Remark(STABILITY, average=True),),
        _by(cola=1.30, sst2=0.49, mrpc=0.7, stsb=0.29, qqp=0.1, mnli=0.15, qnli=0.33, rte=1.93),
    ),
    Published(
        "ELECTRA-Small-OWT (lmtuners)", "17M", "dev",
        _by(cola=56.3, sst2=88.4, mrpc=75.0, stsb=86.1, qqp=89.1, mnli=77.9, qnli=83.0, rte=67.1),
        "median of 5 seeds", _LMTUNERS, _BOTH,
    ),
    Published(
        "ALECTRA-Small-OWT (lmtuners)", "4M", "dev",
        _by(cola=50.6, sst2=89.1, mrpc=86.3, stsb=87.2, qqp=89.1, mnli=78.2, qnli=85.9, rte=69.6),
        "median of 5 seeds", _LMTUNERS, _BOTH,
    ),
    Published(
        "BERT-base", "110M", "dev",
        _by(sst2=91.5, mrpc=89.5, stsb=88.9, qqp=89.8, mnli=83.5, qnli=91.2, rte=71.1),
        "runs not stated", _THESEUS, _MEANS,
    ),
    Published(
        "DistilBERT", "66M", "dev",
        _by(sst2=90.7, mrpc=87.5, stsb=81.2, qqp=84.9, mnli=79.0, qnli=85.3, rte=59.9),
        "runs not stated", _THESEUS, _MEANS,
    ),
    Published(
        "BERT-base", "110M", "test",
        _by(cola=52.1, sst2=93.5, mrpc=84.8, stsb=85.9, qqp=89.2, mnli=84.6, qnli=90.5, rte=66.4),
        "one model", _PAPER,
    ),
    Published(
        "GPT", "117M", "test",
        _by(cola=45.4, sst2=91.3, mrpc=75.7, stsb=80.0, qqp=88.5, mnli=82.1, qnli=88.1, rte=56.0),
        "one model", _PAPER, (_GPT,),
    ),
    Published(
        "ELECTRA-Small", "14M", "test",
        _by(sst2=89.1, mrpc=83.7, stsb=80.3, qqp=88.0, mnli=79.7, qnli=87.7, rte=60.8),
        "one model", _PAPER, (_SPLIT_UNNAMED,),
    ),
    Published(
        "ELECTRA-Small++", "14M", "test",
        _by(cola=55.6, sst2=91.1, mrpc=84.9, stsb=84.6, qqp=88.0, mnli=81.6, qnli=88.3, rte=63.6),
        "best of 10 on dev", _PAPER, (_DEV_AS_TEST, _DOT),
    ),
    Published(
        "ELECTRA-Small++ (electra_pytorch)", "14M", "test",
        _by(cola=54.8, sst2=91.6, mrpc=84.6, stsb=84.2, qqp=88.5, mnli=82.0, qnli=89.0, rte=64.7),
        "best of 10 on dev", _PYTORCH, (Remark("the released weights, fine-tuned again"),),
    ),
    Published(
        "ELECTRA-Small-OWT (lmtuners)", "17M", "test",
        _by(cola=57.4, sst2=89.3, mrpc=76.2, stsb=81.9, qqp=87.5, mnli=78.1, qnli=82.4, rte=68.1),
        "best of 5 on dev", _LMTUNERS, _BOTH,
    ),
    Published(
        "ALECTRA-Small-OWT (lmtuners)", "4M", "test",
        _by(cola=43.9, sst2=87.9, mrpc=82.1, stsb=82.0, qqp=87.6, mnli=77.9, qnli=85.8, rte=67.5),
        "best of 5 on dev", _LMTUNERS, _BOTH,
    ),
)  # fmt: skip
"""All rows of the sources' tables; errors in them are corrected, with a note."""


def published(split: Literal["dev", "test"]) -> list[Published]:
    """Return the published rows of a split."""
    return [row for row in PUBLISHED if row.split == split]
