"""Progress of a run: one live line on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from electrify.progress import (
    SECONDS_BETWEEN_LINES,
    SECONDS_BETWEEN_REDRAWS,
    Throttle,
    duration,
    has_live_terminal,
)
from electrify.training.observer import MetricValues, Observer

if TYPE_CHECKING:
    import torch
    from rich.live import Live

    from electrify.objectives.bands import Sizes
    from electrify.objectives.objective import Objective
    from electrify.training.pace import Costs


class Sight(NamedTuple):
    """The contents of a progress line; None where unknown."""

    step: int
    steps: int
    values: Mapping[str, float]
    """Metrics (losses, AUC, …) by display name."""
    tokens_per_second: float | None = None
    share_of_peak: float | None = None
    memory: float | None = None
    """Peak memory in bytes."""
    seconds_left: float | None = None


def progress_line(sight: Sight) -> str:
    """Return a progress line.

    >>> values = {"generator": 5.931, "discriminator": 0.31, "AUC": 0.71}
    >>> progress_line(Sight(1200, 2000, values, 12400.4, 0.38, 410e6, 240))
    ... # doctest: +NORMALIZE_WHITESPACE
    'step 1,200/2,000  generator 5.93  discriminator 0.31  AUC 0.71  12,400 tokens/s  38% of peak
      410 MB  4 min left'
    """
    parts = [f"step {sight.step:,}/{sight.steps:,}"]
    parts += [f"{name} {value:.3g}" for name, value in sight.values.items()]
    if sight.tokens_per_second is not None:
        parts.append(f"{sight.tokens_per_second:,.0f} tokens/s")
    if sight.share_of_peak is not None:
        parts.append(f"{sight.share_of_peak:.0%} of peak")
    if sight.memory is not None:
        large = sight.memory >= 1e9
        parts.append(f"{sight.memory / 1e9:.1f} GB" if large else f"{sight.memory / 1e6:.0f} MB")
    if sight.seconds_left is not None:
        parts.append(f"{duration(sight.seconds_left)} left")
    return "  ".join(parts)


class Screen:
    """One live line on a terminal, or a plain line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._throttle = Throttle(SECONDS_BETWEEN_LINES)

    def __enter__(self) -> Self:
        if has_live_terminal():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True),
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),  # do not capture redirected output
            )
            self._live.start()
            self._throttle = Throttle(SECONDS_BETWEEN_REDRAWS)
        return self

    def show(self, sight: Sight) -> None:
        """Show the progress; the first and the last step are always shown."""
        if self._live is not None:
            from rich.text import Text

            line = Text(progress_line(sight), no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=self._throttle.ready())
            return
        if self._throttle.ready() or sight.step >= sight.steps:
            print(progress_line(sight), file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class ProgressLine(Observer):
    """Show training metrics on the screen, and print validation metrics."""

    def __init__(
        self,
        screen: Screen,
        objective: "type[Objective]",
        sizes: "Sizes",
        steps: int,
        flops_per_step: float,
        precision: str,
        device: "torch.device",
        costs: "Costs",
    ) -> None:
        self.screen, self.objective, self.sizes, self.steps = screen, objective, sizes, steps
        self.costs = costs
        self.flops_per_step, self.device = flops_per_step, device
        self.peak = matmul_peak(device, precision)

    def on_log(self, split: str, step: int, metrics: MetricValues, timings: MetricValues) -> None:
        """Show metrics."""
        if split != "train":
            print(validation_lines(self.objective, self.sizes, step, dict(metrics)), flush=True)
            return
        shown = self.objective.shown.items()
        steps = round(timings["steps_per_second"] * timings["seconds"])
        seconds = timings["seconds"] / self.costs(step - steps, step)  # per batch of full size
        self.screen.show(
            Sight(
                step,
                self.steps,
                {m.short: metrics[name] for name, m in shown if m.short and name in metrics},
                timings["tokens_per_second"],
                share_of_peak(self.flops_per_step, seconds, self.peak),
                peak_memory(self.device),
                self.costs(step, self.steps) * seconds,
            )
        )

    def on_replan(self, steps: int) -> None:
        """Show another total number of steps from now on."""
        self.steps = steps


def validation_lines(
    objective: "type[Objective]", sizes: "Sizes", step: int, metrics: dict[str, float]
) -> str:
    """Return the validation metrics on one line, and what they mean on a second, indented one."""
    numbers = "  ".join(["validation", f"step {step:,}", *objective.headline(sizes, metrics)])
    reading = objective.reading(sizes, step, metrics)
    return f"{numbers}\n  {reading}" if reading else numbers


def matmul_peak(device: "torch.device", precision: str) -> float | None:
    """Return the FLOP/s of matmuls on this machine; None for a device that is not measured.

    In mixed precision some matmuls stay in float32, so the peak is that of the faster dtype. This
    takes a quarter of a second, or half a second in mixed precision.
    """
    import torch

    from electrify.planning.hardware import matmul_speed

    if device.type != ("cuda" if torch.cuda.is_available() else "cpu"):
        return None
    return max(matmul_speed(each, device.type) for each in {"float32", precision})


def share_of_peak(
    flops_per_step: float | None, seconds_per_step: float, peak: float | None
) -> float | None:
    """Return the fraction of the machine's matmul peak that training reaches.

    >>> share_of_peak(3e9, 0.1, 1e11)
    0.3
    """
    if flops_per_step is None or not peak or seconds_per_step <= 0:
        return None
    return flops_per_step / seconds_per_step / peak


def peak_memory(device: "torch.device") -> int:
    """Return the peak memory in bytes: of the CUDA device, or of this process."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts kilobytes
