"""Wall-clock times of a run, for people; nothing that is trained depends on them."""

import time


class Clock:
    """Measures steps, rates, and the time since the last save."""

    def __init__(self) -> None:
        self.last_log = self.last_step = self.last_save = time.monotonic()
        self.tokens = self.steps = 0
        self.longest = 0.0
        """Seconds between two steps, with what came between: evaluation, saving."""

    def ticked(self, tokens: int) -> None:
        """A step is over."""
        now = time.monotonic()
        self.longest, self.last_step = max(self.longest, now - self.last_step), now
        self.tokens += tokens
        self.steps += 1

    def timings(self) -> dict[str, float]:
        """Rates since the last call."""
        seconds = max(time.monotonic() - self.last_log, 1e-9)
        rates = {
            "tokens_per_second": self.tokens / seconds,
            "steps_per_second": self.steps / seconds,
        }
        self.last_log, self.tokens, self.steps = time.monotonic(), 0, 0
        return rates

    def save_is_due(self, seconds: float) -> bool:
        """Whether so much time has passed since the last save; 0 is never."""
        return 0 < seconds < time.monotonic() - self.last_save

    def saved(self) -> None:
        """A save was begun."""
        self.last_save = time.monotonic()
