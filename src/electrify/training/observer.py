"""Observers of a run: the journal, the screen, the trackers or a progress bar."""

import sys
from collections.abc import Mapping

MetricValues = Mapping[str, float]


class Observer:
    """Is notified of events in a run; methods that are not overridden do nothing."""

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Handle the metrics of a split; timings come with the training split."""

    def on_save(self) -> None:
        """Flush what was logged: a checkpoint of this step is about to be written."""

    def on_rewind(self, step: int) -> None:
        """Discard what was logged after a step: the run resumes from there."""

    def on_replan(self, steps: int) -> None:
        """Handle a new total number of steps."""

    def on_warning(self, text: str) -> None:
        """Handle a warning to the user."""


class Observers(Observer):
    """Passes every event on to several observers."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Pass the metrics on."""
        for observer in self.observers:
            observer.on_log(split, step, metrics, timings)

    def on_save(self) -> None:
        """Pass the event on."""
        for observer in self.observers:
            observer.on_save()

    def on_rewind(self, step: int) -> None:
        """Pass the event on."""
        for observer in self.observers:
            observer.on_rewind(step)

    def on_replan(self, steps: int) -> None:
        """Pass the number on."""
        for observer in self.observers:
            observer.on_replan(steps)

    def on_warning(self, text: str) -> None:
        """Pass the warning on."""
        for observer in self.observers:
            observer.on_warning(text)


class StderrWarnings(Observer):
    """Prints warnings to stderr."""

    def on_warning(self, text: str) -> None:
        """Print the warning."""
        warn(text)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {text}", file=sys.stderr, flush=True)
