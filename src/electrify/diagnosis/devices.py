"""Check GPUs: devices, driver, bfloat16, flash attention, NCCL; and choose a precision."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from electrify.diagnosis.finding import Finding
from electrify.planning.hardware import bytes_text, name_of

DRIVER_FILE = Path("/proc/driver/nvidia/version")
SMI_SECONDS = 5.0
FLASH_CAPABILITY = (8, 0)  # Ampere
GET_STARTED = "install the CUDA build of torch: PyTorch's Get Started page has the command"


def find_gpus() -> Iterator[Finding]:
    """Find the GPUs and what they support; if torch sees none, why."""
    import torch

    driver = nvidia_driver()
    if not torch.cuda.is_available():
        yield _no_gpu(driver, torch.version.cuda, torch.backends.mps.is_available())
        return
    for index in range(torch.cuda.device_count()):
        name, (major, minor) = (
            torch.cuda.get_device_name(index),
            torch.cuda.get_device_capability(index),
        )
        free, total = torch.cuda.mem_get_info(index)
        known = name_of(name)
        planned = f"`plan` knows it as {known}" if known else "`plan` measures it"
        memory = f"{bytes_text(free)} of {bytes_text(total)} free"
        yield Finding(f"GPU {index}", f"{name}, {memory}, capability {major}.{minor}; {planned}")
    runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    yield Finding("driver", f"{driver or 'unknown'}; torch for {runtime}, cuDNN {cudnn}")
    if torch.cuda.is_bf16_supported(including_emulation=False):
        yield Finding("bfloat16", "supported")
    else:
        fix = "use --run.precision fp16, which `auto` never chooses"
        yield Finding("bfloat16", "not supported by this GPU", "warn", fix)
    enabled = torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
    yield _flash(torch.cuda.get_device_capability(), enabled)
    yield _nccl()


def _no_gpu(driver: str, built_for: str | None, mps: bool) -> Finding:
    """Explain why torch sees no GPU.

    >>> _no_gpu("550.54.14", None, False).value
    'driver 550.54.14, but torch is a CPU build'
    >>> _no_gpu("", None, False).value
    'none; training runs on the CPU'
    """
    if driver and built_for is None:
        return Finding("GPU", f"driver {driver}, but torch is a CPU build", "warn", GET_STARTED)
    if driver:
        fix = "check `nvidia-smi` and CUDA_VISIBLE_DEVICES; a newer CUDA needs a newer driver"
        value = f"driver {driver}, but torch for CUDA {built_for} finds no device"
        return Finding("GPU", value, "warn", fix)
    why = "; MPS lacks float64" if mps else ""
    return Finding("GPU", f"none; training runs on the CPU{why}")


def _flash(capability: tuple[int, int], enabled: bool) -> Finding:
    if capability < FLASH_CAPABILITY:
        return Finding("flash attention", "not supported by this GPU: it needs capability 8.0")
    if not enabled:
        fix = "call torch.backends.cuda.enable_flash_sdp(True)"
        return Finding("flash attention", "disabled in torch", "warn", fix)
    return Finding("flash attention", "supported, in 16 bits for batches without padding")


def _nccl() -> Finding:
    import torch

    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        return Finding("NCCL", ".".join(map(str, version)))
    fix = f"several GPUs need it; {GET_STARTED}"
    return Finding("NCCL", "not part of this torch", "warn", fix)


def nvidia_driver() -> str:
    """Return the version of the NVIDIA driver; empty if there is none."""
    with suppress(OSError):
        found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", DRIVER_FILE.read_text())
        if found:
            return found[0]
    if program := shutil.which("nvidia-smi"):
        command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS)
            if done.returncode == 0 and done.stdout.strip():
                return done.stdout.split()[0]
    return ""


def find_precision() -> Finding:
    """Find which precision `run.precision = "auto"` chooses, by timing matmuls."""
    import torch

    from electrify.training.precision import choose_precision

    choice = choose_precision("auto", "cuda" if torch.cuda.is_available() else "cpu")
    return Finding("precision", f"{choice.precision} ({choice.reason})")
