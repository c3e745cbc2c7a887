"""`electrify doctor`: report what this machine has, or with --gpu try whether training works."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from electrify import __version__
from electrify.config import AcceptsTextPaths
from electrify.diagnosis.devices import find_gpus, find_precision
from electrify.diagnosis.finding import MachineCheck, findings
from electrify.diagnosis.machine import find_contention, find_cpu, find_disk, find_hub, find_memory
from electrify.diagnosis.software import (
    find_imports,
    find_optional,
    find_python,
    find_required,
    missing_needs,
    pip_command,
)
from electrify.errors import EXIT_USER, UserError

SCHEMA = 1
"""Version of the JSON: fields may be added, but are not renamed or removed."""
SECTIONS: Mapping[str, Mapping[str, MachineCheck]] = {
    "software": {
        "Python": find_python,
        "packages": find_required,
        "imports": find_imports,
        "optional": find_optional,
    },
    "machine": {
        "CPU": find_cpu,
        "contention": find_contention,
        "memory": find_memory,
        "disk": find_disk,
    },
    "GPU": {"GPU": find_gpus, "precision": find_precision},
    "network": {"Hub": find_hub},
}


@dataclass(frozen=True)
class Doctor(AcceptsTextPaths):
    """Report versions, CPU, memory, disk, GPU, network, and what is missing for each command.

    The report names no user, host, home folder or token, so you can paste it into an issue. The
    exit code is 2 if a required package is missing; with --gpu, if a check failed.
    """

    gpu: bool = False
    """Also try training on the GPU, within ten minutes: a checklist to send back to us."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Device for --gpu; cpu tries the checklist itself on a machine without a GPU."""
    out: Path = Path("doctor-gpu")
    """Folder for the results of --gpu: doctor-gpu.json and doctor-gpu.txt."""


class Diagnosis(dict[str, Any]):
    """A report as plain JSON values, with the exit code of the command."""

    exit_code = 0


def doctor(settings: Doctor) -> Diagnosis:
    """Print the report, and with --gpu run the checklist; returns what was found."""
    if settings.gpu and settings.out.is_file():
        raise UserError(f"{settings.out} is a file", got=f"{settings.out}", fix="use a folder")
    report = diagnose()
    print(report_text(report), flush=True)
    if not settings.gpu or not report["usable"]:
        return report
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "no CUDA device is available",
            got="electrify doctor --gpu",
            fix="the report says why; --device cpu tries the checklist without a GPU",
        )
    from electrify.diagnosis.checklist import run_checklist

    result = Diagnosis(run_checklist(settings.device, settings.out, report))
    result.exit_code = 0 if result["passed"] else EXIT_USER
    return result


def diagnose() -> Diagnosis:
    """Run every check; none of them can fail, and together they take seconds."""
    found = [
        {"section": section, **finding._asdict()}
        for section, checks in SECTIONS.items()
        for finding in findings(checks)
    ]
    usable = all(finding["status"] != "missing" for finding in found)
    report = Diagnosis(
        schema=SCHEMA,
        electrify=__version__,
        usable=usable,
        findings=found,
        missing=missing_needs(),
    )
    report.exit_code = 0 if usable else EXIT_USER
    return report


def report_text(report: Mapping[str, Any]) -> str:
    """Return a report as aligned lines, for people."""
    found, lines = report["findings"], ["electrify doctor"]
    width = max(len(finding["name"]) for finding in found)
    for section in dict.fromkeys(finding["section"] for finding in found):
        lines += ["", section[0].upper() + section[1:]]
        for finding in found:
            if finding["section"] == section:
                lines.append(line(finding["status"], finding["name"], finding["value"], width))
                if finding["fix"]:
                    lines.append(line("", "", f"fix: {finding['fix']}", width))
    return "\n".join([*lines, "", "Commands", *_command_lines(report)])


def line(status: str, name: str, value: str, width: int) -> str:
    """Return a line of a report."""
    return f"  {status:<8} {name:<{width}}  {value}"


def _command_lines(report: Mapping[str, Any]) -> Iterable[str]:
    if not report["usable"]:
        names = [f["name"] for f in report["findings"] if f["status"] == "missing"]
        yield f"  missing  every command that trains: {', '.join(names)}; see the fixes above"
    for need in report["missing"]:
        commands = ", ".join(need["commands"])
        yield " ".join(filter(None, [f"  missing  {need['package']} for {commands}", need["when"]]))
    if extras := list(dict.fromkeys(need["extra"] for need in report["missing"])):
        yield f"  fix: {pip_command(extras)}"
    elif report["usable"]:
        yield "  ok       nothing is missing for any command"
