"""Check installed packages: what electrify requires, and what each command needs besides."""

import platform
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, NamedTuple

from electrify import __version__
from electrify.diagnosis.finding import Finding


class Need(NamedTuple):
    """An optional package, the extra that installs it, and the commands that need it."""

    package: str
    extra: str
    commands: tuple[str, ...]
    when: str = ""
    """The input or option for which the commands need it; empty: always."""


DASK_COMMANDS = ("corpus", "prepare", "glue", "suite", "probe")
NEEDS = (
    Need("pyarrow", "data", ("quickstart", "train", "corpus", "tokenizer", "prepare")),
    Need("pyarrow", "data", ("glue",), "for GLUE as `electrify data glue` downloads it"),
    Need("pyarrow", "data", ("show",), "for documents"),
    Need("pyarrow", "data", ("embed",), "for .parquet files"),
    Need("ftfy", "data", ("corpus",), "with --repair"),
    Need("zstandard", "data", ("corpus",), "for .zst files"),
    Need("matplotlib", "report", ("quickstart", "train", "report")),
    Need("optuna", "finetune", ("glue search",)),
    Need("seqeval", "finetune", ("finetune", "predict"), "for entities"),
    Need("sentence-transformers", "sentences", ("finetune",), "with --kind sentences"),
    Need("sentence-transformers", "sentences", ("export",), "with --sentence-transformers"),
    Need("onnx", "onnx", ("export",), "with --onnx"),
    Need("onnxruntime", "onnx", ("export",), "with --onnx"),
    Need("onnxscript", "onnx", ("export",), "with --onnx"),
    Need("tensorboard", "track", ("pretrain",), "with --track tensorboard"),
    Need("trackio", "track", ("pretrain",), "with --track trackio"),
    Need("wandb", "track", ("pretrain",), "with --track wandb"),
    Need("distributed", "cluster", DASK_COMMANDS, "with --workers ADDRESS"),
    Need("s3fs", "s3", ("pretrain",), "with --data s3://… or --upload s3://…"),
)


def installed(package: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def find_python() -> Iterator[Finding]:
    """Find the versions of electrify, Python and the system."""
    yield Finding("electrify", __version__)
    environment = "virtual environment" if sys.prefix != sys.base_prefix else "no environment"
    implementation = platform.python_implementation()
    yield Finding("Python", f"{platform.python_version()} ({implementation}, {environment})")
    yield Finding("system", platform.platform())


def find_required() -> Iterator[Finding]:
    """Find the packages that every installation of electrify has, and check their versions."""
    try:
        listed = requires("electrify") or []
    except PackageNotFoundError:
        fix = "install electrify with pip, in the environment that runs it"
        yield Finding("packages", "electrify is not installed; ranges are unknown", "warn", fix)
        return
    for requirement in listed:
        if ";" not in requirement:  # the others belong to extras
            yield _required(requirement)


def _required(requirement: str) -> Finding:
    name, bounds = re.fullmatch(r"([\w.-]+)(.*)", requirement.strip()).groups()  # type: ignore[union-attr]
    found, fix = installed(name), f'pip install "{requirement}"'
    if found is None:
        return Finding(name, "not installed", "missing", fix)
    if not _within(found, bounds):
        return Finding(name, f"{found}, needed: {bounds}", "missing", fix)
    return Finding(name, found)


def _within(found: str, bounds: str) -> bool:
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError:  # transformers, which brings it, is reported as missing
        return True
    return SpecifierSet(bounds).contains(found, prereleases=True)


def find_imports() -> Iterator[Finding]:
    """Find large packages that are installed but cannot be imported."""
    for name in ("torch", "transformers"):
        if installed(name) is not None:
            try:
                import_module(name)
            except Exception as error:  # a missing library is an OSError
                first = str(error).partition("\n")[0]
                fix = f"pip install --force-reinstall {name}"
                yield Finding(f"import {name}", first, "missing", fix)


def find_optional() -> Iterator[Finding]:
    """Find the optional packages that are installed."""
    packages = {need.package: installed(need.package) for need in NEEDS}
    yield Finding("optional", ", ".join(f"{n} {v}" for n, v in packages.items() if v) or "none")


def missing_needs() -> list[dict[str, Any]]:
    """Return the optional packages that are missing, with the commands that need them."""
    return [
        {**need._asdict(), "commands": list(need.commands), "fix": pip_command([need.extra])}
        for need in NEEDS
        if installed(need.package) is None
    ]


def pip_command(extras: list[str]) -> str:
    """Return the command that installs extras.

    >>> pip_command(["data", "report"])
    'pip install "electrify[data,report]"'
    """
    return f'pip install "electrify[{",".join(extras)}]"'
