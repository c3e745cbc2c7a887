"""Learning rate schedules as pure functions of the step, so that a resumed run needs no state.

`electra` is the official schedule: the warm-up multiplies a rate that already decays, so the first
update has rate 0 and the peak is lr · (1 - W/N) (google-research/electra model/optimization.py).
"""

import math
from collections.abc import Callable
from typing import Literal

ScheduleKind = Literal["electra", "linear", "cosine", "wsd", "constant"]
Schedule = Callable[[float], float]
"""Maps the fraction of steps done after the warm-up to a factor of the peak learning rate."""

STABLE_SHARE = 0.8  # wsd: the rate is constant for this fraction of the steps, then falls to 0


def factor(
    kind: ScheduleKind, step: float, steps: float, warmup: float, power: float = 1.0
) -> float:
    """Return the factor of the peak learning rate at `step` (from 0) of `steps`."""
    rise = min(1.0, step / warmup) if warmup > 0 else 1.0
    if kind == "electra":
        return float(rise * (1.0 - min(step, steps) / steps) ** power)
    if step < warmup:
        return rise
    done = min(1.0, (step - warmup) / max(1.0, steps - warmup))
    return float(_AFTER_WARMUP[kind](done) ** power)


def _wsd(done: float) -> float:
    return min(1.0, (1.0 - done) / (1.0 - STABLE_SHARE))


_AFTER_WARMUP: dict[str, Schedule] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2,
    "wsd": _wsd,
    "constant": lambda done: 1.0,
}
