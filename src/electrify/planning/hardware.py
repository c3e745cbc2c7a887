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
    """Peak FLOP/s of float32 matmuls as `pretrain` runs them: in TF32 where the device has it."""
    mixed: float
    """Peak FLOP/s in bfloat16 or float16 on tensor cores, accumulating in float32."""
    memory: float
    """Bytes of memory."""
    source: str
    bandwidth: float | None = None
    """Bytes per second that kernels read and write; None: not counted, as on a CPU."""
    reached: float = 0.7
    """Fraction of the peaks that training reaches, fitted to published speeds: see speed.py."""
    has_cuda: bool = True
    """Whether memory and time are those of CUDA: kernel launches, a context, what is kept."""
    has_bf16: bool = False
    """Whether `run.precision = "auto"` chooses bfloat16."""


TERA, GIGA = 1e12, 1e9


def _device(float32: float, mixed: float, memory: float, bandwidth: float, source: str) -> Hardware:
    return Hardware(
        *(float32 * TERA, mixed * TERA, memory * GIGA),
        source=source,
        bandwidth=bandwidth * GIGA,
    )


def _tf32(mixed: float, memory: float, bandwidth: float, source: str) -> Hardware:
    """Return a device with TF32, which is half as fast as 16 bits."""
    return _device(mixed / 2, mixed, memory, bandwidth, source)._replace(has_bf16=True)


_AMPERE, _ADA = "NVIDIA Ampere GA102 whitepaper", "NVIDIA Ada whitepaper"
_BLACKWELL = "NVIDIA RTX Blackwell whitepaper"
_GEFORCE = "estimate: NVIDIA's cores x boost clock, tensor cores as in the whitepapers"
_LAPTOP = "estimate: cores x a middle clock; a laptop's power limit changes it by a third"
_APPLE = "training on a Mac runs on the CPU today, which is slower"
_ABOUT = f"estimate: GPU cores x clock; {_APPLE}"


def _apple(float32: float, memory: float, bandwidth: float, source: str) -> Hardware:
    return _device(float32, float32, memory, bandwidth, source)._replace(has_cuda=False)


# TFLOP/s in float32 (where there is no TF32), TFLOP/s in bfloat16 or float16 (dense, accumulating
# in float32), GB, GB/s. GeForce cards accumulate in float32 at half of the tensor cores' speed.
KNOWN = {
    "T4": _device(8.1, 65, 16, 320, "NVIDIA T4 datasheet"),
    "V100": _device(15.7, 125, 16, 900, "NVIDIA V100 datasheet, SXM2"),
    "V100-32GB": _device(15.7, 125, 32, 900, "NVIDIA V100 datasheet, SXM2"),
    "A10": _tf32(125, 24, 600, "NVIDIA A10 datasheet"),
    "A10G": _tf32(70, 24, 600, "NVIDIA A10G datasheet"),
    "A30": _tf32(165, 24, 933, "NVIDIA A30 datasheet"),
    "A40": _tf32(149.7, 48, 696, "NVIDIA A40 datasheet"),
    "A6000": _tf32(154.8, 48, 768, "NVIDIA RTX A6000 datasheet"),
    "A100": _tf32(312, 40, 1_555, "NVIDIA A100 datasheet"),
    "A100-80GB": _tf32(312, 80, 2_039, "NVIDIA A100 datasheet, SXM"),
    "L4": _tf32(121, 24, 300, "NVIDIA L4 datasheet"),
    "L40S": _tf32(362, 48, 864, "NVIDIA L40S datasheet"),
    "H100": _tf32(989, 80, 3_350, "NVIDIA H100 datasheet, SXM, no sparsity"),
    "H100-PCIe": _tf32(756, 80, 2_000, "NVIDIA H100 datasheet, PCIe, no sparsity"),
    "H100-NVL": _tf32(835, 94, 3_900, "NVIDIA H100 datasheet, NVL, no sparsity"),
    "H200": _tf32(989, 141, 4_800, "NVIDIA H200 datasheet, SXM, no sparsity"),
    "GH200": _tf32(989, 96, 4_000, "NVIDIA GH200 datasheet, HBM3, no sparsity"),
    "B200": _tf32(2_250, 180, 8_000, "NVIDIA HGX B200 datasheet, one of eight, no sparsity"),
    "RTX2080Ti": _device(13.4, 53.8, 11, 616, "NVIDIA Turing whitepaper"),
    "RTX3050": _tf32(18.2, 8, 224, _GEFORCE),
    "RTX3060": _tf32(25.5, 12, 360, _GEFORCE),
    "RTX3060Ti": _tf32(32.4, 8, 448, _GEFORCE),
    "RTX3070": _tf32(40.6, 8, 448, _AMPERE),
    "RTX3070Ti": _tf32(43.5, 8, 608, _GEFORCE),
    "RTX3080": _tf32(59.5, 10, 760, _AMPERE),
    "RTX3080Ti": _tf32(68.2, 12, 912, _GEFORCE),
    "RTX3090": _tf32(71, 24, 936, _AMPERE),
    "RTX3090Ti": _tf32(80, 24, 1_008, _ADA),
    "RTX4060": _tf32(30.2, 8, 272, _GEFORCE),
    "RTX4060Ti": _tf32(44.1, 8, 288, _GEFORCE),
    "RTX4070": _tf32(58.3, 12, 504, _GEFORCE),
    "RTX4070Super": _tf32(70.9, 12, 504, _GEFORCE),
    "RTX4070Ti": _tf32(80.2, 12, 504, _GEFORCE),
    "RTX4070TiSuper": _tf32(88.2, 16, 672, _GEFORCE),
    "RTX4080": _tf32(97.5, 16, 717, _ADA),
    "RTX4080Super": _tf32(104.4, 16, 736, _GEFORCE),
    "RTX4090": _tf32(165, 24, 1_008, _ADA),
    "RTX5060": _tf32(38.4, 8, 448, _GEFORCE),
    "RTX5060Ti": _tf32(47.4, 16, 448, _GEFORCE),
    "RTX5070": _tf32(61.7, 12, 672, _BLACKWELL),
    "RTX5070Ti": _tf32(87.9, 16, 896, _BLACKWELL),
    "RTX5080": _tf32(112.6, 16, 960, _BLACKWELL),
    "RTX5090": _tf32(209.5, 32, 1_792, _BLACKWELL),
    "RTX3050-Laptop": _tf32(11, 4, 192, _LAPTOP),
    "RTX3060-Laptop": _tf32(22, 6, 336, _LAPTOP),
    "RTX3070-Laptop": _tf32(30, 8, 448, _LAPTOP),
    "RTX3080-Laptop": _tf32(36, 8, 448, _LAPTOP),
    "RTX4050-Laptop": _tf32(20, 6, 192, _LAPTOP),
    "RTX4060-Laptop": _tf32(24, 8, 256, _LAPTOP),
    "RTX4070-Laptop": _tf32(31, 8, 256, _LAPTOP),
    "RTX4080-Laptop": _tf32(54, 12, 432, _LAPTOP),
    "RTX4090-Laptop": _tf32(68, 16, 576, _LAPTOP),
    "RTX5060-Laptop": _tf32(27, 8, 384, _LAPTOP),
    "RTX5070-Laptop": _tf32(34, 8, 384, _LAPTOP),
    "RTX5080-Laptop": _tf32(58, 16, 896, _LAPTOP),
    "RTX5090-Laptop": _tf32(79, 24, 896, _LAPTOP),
    "M1": _apple(2.6, 16, 68, f"Apple's number; {_APPLE}"),
    "M1-Pro": _apple(5.2, 32, 200, f"Apple's number; {_APPLE}"),
    "M1-Max": _apple(10.4, 64, 400, f"Apple's number; {_APPLE}"),
    "M2": _apple(3.6, 24, 100, f"Apple's number; {_APPLE}"),
    "M2-Pro": _apple(6.8, 32, 200, _ABOUT),
    "M2-Max": _apple(13.6, 96, 400, _ABOUT),
    "M3": _apple(3.5, 24, 100, _ABOUT),
    "M3-Pro": _apple(6.4, 36, 150, _ABOUT),
    "M3-Max": _apple(14.1, 128, 400, _ABOUT),
    "M4": _apple(4.1, 32, 120, _ABOUT),
    "M4-Pro": _apple(8.1, 64, 273, _ABOUT),
    "M4-Max": _apple(16.2, 128, 546, _ABOUT),
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
    computers = r"macbook\s*(air|pro)?|mac\s*(mini|studio)|imac|gpu"
    return re.sub(rf"{computers}|{words}|[^a-z0-9]", "", name.lower())


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

    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name(device) if device == "cuda" else "CPU"
    known, memory = KNOWN.get(name_of(name) or ""), memory_of(device)
    if known:
        return known._replace(memory=memory, source=f"{name}: {known.source}")
    float32, mixed = (matmul_speed(precision, device) for precision in ("float32", "bf16"))
    if device == "cuda":  # with an unknown bandwidth: published speeds are 0.05 to 0.25 of the peak
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        measured = f"{name}, measured now"
        return Hardware(float32, mixed, memory, measured, reached=0.2, has_bf16=bf16)
    source = f"CPU, threads: {torch.get_num_threads()}, measured now"
    # Measured with tiny; ELECTRA-small reached 0.63, ModernBERT-small 0.71.
    faster = mixed > float32
    return Hardware(float32, mixed, memory, source, reached=0.55, has_cuda=False, has_bf16=faster)


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
