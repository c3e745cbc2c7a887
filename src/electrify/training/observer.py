"""Those who watch a run: the journal, the screen, the trackers, or a progress bar."""

import sys
from collections.abc import Mapping

MetricValues = Mapping[str, float]


class Observer:
    """Learns what happens in a run; what it does not override it ignores."""

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Take the metrics of a split; timings come with the training split."""

    def on_save(self) -> None:
        """Make what was logged durable: a checkpoint of this step is about to be written."""

    def on_rewind(self, step: int) -> None:
        """Forget what was logged after a step: the run resumes from there."""

    def on_warning(self, text: str) -> None:
        """Take a warning for whoever started the run."""


class Observers(Observer):
    """Several observers as one."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Pass metrics on."""
        for observer in self.observers:
            observer.on_log(split, step, metrics, timings)

    def on_save(self) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_save()

    def on_rewind(self, step: int) -> None:
        """Pass it on."""
        for observer in self.observers:
            observer.on_rewind(step)

    def on_warning(self, text: str) -> None:
        """Pass a warning on."""
        for observer in self.observers:
            observer.on_warning(text)


class StderrWarnings(Observer):
    """Prints warnings for somebody who looks at the terminal."""

    def on_warning(self, text: str) -> None:
        """Print a warning."""
        warn(text)


def warn(text: str) -> None:
    """Print a warning to whoever looks at the terminal."""
    print(f"warning: {text}", file=sys.stderr, flush=True)
