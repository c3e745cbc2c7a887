"""Run a command in this process and write what it used: `python -m electrify.diagnosis.child`.

python -m electrify.diagnosis.child memory RESULT.json pretrain …
python -m electrify.diagnosis.child kernels RESULT.json pretrain …
"""

import json
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from electrify.training import pretrain  # noqa: F401  so that importing it is not measured
from electrify.training.screen import peak_memory


class AttentionKernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the attention kernels that torch chooses in the forward pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name.startswith("_scaled_dot_product") and not name.endswith("_backward"):
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))


def run_command(arguments: list[str]) -> int:
    """Do what `python -m electrify` does, and return the exit code."""
    sys.argv = ["electrify", *arguments]
    try:
        runpy.run_module("electrify", run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else bool(end.code)
    return 0


def run_measured(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a command; returns its exit code and the bytes it used: on the GPU, or grown by."""
    before = peak_memory(torch.device("cpu"))
    code = run_command(arguments)
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return code, {"bytes": peak_memory(torch.device("cpu")) - before}
    free, total = torch.cuda.mem_get_info()
    return code, {
        "bytes": peak_memory(torch.device("cuda")),
        "reserved": torch.cuda.max_memory_reserved(),
        "used on the device": total - free,
    }


def run_counted(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Run a command; returns its exit code and how often each attention kernel was chosen."""
    with AttentionKernels() as kernels:
        code = run_command(arguments)
    return code, dict(kernels.counts)


CHILD_PROBES = {"memory": run_measured, "kernels": run_counted}


if __name__ == "__main__":
    probe, result, *command = sys.argv[1:]
    exit_code, found = CHILD_PROBES[probe](command)
    Path(result).write_text(json.dumps(found))
    sys.exit(exit_code)
