"""Pretend that there is a CUDA device, so that whole updates can be traced without one.

Import this before torch. A trace shows that devices, dtypes and shapes fit together, and where the
host would have to wait for the GPU. It shows nothing about values, kernels or speed.
"""

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("pretended_cuda.cpp")
COMPILER = shutil.which(os.environ.get("CXX", "c++"))


def compiled() -> Path:
    """Compile the pretended backend, once per installation of torch; returns the library."""
    torch = Path(importlib.util.find_spec("torch").origin).parent
    key = SOURCE.read_bytes() + (torch / "version.py").read_bytes() + str(torch).encode()
    name = f"electrify-pretended-cuda-{hashlib.sha256(key).hexdigest()[:16]}.so"
    library = Path(tempfile.gettempdir()) / f"{os.getuid()}-{name}"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}.tmp")
        include, lib = torch / "include", torch / "lib"
        flags = ["-shared", "-fPIC", "-O0", "-w", "-std=c++20", f"-I{include}"]
        links = [f"-L{lib}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{lib}"]
        command = [COMPILER, *flags, str(SOURCE), "-o", str(made), *links]
        subprocess.run(command, check=True, capture_output=True, text=True)
        made.replace(library)
    return library


assert "torch" not in sys.modules, "torch remembers the first answer to whether there is CUDA"
ctypes.CDLL(str(compiled()), mode=ctypes.RTLD_GLOBAL)
