"""Which precision matmuls run in: asked for, or the faster one on this machine.

Most CPUs have no instructions for bfloat16 and emulate it, 5 (AVX-512) to 50 times (AVX2) slower
than float32. Names of instruction sets do not tell, as environment variables and libraries limit
them, so both are measured, in a few milliseconds.
"""

from typing import Literal, NamedTuple

from electrify.planning.hardware import GIGA, matmul_speed, threads

MatmulPrecision = Literal["float32", "bf16", "fp16"]
Asked = Literal["auto", "float32", "bf16", "fp16"]

SIZES = {"cpu": 256, "cuda": 4096}
TIMING_ROUNDS, TIMING_SECONDS = 4, 0.003
CLEARLY_FASTER = 1.3
"""How much faster bfloat16 must be to be chosen: where it is native it is about twice as fast."""
CLEARLY_SLOWER = 0.7


class Choice(NamedTuple):
    """What a run computes in, decided once, when it starts, for all processes."""

    precision: MatmulPrecision
    """Of the networks' matmuls."""
    muon: MatmulPrecision
    """Of Muon's matmuls, which bf16 is enough for: the faster of the two."""
    reason: str
    """For people; empty if there was no choice to make."""
    slow: bool = False
    """Whether float32 would be clearly faster than what was asked for."""


def choose_precision(asked: Asked, device: str) -> Choice:
    """Take what is asked for, or with "auto" the faster of float32 and bf16 on a device."""
    if device not in SIZES:
        return Choice("float32" if asked == "auto" else asked, "float32", "")
    names = sorted({"float32", "bf16"} | {asked} - {"auto"})
    speeds = dict.fromkeys(names, 0.0)
    # One thread: threads that wait for each other measure what else runs on a busy machine. In
    # turns, and the best of each, so that a moment of other work decides nothing.
    with threads(1):
        for _ in range(TIMING_ROUNDS):
            for name in names:
                speed = matmul_speed(name, device, SIZES[device], TIMING_SECONDS)
                speeds[name] = max(speeds[name], speed)
    return chosen(asked, speeds)


def chosen(asked: Asked, speeds: dict[str, float]) -> Choice:
    """The choice that follows from FLOPs a second in each precision.

    >>> chosen("auto", {"float32": 70e9, "bf16": 1.6e9}).precision
    'float32'
    >>> chosen("auto", {"float32": 100e9, "bf16": 190e9}).reason
    'auto: bfloat16 matmuls run at 190 GFLOP/s a thread, float32 at 100'
    """
    faster = speeds["bf16"] > CLEARLY_FASTER * speeds["float32"]
    fastest: MatmulPrecision = "bf16" if faster else "float32"
    if asked == "auto":
        first, second = ("bf16", "float32") if faster else ("float32", "bf16")
        reason = (
            f"auto: {NAMES[first]} matmuls run at {speeds[first] / GIGA:.3g} GFLOP/s a thread, "
            f"{NAMES[second]} at {speeds[second] / GIGA:.3g}"
        )
        return Choice(fastest, fastest, reason)
    if speeds[asked] < CLEARLY_SLOWER * speeds["float32"]:
        reason = (
            f"{NAMES[asked]} matmuls run {speeds['float32'] / speeds[asked]:.0f} times slower than "
            f"float32 on this machine; float32 would train faster"
        )
        return Choice(asked, fastest, reason, slow=True)
    return Choice(asked, fastest, "")


NAMES = {"float32": "float32", "bf16": "bfloat16", "fp16": "float16"}
