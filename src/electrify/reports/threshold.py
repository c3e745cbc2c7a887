"""The probability from which a token is flagged as replaced.

A discriminator that ranks tokens well may give none of them 50 %: few tokens are replaced, so all
probabilities are low early in training. The threshold is therefore the one that flags as many
validation tokens as were replaced. If it is unknown, the top tokens of each text are flagged, as
many as are usually replaced.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.training.export_run import validation_record

USUAL_RATE = 0.1
"""Of 15 % masked tokens, a generator predicts about a third correctly."""
ONE_HALF = 0.5


class Threshold(NamedTuple):
    """Which tokens to flag, and how often that is wrong."""

    value: float | None = None
    """None flags the top tokens of each text, and all from 50 % on."""
    replaced_rate: float = USUAL_RATE
    false_alarm_rate: float | None = None
    """The fraction of original validation tokens that are flagged."""
    chosen: bool = False
    """Whether the user chose it."""

    def of(self, probabilities: Sequence[float]) -> float:
        """Return the lowest probability to flag in a text.

        >>> Threshold(0.2).of([0.1, 0.3]), Threshold().of([0.1, 0.3]), Threshold().of([0.7, 0.9])
        (0.2, 0.3, 0.5)
        """
        if self.value is not None or not probabilities:
            return ONE_HALF if self.value is None else self.value
        count = max(1, round(self.replaced_rate * len(probabilities)))
        return min(ONE_HALF, sorted(probabilities, reverse=True)[count - 1])

    @property
    def rule(self) -> str:
        """Which tokens are flagged, and why."""
        if self.value is None:
            return (
                f"flagged: the top {100 * self.replaced_rate:.0f} % of each text and everything "
                "from 50 % on, because no validation threshold is known"
            )
        start = f"flagged: from {100 * self.value:.1f} % on"
        if self.chosen:
            return start
        replaced = f"{100 * self.replaced_rate:.1f} %"
        return f"{start}, which flags as many validation tokens as were replaced ({replaced})"

    def __str__(self) -> str:
        rate = self.false_alarm_rate
        if self.value is None or rate is None:
            return self.rule
        return f"{self.rule}; false-alarm rate {100 * rate:.1f} %"


def of_metrics(record: Mapping[str, Any]) -> Threshold:
    """Return the threshold from a record of a run's journal, or from the config of an export.

    >>> of_metrics({"replaced_rate": 0.12}).value, of_metrics({"threshold": 0.3}).value
    (None, 0.3)
    """
    value, rate, alarms = (
        record.get(name) for name in ("threshold", "replaced_rate", "false_alarm_rate")
    )
    return Threshold(value, USUAL_RATE if rate is None else rate, alarms)


def of_run(run: Path, step: int) -> Threshold:
    """Return the threshold of a run's latest evaluation up to a step."""
    return of_metrics(validation_record(run, step))
