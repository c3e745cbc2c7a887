"""How fast devices are and what they hold: peak numbers of their makers, or measured here."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Hardware(NamedTuple):
    """One device. FLOPs a second are dense and at its peak."""

    float32: float
    """In float32, without TF32."""
    mixed: float
    """In bfloat16 or float16 on matrix units, adding up in float32."""
    memory: float
    """In bytes."""
    source: str
    reached: float = 0.2
    """Share of the peak that training reaches. ELECTRA-small took 4 days on a V100: 0.21 of it."""


TERA, GIGA = 1e12, 1e9
KNOWN = {
    "T4": Hardware(8.1 * TERA, 65 * TERA, 16 * GIGA, "NVIDIA T4 datasheet"),
    "V100": Hardware(15.7 * TERA, 125 * TERA, 16 * GIGA, "NVIDIA V100 datasheet, SXM2"),
    "A100": Hardware(19.5 * TERA, 312 * TERA, 40 * GIGA, "NVIDIA A100 datasheet"),
    "A100-80GB": Hardware(19.5 * TERA, 312 * TERA, 80 * GIGA, "NVIDIA A100 datasheet"),
    "H100": Hardware(67 * TERA, 989 * TERA, 80 * GIGA, "NVIDIA H100 datasheet, SXM, no sparsity"),
    "RTX3090": Hardware(35.6 * TERA, 71 * TERA, 24 * GIGA, "NVIDIA Ampere GA102 whitepaper"),
    "RTX4090": Hardware(82.6 * TERA, 165 * TERA, 24 * GIGA, "NVIDIA Ada whitepaper"),
}


def memory_of(device: str) -> float:
    """Bytes that a kind of device has here: "cuda", or another for the machine's own."""
    import torch

    if device == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def this_machine() -> Hardware:
    """The device a run would use here, measured by matmuls for half a second."""
    import torch

    if torch.cuda.is_available():
        device = "cuda"
        name, reached = torch.cuda.get_device_name(device), KNOWN["V100"].reached
    else:
        device = "cpu"
        name = f"CPU, threads: {torch.get_num_threads()}"
        reached = 0.55  # tiny; ELECTRA-small reached 0.63, ModernBERT-small 0.71
    speeds = [matmul_speed(precision, device) for precision in ("float32", "bf16")]
    return Hardware(speeds[0], speeds[1], memory_of(device), f"{name}, measured now", reached)


def matmul_speed(
    precision: str, device: str, size: int | None = None, seconds: float = 0.25
) -> float:
    """The highest FLOPs a second of a square matmul seen within some seconds, one matmul at least.

    Matrices are smaller on a CPU: without instructions for bfloat16 a product of 1,024 x 1,024
    takes it four seconds.
    """
    import torch

    size = size or (8192 if device == "cuda" else 512)
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        begin = time.perf_counter()
        product = left @ right
        float(product[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside, torch computes with so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
