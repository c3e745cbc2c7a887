"""The lines of the README that install electrify, with stand-ins for its packages and without a network."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = re.findall(r"^pip install .+$", (ROOT / "README.md").read_text(), re.MULTILINE)
(TORCH,) = re.findall(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def pinned() -> dict[str, str]:
    """The versions of constraints.txt, by the names of pyproject.toml."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line.partition("==") for line in lines if "==" in line]
    return {name.lower().replace("_", "-"): version for name, _, version in pins}


def make_wheel(folder: Path, name: str, version: str, requires: str = "") -> Path:
    """Write a wheel with nothing but metadata."""
    name = name.replace("-", "_")
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    needed = f"Requires-Dist: {requires}\n" if requires else ""
    with ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> Path:
    """Wheels by name, as a registry has them: torch is the CUDA build."""
    folder = tmp_path_factory.mktemp("registry")
    extras = PROJECT["optional-dependencies"]
    for line in [*PROJECT["dependencies"], *extras["data"], *extras["report"]]:
        name = Requirement(line).name.replace("_", "-")
        if name != "torch":
            make_wheel(folder, name, pinned()[name])
    make_wheel(folder, "torch", TORCH, requires="nvidia-cudnn")
    make_wheel(folder, "nvidia-cudnn", "9.0")
    return folder


def chosen(line: str, registry: Path, tmp_path: Path) -> dict[str, str]:
    """The packages that pip would install by a line of the README, in a new environment."""
    report = tmp_path / "report.json"
    offline = (
        f"--dry-run --ignore-installed --no-build-isolation --no-index --find-links {registry}"
    )
    line = line.replace("-e ", "")  # hatchling would need one more package
    command = line.replace("pip", f"{sys.executable} -m pip --isolated", 1)
    done = subprocess.run(
        f"{command} {offline} --report {report}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {one["name"].replace("_", "-"): one["version"] for one in found}


def test_a_gpu_gets_cuda_and_a_cpu_the_wheel_that_is_named(registry, tmp_path):
    default, cpu = LINES
    packages = chosen(default, registry, tmp_path)
    assert (packages["torch"], packages["nvidia-cudnn"]) == (TORCH, "9.0")
    assert {"electrify", "transformers", "pyarrow", "matplotlib"} <= packages.keys()

    make_wheel(tmp_path, "torch", f"{TORCH}+cpu")
    assert f" torch-{TORCH}+cpu-*.whl " in cpu
    packages.pop("nvidia-cudnn")
    cpu = cpu.replace(" torch-", f" {tmp_path}/torch-")
    assert chosen(cpu, registry, tmp_path) == packages | {"torch": f"{TORCH}+cpu"}
