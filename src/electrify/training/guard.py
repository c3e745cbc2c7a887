"""Bad numbers never reach the weights, and a run that goes wrong says so.

The guard sees what is the same on every process, the loss of the global batch and the norm of all
gradients, so every process comes to the same decision. It knows nothing of tensors: its memory is
plain values that a checkpoint holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, inf, isfinite, log, sqrt
from statistics import fmean
from typing import Any, Literal

from electrify.errors import GuardError
from electrify.objectives.bands import Alarm, Metrics, Seen, Sizes

LEAST_HISTORY = 32  # steps before a spike can be told from noise
SPIKE_FACTOR = 1.5  # less than this above the usual is no spike, however calm the run is
HALVINGS = 16  # float16's scale starts at 2**16
TAIL = 20  # steps that a report shows
IN_A_ROW = 3  # intervals that must look wrong
INTERVALS = 8  # over which the watched metric is seen to rise
RISE = 0.01
REPEAT = 5_000  # steps before the same alarm is given again


@dataclass(frozen=True)
class GuardSettings:
    """What is done about bad numbers."""

    on_spike: Literal["off", "warn", "skip"] = "warn"
    """About a sudden jump of the loss or the gradients: nothing, a warning, or skip the batch."""
    bad_steps_allowed: int = 3
    """Skipped steps within `window` that are let pass; one more goes back to a checkpoint."""
    spike_sigmas: float = 6.0
    """Standard deviations above the usual, in logarithms, from which a jump is a spike."""
    window: int = 128
    """Steps that the guard looks back."""


class Action(Enum):
    """What is to be done with a step."""

    GO = "go"
    SKIP = "skip"
    """Do not move the weights."""
    RELOAD = "reload"
    """Load the newest checkpoint, and leave out the batches in `left_out`."""
    STOP = "stop"
    """Raise `error()`."""


class Guard:
    """Judges every step before the weights move, and every interval after it.

    Step k trains on batch k, so a batch that is left out is a step that is passed over.
    """

    def __init__(
        self,
        settings: GuardSettings,
        sizes: Sizes | None = None,
        alarms: Sequence[Alarm] = (),
        watched: str = "",
        scaled: bool = False,
    ) -> None:
        self.settings, self.sizes, self.alarms, self.watched = settings, sizes, alarms, watched
        self.scaled = scaled
        """Whether gradients are scaled for float16, whose overflows are part of its search."""
        self._enough = min(LEAST_HISTORY, settings.window)
        self.left_out: set[int] = set()
        """Numbers of batches that no step is to train on."""
        self.why = ""
        """What was wrong with the last step that was judged; empty if nothing was."""
        self._forget()

    def _forget(self) -> None:
        self._usual: dict[str, list[float]] = {"loss": [], "norm": []}  # logarithms
        self._tail: list[tuple[int, float, float, str]] = []
        self._bad: list[int] = []
        self._overflows = 0
        self._streaks: dict[str, int] = {}
        self._given: dict[str, int] = {}
        self._watched: list[float] = []
        self._best = 0.0

    @property
    def loss_is_finite(self) -> bool:
        """Whether the loss that was judged last is; if not, the weights are in doubt."""
        return not self._tail or isfinite(self._tail[-1][1])

    def judge(self, step: int, loss: float, norm: float) -> Action:
        """Whether the weights may move, given the loss of the global batch and the norm."""
        action = self._judged(step, loss, norm)
        self._tail = [*self._tail, (step, loss, norm, action.value)][-TAIL:]
        return action

    def _judged(self, step: int, loss: float, norm: float) -> Action:
        values = {"loss": loss, "norm": norm}
        infinite = [name for name, value in values.items() if not isfinite(value)]
        if infinite:
            self.why = f"step {step:,}: {infinite[0]} is {values[infinite[0]]}"
            self._overflows += 1
            if self.scaled and isfinite(loss) and self._overflows <= HALVINGS:
                return Action.SKIP
            return self._bad_step(step)
        self._overflows = 0
        limits = {name: self._limit(usual) for name, usual in self._usual.items()}
        spiked = [name for name, value in values.items() if value > limits[name]]
        self.why = "".join(
            f"step {step:,}: {name} {values[name]:.4g} is a spike, the limit is {limits[name]:.4g}"
            for name in spiked[:1]
        )
        if spiked and self.settings.on_spike == "skip":
            return self._bad_step(step)
        for name, value in values.items():
            # A spike counts as the limit: one that passes hardly moves what is usual, and a level
            # that stays is soon usual.
            history = self._usual[name]
            history.append(log(max(min(value, limits[name]), 1e-12)))
            del history[: -self.settings.window]
        return Action.GO

    def _limit(self, logarithms: Sequence[float]) -> float:
        """From where on a value is a spike. Noise of losses and norms grows with their size."""
        if self.settings.on_spike == "off" or len(logarithms) < self._enough:
            return inf
        usual = fmean(logarithms)
        sigma = sqrt(fmean((value - usual) ** 2 for value in logarithms))
        return exp(usual + max(self.settings.spike_sigmas * sigma, log(SPIKE_FACTOR)))

    def condemn(self) -> Action:
        """Go back or stop: the last update left weights that are not finite.

        No step can be skipped over that, as the weights stay as they are.
        """
        step = self.last_update
        self.why = f"step {step:,}: the weights are not finite after its update"
        return self._bad_step(step, allowed=0)

    @property
    def last_update(self) -> int:
        """The last step that moved the weights, as far back as steps are remembered."""
        moved = [step for step, _, _, action in self._tail if action == Action.GO.value]
        return moved[-1] if moved else self._tail[0][0] if self._tail else 0

    def _bad_step(self, step: int, allowed: int | None = None) -> Action:
        since = step - self.settings.window
        self._bad = [bad for bad in self._bad if bad > since] + [step]
        allowed = self.settings.bad_steps_allowed if allowed is None else allowed
        if len(self._bad) <= allowed:
            return Action.SKIP
        if self.left_out and max(self.left_out) > since:
            return Action.STOP  # going back has not helped
        self.left_out |= set(self._bad)
        return Action.RELOAD

    def observe(self, step: int, metrics: Metrics) -> list[str]:
        """Alarms about the metrics of an interval that ends at a step, as text for people.

        An alarm needs several intervals in a row and a run that is old enough: early on a
        discriminator that finds nothing is normal. Fine-tuning has no sizes and no alarms.
        """
        if self.sizes is None:
            return []
        old_enough = step >= self.sizes.patience
        if self.watched in metrics:
            self._watched = [*self._watched, metrics[self.watched]][-INTERVALS:]
        seen = Seen(step, self.sizes, metrics, self._best, _rising(self._watched))
        if old_enough and seen[self.watched] > self._best:
            self._best = seen[self.watched]
        alarms = []
        for alarm in self.alarms:
            streak = self._streaks.get(alarm.kind, 0) + 1 if alarm.holds(seen) else 0
            self._streaks[alarm.kind] = streak
            again = step - self._given.get(alarm.kind, -REPEAT) >= REPEAT
            if old_enough and streak >= IN_A_ROW and again:
                self._given[alarm.kind] = step
                alarms.append(alarm.text(seen))
        return alarms

    def error(self) -> GuardError:
        """What a run that is stopped ends in."""
        lines = [
            self.why,
            f"bad batches: {_numbers(self._bad)}",
            f"left out before: {_numbers(sorted(self.left_out))}",
            f"the last {len(self._tail)} steps:",
            f"{'step':>9} {'loss':>11} {'norm':>11}",
        ]
        lines += [
            f"{step:>9,} {loss:>11.5g} {norm:>11.5g} {act}" for step, loss, norm, act in self._tail
        ]
        return GuardError(
            f"training stopped: {len(self._bad)} bad steps within {self.settings.window}, "
            "although the run went back to a checkpoint and left bad batches out",
            got="\n       ".join(lines),
            fix="export an earlier checkpoint (electrify export RUN --step N) and begin a new run "
            "from it (--discriminator.init-from, --generator.init-from) with a lower optimizer.lr; "
            "in fp16 try bf16 or float32; look at the text of the bad batches; if only spikes were "
            "bad, --on-spike warn lets them pass",
        )

    def state(self) -> dict[str, Any]:
        """All that the guard remembers, as plain JSON."""
        return {
            "left_out": sorted(self.left_out),
            "usual": {name: list(values) for name, values in self._usual.items()},
            "tail": [[step, str(loss), str(norm), act] for step, loss, norm, act in self._tail],
            "bad": list(self._bad),
            "overflows": self._overflows,
            "streaks": dict(self._streaks),
            "given": dict(self._given),
            "aucs": [str(value) for value in self._watched],  # JSON has no NaN
            "best_auc": self._best,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Remember what a checkpoint remembers; batches left out since then stay left out.

        An empty state is that of a run that begins.
        """
        self._forget()
        self.why = ""
        if not state:
            return
        self.left_out |= set(state["left_out"])
        self._usual = {name: list(values) for name, values in state["usual"].items()}
        self._tail = [
            (step, float(loss), float(norm), act) for step, loss, norm, act in state["tail"]
        ]
        self._bad, self._overflows = list(state["bad"]), state["overflows"]
        self._streaks, self._given = dict(state["streaks"]), dict(state["given"])
        self._watched, self._best = [float(value) for value in state["aucs"]], state["best_auc"]


def _rising(values: Sequence[float]) -> bool:
    """Whether the newer half is above the older one."""
    half = len(values) // 2
    return half > 0 and fmean(values[-half:]) - fmean(values[:half]) > RISE


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values) or "none"
