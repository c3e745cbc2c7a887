"""What a run has learned, in plain words: one pure function of a few numbers.

The limits are ours. They place the validation loss at masked tokens between two baselines that
every run has: guessing at random, and guessing by token frequency without reading the context.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite, isnan, log2, nan
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING, Any, NamedTuple

from electrify.objectives.bands import PLATEAU, Detection, Sizes

if TYPE_CHECKING:
    from electrify.objectives.objective import Objective

DIVERGED = 1.0  # nats above uniform guessing; networks with random weights stay below
FALLING = 0.05  # nats per doubling of the steps; less is a flat curve
WORSE = 1.03  # times the lowest validation loss
MOST_TIMES = 50  # longer extrapolations of the curve are not worth printing
UNINFORMED_AUC, WEAK_AUC = 0.55, 0.7
CONTEXT = 0.85  # times the loss of guessing by frequency: word-level context begins below


class Rung(NamedTuple):
    """What a loss means, from a fraction of the loss of guessing by token frequency on."""

    above: float
    grade: str
    clause: str


LADDER = (
    Rung(1.1, "early", "has learned almost nothing"),
    Rung(0.97, "early", "still predicts frequent words, whatever the context"),
    Rung(CONTEXT, "started", "has started to use the words around a masked one"),
    Rung(0.45, "worked", "has learned word-level context"),
    Rung(-inf, "worked", "has learned to predict words from their context well"),
)
GRADES = {
    "diverged": ("Training diverged", "Training has diverged"),
    "stuck": ("Training did not work", "Training does not work so far"),
    "early": ("Not trained enough yet", "Too early"),
    "started": ("Training has started to work", "Training has started to work"),
    "worked": ("Training worked", "Training works so far"),
    "worse": ("Training went wrong after a good start", "Training is getting worse"),
    "unknown": ("No verdict", "No verdict yet"),
}
"""How a headline begins, for a finished and for an unfinished run; from bad to good."""


class Evidence(NamedTuple):
    """The numbers that a verdict is based on; NaN where they were not measured."""

    uniform: float
    """Loss of guessing uniformly over the vocabulary."""
    evaluated: bool = True
    """Whether there is any validation loss, finite or not."""
    loss: float = nan
    """The latest validation loss at masked tokens."""
    unigram: float = nan
    """Loss of guessing by token frequency at the same tokens."""
    best: float = nan
    """The lowest validation loss."""
    best_step: int = 0
    training_loss: float = nan
    per_doubling: float = nan
    """By how much the loss fell with each doubling of the steps, in the second half of the run."""
    detection: Detection | None = None
    finished: bool = True


class RunVerdict(NamedTuple):
    """Whether training worked, and why we think so."""

    grade: str
    """A key of `GRADES`."""
    headline: str
    reasons: tuple[str, ...] = ()
    """Sentences: what to do, the trend, the numbers that it is based on."""

    def __str__(self) -> str:
        return "\n  ".join([f"verdict: {self.headline}", *self.reasons])


def verdict(seen: Evidence) -> RunVerdict:
    """Judge a run."""
    if not seen.evaluated:
        why = "without an evaluation on validation text, nobody can tell what was learned"
        return _graded("unknown", why, seen)
    if not seen.loss <= seen.uniform + DIVERGED:
        lost = "the loss is not a number" if isnan(seen.loss) else f"the loss is {seen.loss:.2f}"
        advice = "Resume from an earlier checkpoint with a lower learning rate (--optimizer.lr)."
        worse = f"{lost}, worse than guessing at random ({seen.uniform:.2f})"
        return _graded("diverged", worse, seen, advice)
    frequency = _frequency_loss(seen)
    rung = next(rung for rung in LADDER if seen.loss > rung.above * frequency)
    grade, clauses = rung.grade, f"the model {rung.clause}"
    if seen.detection is not None:
        grade = min(grade, _detection_grade(seen.detection), key=[*GRADES].index)
        clauses += _detection_clause(seen.detection)
    basis = _basis(seen, frequency)
    if seen.loss > WORSE * seen.best:
        return _graded("worse", clauses, seen, _worsening(seen), basis)
    if grade == "early" and rung is LADDER[0] and seen.per_doubling < FALLING:
        advice = "The loss does not fall: check the learning rate (--optimizer.lr) and the text."
        return _graded("stuck", clauses, seen, advice, basis)
    advice = _longer(seen, CONTEXT * frequency) if rung.grade == "early" else _trend(seen)
    return _graded(grade, clauses, seen, advice, basis)


def _graded(grade: str, clauses: str, seen: Evidence, *reasons: str) -> RunVerdict:
    return RunVerdict(
        grade, f"{GRADES[grade][not seen.finished]}: {clauses}.", tuple(filter(None, reasons))
    )


def _frequency_loss(seen: Evidence) -> float:
    """Return the loss of guessing by frequency, as measured or else as it usually is."""
    return fmean(PLATEAU) * seen.uniform if isnan(seen.unigram) else seen.unigram


def _detection_grade(found: Detection) -> str:
    if not found.auc >= UNINFORMED_AUC:
        return "early"
    return "started" if found.auc < WEAK_AUC else "worked"


def _detection_clause(found: Detection) -> str:
    if not found.auc >= UNINFORMED_AUC:
        return ", and does not tell replaced from original tokens yet"
    if isnan(found.recall):
        return f", and tells replaced from original tokens in {round(100 * found.auc)} of 100 pairs"
    of = 10 if 0.1 <= found.recall < 0.95 else 100
    rate = f"{100 * found.false_alarm_rate:.0f} % false-alarm rate"
    return f", and detects {round(of * found.recall)} of {of} replaced tokens at a {rate}"


def _basis(seen: Evidence, frequency: float) -> str:
    about = "about " if isnan(seen.unigram) else ""
    text = (
        f"Validation loss at masked tokens {seen.loss:.2f}, lower is better: guessing at random "
        f"gives {seen.uniform:.2f}, guessing by token frequency {about}{frequency:.2f}."
    )
    if seen.detection is None or isnan(seen.detection.auc):
        return text
    auc = seen.detection.auc
    return (
        f"{text} AUC {auc:.2f}: a replaced token gets a higher probability than an original one in "
        f"{round(100 * auc)} of 100 pairs; guessing gives 50."
    )


def _worsening(seen: Evidence) -> str:
    text = (
        f"The validation loss was {seen.best:.2f} at step {seen.best_step:,} and is "
        f"{seen.loss:.2f} now"
    )
    if seen.training_loss < seen.best:
        return (
            f"{text}, while the training loss fell to {seen.training_loss:.2f}: the model "
            "memorizes its text. Use more text, or fewer steps."
        )
    return f"{text}: training is unstable. Use a lower learning rate (--optimizer.lr)."


def _longer(seen: Evidence, target: float) -> str:
    """Return how much longer to train to reach a loss, if the curve allows an estimate."""
    if isnan(seen.per_doubling):
        return "Train longer."
    if seen.per_doubling < FALLING:
        return (
            "Train longer: many encoders stay at this level for thousands of steps and then learn "
            "quickly, so the curve does not show how much longer."
        )
    times = 2 ** min((seen.loss - target) / seen.per_doubling, 99)
    often = f"about {max(2, float(f'{times:.1g}')):.0f} times" if times <= MOST_TIMES else "much"
    return (
        f"Train {often} longer: in the second half of the run the loss fell by "
        f"{seen.per_doubling:.2f} with each doubling of the steps, and word-level context begins "
        f"at about {target:.1f}. This is a rough guess: the curve may flatten on the way."
    )


def _trend(seen: Evidence) -> str:
    if isnan(seen.per_doubling):
        return ""
    if seen.per_doubling >= FALLING:
        return (
            "It was still improving: in the second half of the run the loss fell by "
            f"{seen.per_doubling:.2f} with each doubling of the steps, so longer training helps."
        )
    return "It no longer improves: a larger model or more text may help, longer training will not."


def fall_per_doubling(points: Iterable[tuple[int, float]]) -> float:
    """Return by how much a loss falls per doubling of the steps, fitted to the second half.

    NaN with fewer than three points there.

    >>> round(fall_per_doubling([(10, 9.0), (50, 6.5), (75, 5.915), (100, 5.5)]), 2)
    1.0
    """
    finite = [(step, loss) for step, loss in points if step > 0 and isfinite(loss)]
    late = [(log2(step), loss) for step, loss in finite if step >= max(1, finite[-1][0] / 2)]
    return -linear_regression(*zip(*late, strict=True)).slope if len(late) > 2 else nan


def run_verdict(
    objective: "type[Objective]", sizes: Sizes, records: Sequence[Mapping[str, Any]], steps: int
) -> RunVerdict | None:
    """Return the verdict on the records of a run; None if its objective has no loss to judge."""
    if not (name := objective.judged) or not records:
        return None

    def losses(split: str) -> list[tuple[int, float]]:
        found = [r for r in records if r["split"] == split and name in r]
        return [(r["step"], nan if r[name] is None else r[name]) for r in found]

    validation, training = losses("validation"), losses("train")
    evaluations = [record for record in records if record["split"] == "validation"]
    latest = {n: nan if v is None else v for n, v in (evaluations or [{}])[-1].items()}
    slope = fall_per_doubling(validation)
    best_step, best = min(
        validation, key=lambda at: inf if isnan(at[1]) else at[1], default=(0, nan)
    )
    return verdict(
        Evidence(
            sizes.uniform_loss,
            bool(validation),
            validation[-1][1] if validation else nan,
            latest.get("unigram_loss", nan),
            best,
            best_step,
            training[-1][1] if training else nan,
            fall_per_doubling(training) if isnan(slope) else slope,
            objective.detection(latest),
            max(record["step"] for record in records) >= steps,
        )
    )
