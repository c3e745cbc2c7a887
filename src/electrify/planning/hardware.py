"""Peak speed and memory of devices: from their vendors, or measured on this machine."""

import difflib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple


class Hardware(NamedTuple):
    """One device. FLOP/s are dense peak values."""

    float32: float
    """Peak FLOP/s in float32, without TF32."""
    mixed: float
    """Peak FLOP/s in bfloat16 or float16 on tensor cores, accumulating in float32."""
    memory: float
    """Bytes of memory."""
    source: str
    reached: float = 0.2
    """Fraction of the peak that training reaches: ELECTRA-small's 4 days on a V100 are 0.21."""


TERA, GIGA = 1e12, 1e9
_GA102, _ADA = "NVIDIA Ampere GA102 whitepaper", "NVIDIA Ada whitepaper"
_BLACKWELL = "NVIDIA RTX Blackwell whitepaper"
_APPLE = "GPU cores x clock; training on a Mac runs on the CPU today, which is slower"


def _device(float32: float, mixed: float, memory: float, source: str) -> Hardware:
    return Hardware(float32 * TERA, mixed * TERA, memory * GIGA, source)


# TFLOP/s in float32, TFLOP/s in bfloat16 or float16 (dense, accumulating in float32), GB.
KNOWN = {
    "T4": _device(8.1, 65, 16, "NVIDIA T4 datasheet"),
    "V100": _device(15.7, 125, 16, "NVIDIA V100 datasheet, SXM2"),
    "V100-32GB": _device(15.7, 125, 32, "NVIDIA V100 datasheet, SXM2"),
    "A10": _device(31.2, 125, 24, "NVIDIA A10 datasheet"),
    "A10G": _device(31.5, 70, 24, "NVIDIA A10G datasheet"),
    "A30": _device(10.3, 165, 24, "NVIDIA A30 datasheet"),
    "A40": _device(37.4, 149.7, 48, "NVIDIA A40 datasheet"),
    "A6000": _device(38.7, 154.8, 48, "NVIDIA RTX A6000 datasheet"),
    "A100": _device(19.5, 312, 40, "NVIDIA A100 datasheet"),
    "A100-80GB": _device(19.5, 312, 80, "NVIDIA A100 datasheet"),
    "L4": _device(30.3, 121, 24, "NVIDIA L4 datasheet"),
    "L40S": _device(91.6, 362, 48, "NVIDIA L40S datasheet"),
    "H100": _device(67, 989, 80, "NVIDIA H100 datasheet, SXM, no sparsity"),
    "H100-PCIe": _device(51, 756, 80, "NVIDIA H100 datasheet, PCIe, no sparsity"),
    "H100-NVL": _device(60, 835, 94, "NVIDIA H100 datasheet, NVL, no sparsity"),
    "H200": _device(67, 989, 141, "NVIDIA H200 datasheet, SXM, no sparsity"),
    "GH200": _device(67, 989, 96, "NVIDIA GH200 datasheet, HBM3, no sparsity"),
    "B200": _device(75, 2250, 180, "NVIDIA HGX B200 datasheet, one of eight, no sparsity"),
    "RTX3060": _device(12.7, 25.5, 12, "NVIDIA GeForce specifications, as GA102 whitepaper"),
    "RTX3080": _device(29.8, 59.5, 10, _GA102),
    "RTX3090": _device(35.6, 71, 24, _GA102),
    "RTX4080": _device(48.7, 97.5, 16, _ADA),
    "RTX4090": _device(82.6, 165, 24, _ADA),
    "RTX5080": _device(56.3, 112.6, 16, _BLACKWELL),
    "RTX5090": _device(104.8, 209.5, 32, _BLACKWELL),
    "M1": _device(2.6, 2.6, 16, f"Apple's number; {_APPLE}"),
    "M1-Max": _device(10.4, 10.4, 64, f"Apple's number; {_APPLE}"),
    "M2": _device(3.6, 3.6, 24, f"Apple's number; {_APPLE}"),
    "M2-Max": _device(13.6, 13.6, 96, f"about, {_APPLE}"),
    "M3-Max": _device(14.1, 14.1, 128, f"about, {_APPLE}"),
    "M4-Max": _device(16.2, 16.2, 128, f"about, {_APPLE}"),
}


# Other names, as `_plain` returns them. An A100 has the same peaks on PCIe, unlike a V100 or H100;
# the 480 GB are the memory of the Grace CPU.
ALIASES = {
    "a100pcie40gb": "A100",
    "a100pcie80gb": "A100-80GB",
    "a10080gbpcie": "A100-80GB",
    "gh200480gb": "GH200",
}


def name_of(text: str) -> str | None:
    """Return the name in `KNOWN` of a device as people and drivers write it, or None.

    >>> name_of("rtx 4090"), name_of("NVIDIA A100-SXM4-80GB"), name_of("B100")
    ('RTX4090', 'A100-80GB', None)
    """
    wanted = _plain(text)
    if wanted in ALIASES:
        return ALIASES[wanted]
    for name, device in KNOWN.items():
        if wanted in (_plain(name), f"{_plain(name)}{device.memory / GIGA:.0f}gb"):
            return name
    return None


def near(text: str) -> str | None:
    """Return the device with the most similar name and the same digits, or None."""
    plain = {_plain(name): name for name in KNOWN if _digits(name) == _digits(text)}
    found = difflib.get_close_matches(_plain(text), plain, n=1, cutoff=0.8)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    """Return a name without vendor, series, memory type and separators."""
    words = r"nvidia|geforce|quadro|tesla|apple|rtx|sxm\d?|hbm\d?e?"
    return re.sub(rf"{words}|[^a-z0-9]", "", name.lower())


def _digits(name: str) -> str:
    return re.sub(r"\D", "", name)


def bytes_text(count: float) -> str:
    """Return a number of bytes in MB or GB.

    >>> bytes_text(1_234_567), bytes_text(2.5e12)
    ('1.2 MB', '2,500.0 GB')
    """
    return f"{count / GIGA:,.1f} GB" if count >= GIGA else f"{count / 1e6:.1f} MB"


def memory_of(device: str) -> float:
    """Return the bytes of memory of the GPU ("cuda"), or else those this process may use."""
    if device == "cuda":
        import torch

        return float(torch.cuda.get_device_properties(device).total_memory)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return float(min([physical, *_cgroup_limits()]))


# Of the control group of a container or batch job: version 2, then version 1.
CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def _cgroup_limits() -> Iterator[int]:
    for path in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            yield int(path.read_text())


def this_machine() -> Hardware:
    """Measure the device that a run would use on this machine, with half a second of matmuls."""
    import torch

    if torch.cuda.is_available():
        device = "cuda"
        name, reached = torch.cuda.get_device_name(device), KNOWN["V100"].reached
    else:
        device = "cpu"
        name = f"CPU, threads: {torch.get_num_threads()}"
        reached = 0.55  # measured with tiny; ELECTRA-small reached 0.63, ModernBERT-small 0.71
    speeds = [matmul_speed(precision, device) for precision in ("float32", "bf16")]
    return Hardware(speeds[0], speeds[1], memory_of(device), f"{name}, measured now", reached)


def matmul_speed(
    precision: str, device: str, size: int | None = None, seconds: float = 0.25
) -> float:
    """Return the highest FLOP/s of a square matmul within some seconds, of at least one matmul.

    Matrices are smaller on a CPU: without bfloat16 instructions a matmul of 1,024 x 1,024 takes
    four seconds there.
    """
    import torch

    size = size or (8192 if device == "cuda" else 512)
    dtype = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    rng = torch.Generator(device).manual_seed(0)  # does not advance the caller's generator
    left, right = (torch.randn(size, size, device=device, generator=rng).to(dtype) for _ in "ab")
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        started = time.perf_counter()
        product = left @ right
        float(product[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads inside the context."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
