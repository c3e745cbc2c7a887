"""Keep non-finite values and spikes away from the weights, and raise alarms when training fails.

The guard sees values that are the same on every rank, the loss of the global batch and the norm of
all gradients, so every rank makes the same decision. It does not use tensors: its state is plain
values that are saved in checkpoints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, inf, isfinite, log, nan, sqrt
from statistics import fmean, median
from typing import Any, Literal

from electrify.errors import GuardError
from electrify.objectives.bands import Alarm, Metrics, Observation, Sizes

MIN_HISTORY = 32  # steps before a spike can be distinguished from noise
SPIKE_FACTOR = 1.5  # a smaller factor above the mean is never a spike, however small the variance
HALVINGS = 16  # the loss scale of float16 starts at 2**16
REPORTED_STEPS = 20
IN_A_ROW = 3  # consecutive intervals that must look wrong before an alarm
INTERVALS = 8  # over which a rise of the watched metric is detected
RISE = 0.01
REPEAT = 5_000  # steps before the same alarm is repeated
_LABELS = {"loss": "loss", "norm": "gradient norm"}


@dataclass(frozen=True)
class GuardSettings:
    """What the guard treats as a bad step, and how it reacts."""

    on_spike: Literal["off", "warn", "skip"] = "warn"
    """Reaction to a spike of the loss or the gradient norm: none, a warning, or skip the batch."""
    bad_steps_allowed: int = 3
    """Bad steps within `window` that are only skipped; one more reloads a checkpoint."""
    spike_sigmas: float = 6.0
    """Standard deviations above the mean, of logarithms, at which a value is a spike."""
    window: int = 128
    """Number of past steps that the guard looks at."""


class Action(Enum):
    """What to do with a step."""

    GO = "go"
    """Apply the update."""
    SKIP = "skip"
    """Do not apply the update."""
    RELOAD = "reload"
    """Load the newest checkpoint, and leave out the batches in `left_out` from then on."""
    STOP = "stop"
    """Raise `error()`."""


class Guard:
    """Judges every step before its update, and the metrics of every logging interval.

    Step k trains on batch k, so leaving out a batch means skipping its step.
    """

    def __init__(
        self,
        settings: GuardSettings,
        sizes: Sizes | None = None,
        alarms: Sequence[Alarm] = (),
        watched: str = "",
        scaled: bool = False,
        mask_rate: Callable[[int], float] | None = None,
        loss_changes: Callable[[int], bool] = lambda step: False,
    ) -> None:
        self.settings, self.sizes, self.alarms, self.watched = settings, sizes, alarms, watched
        self.scaled = scaled
        """Whether the loss is scaled for float16, whose overflows are expected."""
        self.mask_rate = mask_rate
        """Maps a step to its mask rate, if that changes during training."""
        self.loss_changes = loss_changes
        """Whether the weight of a loss jumps at a step, so that its loss is not a spike."""
        self._min_history = min(MIN_HISTORY, settings.window)
        self.left_out: set[int] = set()
        """Numbers of the batches that must not be trained on."""
        self.why = ""
        """What was wrong with the last step that was judged; empty if nothing was."""
        self._reset()

    def _reset(self) -> None:
        self._history: dict[str, list[float]] = {"loss": [], "norm": []}  # logarithms
        self._recent: list[tuple[int, float, float, str]] = []
        self._bad: list[int] = []
        self._overflows = 0
        self._streaks: dict[str, int] = {}
        self._last_given: dict[str, int] = {}
        self._watched: list[float] = []
        self._best = 0.0
        self._changed = 0  # the last step at which the weight of a loss jumped

    @property
    def loss_is_finite(self) -> bool:
        """Return whether the last loss was finite; if not, the weights may be bad."""
        return not self._recent or isfinite(self._recent[-1][1])

    @property
    def gradient_norm(self) -> float:
        """The median gradient norm of the last updates; NaN before the first."""
        recent = self._history["norm"][-REPORTED_STEPS:]
        return exp(median(recent)) if recent else nan

    def judge(self, step: int, loss: float, norm: float) -> Action:
        """Decide what to do, given the loss of the global batch and its gradient norm."""
        if self.loss_changes(step):
            self._history, self._changed = {name: [] for name in self._history}, step
        action = self._judge(step, loss, norm)
        self._recent = [*self._recent, (step, loss, norm, action.value)][-REPORTED_STEPS:]
        return action

    def _judge(self, step: int, loss: float, norm: float) -> Action:
        values = {"loss": loss, "norm": norm}
        if name := next((name for name in values if not isfinite(values[name])), ""):
            self.why = f"step {step:,}: {_LABELS[name]} is {values[name]}"
            self._overflows += 1
            if self.scaled and isfinite(loss) and self._overflows <= HALVINGS:
                return Action.SKIP
            return self._bad_step(step)
        self._overflows = 0
        limits = {name: self._limit(history) for name, history in self._history.items()}
        self.why = ""
        if name := next((name for name in values if values[name] > limits[name]), ""):
            value, limit = values[name], limits[name]
            self.why = f"step {step:,}: {_LABELS[name]} spike: {value:.4g} (limit {limit:.4g})"
            if self.settings.on_spike == "skip":
                return self._bad_step(step)
        for name, value in values.items():
            # A spike enters the history as the limit: a single one hardly moves the mean, and a
            # new level that persists is soon accepted.
            history = self._history[name]
            history.append(log(max(min(value, limits[name]), 1e-12)))
            del history[: -self.settings.window]
        return Action.GO

    def _limit(self, logarithms: Sequence[float]) -> float:
        """Return the value above which there is a spike.

        Logarithms, because the noise of losses and norms is proportional to their size.
        """
        if self.settings.on_spike == "off" or len(logarithms) < self._min_history:
            return inf
        mean = fmean(logarithms)
        sigma = sqrt(fmean((value - mean) ** 2 for value in logarithms))
        return exp(mean + max(self.settings.spike_sigmas * sigma, log(SPIKE_FACTOR)))

    def reject_weights(self) -> Action:
        """Reload or stop, because the last update made the weights non-finite.

        Skipping does not help here: the weights are already bad.
        """
        step = self.last_update
        self.why = f"step {step:,}: the weights are not finite after its update"
        return self._bad_step(step, allowed=0)

    @property
    def last_update(self) -> int:
        """Return the last step that updated the weights, among the steps remembered."""
        updates = [step for step, _, _, action in self._recent if action == Action.GO.value]
        return updates[-1] if updates else self._recent[0][0] if self._recent else 0

    def _bad_step(self, step: int, allowed: int | None = None) -> Action:
        since = step - self.settings.window
        self._bad = [bad for bad in self._bad if bad > since] + [step]
        allowed = self.settings.bad_steps_allowed if allowed is None else allowed
        if len(self._bad) <= allowed:
            return Action.SKIP
        if self.left_out and max(self.left_out) > since:
            return Action.STOP  # reloading a checkpoint has not helped
        self.left_out |= set(self._bad)
        return Action.RELOAD

    def observe(self, step: int, metrics: Metrics) -> list[str]:
        """Return the alarms about the metrics of the interval that ends at a step.

        An alarm must hold for several intervals in a row, and not at the beginning of a run, where
        a discriminator that finds nothing is normal. Fine-tuning has no sizes and no alarms.
        """
        if self.sizes is None:
            return []
        old_enough = step - self._changed >= self.sizes.patience
        if self.watched in metrics:
            self._watched = [*self._watched, metrics[self.watched]][-INTERVALS:]
        sizes = self.sizes
        if self.mask_rate is not None:
            sizes = sizes._replace(mask_rate=self.mask_rate(step))
        seen = Observation(step, sizes, metrics, self._best, _rising(self._watched))
        if old_enough and seen[self.watched] > self._best:
            self._best = seen[self.watched]
        alarms = []
        for alarm in self.alarms:
            streak = self._streaks.get(alarm.kind, 0) + 1 if alarm.holds(seen) else 0
            self._streaks[alarm.kind] = streak
            is_new = step - self._last_given.get(alarm.kind, -REPEAT) >= REPEAT
            if old_enough and streak >= IN_A_ROW and is_new:
                self._last_given[alarm.kind] = step
                alarms.append(alarm.text(seen))
        return alarms

    def error(self, reloaded: bool = True) -> GuardError:
        """Return the error that ends the run, with the steps that led to it.

        `reloaded` says whether there was a checkpoint to reload before giving up.
        """
        lines = [
            self.why,
            f"bad batches: {_numbers(self._bad)}",
            f"left out earlier: {_numbers(sorted(self.left_out))}",
            f"the last {len(self._recent)} steps:",
            f"{'step':>9} {'loss':>11} {'norm':>11}",
        ]
        lines += [
            f"{step:>9,} {loss:>11.5g} {norm:>11.5g} {action}"
            for step, loss, norm, action in self._recent
        ]
        tried, fix = "and there is no checkpoint to reload", "use a lower learning rate; "
        if reloaded:
            tried = "even after reloading a checkpoint and leaving out the bad batches"
            fix = (
                "export an earlier checkpoint (electrify export RUN --step N) and start a new run "
                "from it (--discriminator.init-from, --generator.init-from) with a lower "
                "optimizer.lr; "
            )
        return GuardError(
            f"training stopped: {len(self._bad)} bad steps within {self.settings.window} steps, "
            f"{tried}",
            got="\n       ".join(lines),
            fix=f"{fix}in fp16 try bf16 or float32; look at the text of the bad batches; if all "
            "bad steps were spikes, --on-spike warn trains on them",
        )

    def state(self) -> dict[str, Any]:
        """Return the state of the guard as plain JSON values."""
        return {
            "left_out": sorted(self.left_out),
            "usual": {name: list(values) for name, values in self._history.items()},
            "tail": [[step, str(loss), str(norm), act] for step, loss, norm, act in self._recent],
            "bad": list(self._bad),
            "overflows": self._overflows,
            "streaks": dict(self._streaks),
            "given": dict(self._last_given),
            "aucs": [str(value) for value in self._watched],  # JSON has no NaN
            "best_auc": self._best,
            "changed": self._changed,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore a state, but keep leaving out the batches that were left out since then.

        An empty state is that of a new run.
        """
        self._reset()
        self.why = ""
        if not state:
            return
        self.left_out |= set(state["left_out"])
        self._history = {name: list(values) for name, values in state["usual"].items()}
        self._recent = [
            (step, float(loss), float(norm), act) for step, loss, norm, act in state["tail"]
        ]
        self._bad, self._overflows = list(state["bad"]), state["overflows"]
        self._streaks, self._last_given = dict(state["streaks"]), dict(state["given"])
        self._watched, self._best = [float(value) for value in state["aucs"]], state["best_auc"]
        self._changed = state.get("changed", 0)


def _rising(values: Sequence[float]) -> bool:
    """Return whether the mean of the second half is clearly above that of the first."""
    half = len(values) // 2
    return half > 0 and fmean(values[-half:]) - fmean(values[:half]) > RISE


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values) or "none"
