"""What the devices decide in fine-tuning: the precision, and how many runs there are at a time.

On a CPU "auto" is float32, also where bfloat16 would be faster: scores do not depend on the model
of the CPU, and are those of all earlier results. Every results folder records its precision, and
keeps it.
"""

import os
from pathlib import Path

import torch

from electrify.errors import UserError
from electrify.storage.commit import flat, read_json
from electrify.training.precision import Asked, MatmulPrecision, choose_precision

# Of `glue`, `suite`, `probe` and `glue search`.
_JOBS = ("jobs/*", "jobs/*/*", "step-*/jobs/*", "trials/*/jobs/*")
_RECORDS = (
    "manifest.json",
    ".parts/settings.json",
    *(f"{job}/{name}.json" for job in _JOBS for name in ("identity", "result")),
)
"""Files with the settings of a results folder, finished or not."""


def visible_gpus(device: str) -> list[str]:
    """Return the GPUs that runs on a device may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count() if device_type(device) == "cuda" else 0
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = named.split(",") if named else [f"{number}" for number in range(count)]
    return [name.strip() for name in names[:count]]


def worker_count(workers: int | str | None, device: str) -> int | str:
    """Return the number of runs at a time, by default one for each GPU or one on the CPU.

    The address of a Dask scheduler is returned as it is.
    """
    return max(1, len(visible_gpus(device))) if workers is None else workers


def device_type(device: str) -> str:
    """Return the type of a device; "auto" is CUDA if available, as in `Engine`."""
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def finetuning_precision(asked: Asked, device: str) -> MatmulPrecision:
    """Return the requested precision; for "auto", bf16 on a GPU that has it and else float32."""
    if asked != "auto":
        return asked
    if device_type(device) == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16"
    return "float32"


def settle_precision(asked: Asked, device: str, out: Path) -> MatmulPrecision:
    """Return the precision of a results folder, and print it.

    A folder that has results keeps their precision, unless another one is requested.
    """
    recorded = recorded_precision(out) if asked == "auto" else None
    precision = recorded or finetuning_precision(asked, device)
    where = "GPU" if device_type(device) == "cuda" else "CPU"
    print(f"precision: {precision}, on a {where}", flush=True)
    return precision


def recorded_precision(out: Path) -> MatmulPrecision | None:
    """Return the precision that a results folder was started with; None for a new folder."""
    paths = (path for pattern in _RECORDS for path in sorted(out.glob(pattern)))
    settings = (item for path in paths for item in flat(read_json(path)).items())
    found = sorted({value for name, value in settings if name.endswith("fit.precision")})
    if len(found) > 1:
        raise UserError(
            f"{out} has results of several precisions",
            got=", ".join(found),
            fix="choose one with --precision",
        )
    return found[0] if found else None


def prediction_precision(trained: Asked, device: str) -> MatmulPrecision:
    """Return the precision of training, unless this device is clearly slower in it."""
    precision = finetuning_precision(trained, device)
    if precision == "float32" or choose_precision(precision, device_type(device)).slow:
        return "float32"
    return precision
