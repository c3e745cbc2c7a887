"""From which probability on a token counts as replaced.

A discriminator that ranks tokens well may give none of them 50 %: few tokens are replaced, so early
in training all probabilities are low. The threshold is therefore the one at which as many tokens of
the validation set are flagged as were replaced; where it is not known, the likeliest tokens of each
text are flagged, as many as are usually replaced.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electrify.training.export_run import validation_record

USUAL_RATE = 0.1
"""Of 15 % masked tokens a generator restores about a third."""
ONE_HALF = 0.5


class Threshold(NamedTuple):
    """Which tokens to flag, and how often that is wrong."""

    value: float | None = None
    """None: the likeliest tokens of each text, and all that are more likely replaced than not."""
    replaced_rate: float = USUAL_RATE
    false_alarm_rate: float | None = None
    """Of original tokens in the validation set."""

    def of(self, probabilities: Sequence[float]) -> float:
        """Return the lowest probability to flag in a text.

        >>> Threshold(0.2).of([0.1, 0.3]), Threshold().of([0.1, 0.3]), Threshold().of([0.7, 0.9])
        (0.2, 0.3, 0.5)
        """
        if self.value is not None or not probabilities:
            return ONE_HALF if self.value is None else self.value
        count = max(1, round(self.replaced_rate * len(probabilities)))
        return min(ONE_HALF, sorted(probabilities, reverse=True)[count - 1])

    def __str__(self) -> str:
        if self.value is None:
            return (
                f"flagged: the likeliest {100 * self.replaced_rate:.0f} % of each text and all "
                "from 50 % on, as no validation threshold is known"
            )
        rate = self.false_alarm_rate
        alarms = "" if rate is None else f"; false-alarm rate {100 * rate:.1f} %"
        return (
            f"flagged: from {100 * self.value:.1f} % on, which flags as many tokens of the "
            f"validation set as were replaced ({100 * self.replaced_rate:.1f} %){alarms}"
        )


def of_metrics(record: Mapping[str, Any]) -> Threshold:
    """The threshold in a record of a run's journal, or in the configuration of an export.

    >>> of_metrics({"replaced_rate": 0.12}).value, of_metrics({"threshold": 0.3}).value
    (None, 0.3)
    """
    value, rate, alarms = (
        record.get(name) for name in ("threshold", "replaced_rate", "false_alarm_rate")
    )
    return Threshold(value, USUAL_RATE if rate is None else rate, alarms)


def of_run(run: Path, step: int) -> Threshold:
    """The threshold of a run's newest evaluation up to a step."""
    return of_metrics(validation_record(run, step))
