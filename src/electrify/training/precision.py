"""Choose the precision of matmuls: the requested one, or the faster one on this machine.

Most CPUs have no instructions for bfloat16 and emulate it, 5 (AVX-512) to 50 times (AVX2) slower
than float32. The CPU's instruction set does not decide it, because environment variables and
libraries limit what is used, so both are measured, in a few milliseconds.
"""

from typing import Literal, NamedTuple

from electrify.planning.hardware import GIGA, matmul_speed, threads

MatmulPrecision = Literal["float32", "bf16", "fp16"]
Asked = Literal["auto", "float32", "bf16", "fp16"]

SIZES = {"cpu": 256, "cuda": 4096}
TIMING_ROUNDS, TIMING_SECONDS = 4, 0.003
CLEARLY_FASTER = 1.3
"""How much faster bfloat16 must be to be chosen; native bfloat16 is about twice as fast."""
CLEARLY_SLOWER = 0.7


class Choice(NamedTuple):
    """The precision of a run, chosen once when it starts, for all ranks."""

    precision: MatmulPrecision
    """Precision of the networks' matmuls."""
    muon: MatmulPrecision
    """Precision of Muon's matmuls: the faster one, because bf16 is precise enough for them."""
    reason: str
    """Explanation for the user; empty if there was nothing to choose."""
    slow: bool = False
    """Whether float32 would be clearly faster than the requested precision."""


def choose_precision(asked: Asked, device: str) -> Choice:
    """Return the requested precision, or for "auto" the faster of float32 and bf16 on a device."""
    if device not in SIZES:
        return Choice("float32" if asked == "auto" else asked, "float32", "")
    names = sorted({"float32", "bf16"} | {asked} - {"auto"})
    speeds = dict.fromkeys(names, 0.0)
    # With one thread, because several threads that wait for each other are slowed down by other
    # programs. In turns, keeping the best of each, so that a short disturbance does not decide.
    with threads(1):
        for _ in range(TIMING_ROUNDS):
            for name in names:
                speed = matmul_speed(name, device, SIZES[device], TIMING_SECONDS)
                speeds[name] = max(speeds[name], speed)
    return chosen(asked, speeds)


def chosen(asked: Asked, speeds: dict[str, float]) -> Choice:
    """Return the choice that follows from the FLOP/s in each precision.

    >>> chosen("auto", {"float32": 70e9, "bf16": 1.6e9}).precision
    'float32'
    >>> chosen("auto", {"float32": 100e9, "bf16": 190e9}).reason
    'auto: bfloat16 matmuls run at 190 GFLOP/s per thread, float32 at 100'
    """
    faster = speeds["bf16"] > CLEARLY_FASTER * speeds["float32"]
    fastest: MatmulPrecision = "bf16" if faster else "float32"
    if asked == "auto":
        first, second = ("bf16", "float32") if faster else ("float32", "bf16")
        reason = (
            f"auto: {NAMES[first]} matmuls run at {speeds[first] / GIGA:.3g} GFLOP/s per thread, "
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
