"""The allowed ranges of a recipe's numeric fields."""

from typing import NamedTuple


class Range(NamedTuple):
    """The allowed values of a numeric field.

    >>> 0 in Range(0, 1), 1 in Range(0, 1, below=True), float("nan") in Range(0, 1)
    (True, False, False)
    >>> print(Range(0, 1), "or", Range(0, 65_536, above=True))
    between 0 and 1 or above 0 and at most 65,536
    """

    least: float
    most: float
    above: bool = False
    """Exclude `least`."""
    below: bool = False
    """Exclude `most`."""

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        high = value < self.most if self.below else value <= self.most
        return high and (self.least < value if self.above else self.least <= value)

    def __str__(self) -> str:
        low, high = (f"{end:,}" if abs(end) < LONG else f"{end:.4g}" for end in self[:2])
        if not self.above and not self.below:
            return f"between {low} and {high}"
        lower = "above" if self.above else "at least"
        return f"{lower} {low} and {'below' if self.below else 'at most'} {high}"


LONG = 1e15  # larger numbers are printed with an exponent
# Learning rate, weight decay and clip norm are bounded by what float32 can hold: values that are
# merely too large for training reach the guard, which reports what happened.
FLOAT32 = 1e30
COUNT = Range(1, 10**12)
COUNT_OR_OFF = Range(0, 10**12)
LOSS_WEIGHT = Range(0, 1e6)
DECAY = Range(0, 1, below=True)
SCALE = Range(0, 64, above=True)
RANGES: dict[str, Range] = {
    "generator.width": SCALE,
    "generator.depth": SCALE,
    "objective.mask_rate": Range(0, 1, above=True, below=True),
    "objective.shown_as_mask": Range(0, 1),
    "objective.generator_weight": LOSS_WEIGHT,
    "objective.discriminator_weight": LOSS_WEIGHT,
    "objective.temperature": Range(1e-4, 1e4),
    "optimizer.lr": Range(0, FLOAT32, above=True),
    "optimizer.beta1": DECAY,
    "optimizer.beta2": DECAY,
    "optimizer.eps": Range(0, 1, above=True),
    "optimizer.weight_decay": Range(0, FLOAT32),
    "optimizer.clip": Range(0, FLOAT32),
    "optimizer.warmup": COUNT_OR_OFF,
    "optimizer.generator_lr": Range(0, 1e6),
    "run.steps": COUNT,
    "run.batch_size": Range(1, 2**20),
    "run.length": Range(8, 65_535),  # as in shards
    "run.log_every": COUNT,
    "run.eval_every": COUNT_OR_OFF,
    "run.eval_batches": COUNT,
    "run.save_every": COUNT,
    "run.keep_last": COUNT,
    "run.keep_percent": Range(0, 100, above=True),
    "run.seed": Range(0, 2**63 - 1),
}
