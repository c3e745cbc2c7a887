"""`electrify doctor`: a report that never fails, names nobody, and says what to install."""

import ast
import getpass
import json
import os
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest
import torch

import electrify
from electrify.cli import COMMANDS, main
from electrify.diagnosis import devices, machine, software
from electrify.diagnosis.command import SECTIONS, diagnose, report_text
from electrify.diagnosis.finding import Finding, anonymous, findings
from electrify.diagnosis.software import NEEDS
from electrify.training.tracking import TRACKERS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def absent(monkeypatch):
    """Make packages look as if they were not installed."""

    def absent(*names: str) -> None:
        installed = software.installed
        monkeypatch.setattr(software, "installed", lambda n: None if n in names else installed(n))

    return absent


def named(report: dict) -> dict[str, dict]:
    return {finding["name"]: finding for finding in report["findings"]}


def test_the_command_prints_json_that_names_nobody(tmp_path):
    import subprocess

    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "electrify", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == ["schema", "electrify", "usable", "findings", "missing"]
    assert report["schema"] == 1
    assert report["usable"] is True
    assert {finding["section"] for finding in report["findings"]} == set(SECTIONS)
    for finding in report["findings"]:
        assert list(finding) == ["section", "name", "value", "status", "fix"]
        assert finding["status"] in ("ok", "warn", "missing")
        assert "could not be checked" not in finding["value"]
    assert {"torch", "CPU", "threads", "contention", "memory", "disk", "GPU", "Hub"} <= {
        *named(report)
    }
    assert "HF_HUB_OFFLINE" in named(report)["Hub"]["value"]
    assert "precision" in done.stderr  # the same report, for people
    for secret in (str(tmp_path), str(Path.cwd())):
        assert secret not in done.stdout + done.stderr


def test_the_python_function_returns_the_report(capsys):
    report = electrify.doctor()
    assert report["usable"]
    assert capsys.readouterr().out == report_text(report) + "\n"


def test_a_missing_extra_names_its_commands_and_how_to_install_it(absent, capsys):
    absent("matplotlib", "optuna")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "missing  matplotlib for quickstart, train, report\n" in shown
    assert "missing  optuna for glue search\n" in shown
    assert "report" in shown.splitlines()[-1]
    assert shown.splitlines()[-1].startswith('  fix: pip install "electrify[')
    row = next(row for row in diagnose()["missing"] if row["package"] == "matplotlib")
    assert row["fix"] == 'pip install "electrify[report]"'


def test_without_torch_there_is_a_report_and_exit_code_2(absent, monkeypatch, capsys):
    absent("torch")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["doctor"]) == 2
    shown = capsys.readouterr().out
    assert 'fix: pip install "torch>=' in shown
    assert "every command that trains: torch" in shown
    assert "memory " in shown


def test_a_torch_that_cannot_be_imported_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    report = diagnose()
    assert report.exit_code == 2
    assert named(report)["import torch"]["status"] == "missing"


def test_a_package_that_is_too_old_is_missing(monkeypatch):
    monkeypatch.setattr(software, "installed", lambda name: "0.0.1")
    found = {finding.name: finding for finding in software.find_required()}
    assert found["transformers"].status == "missing"
    assert found["transformers"].fix.startswith('pip install "transformers')


def test_without_metadata_ranges_are_unknown(monkeypatch):
    def requires(name: str) -> list[str]:
        raise software.PackageNotFoundError(name)

    monkeypatch.setattr(software, "requires", requires)
    assert [finding.status for finding in software.find_required()] == ["warn"]


def test_the_table_of_needs_has_every_optional_import():
    """What `needs` asks for in the source, with the extras of pyproject.toml."""
    listed = {(need.package, need.extra) for need in NEEDS}
    asked = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "needs":
                extra = next(word.value.value for word in node.keywords if word.arg == "extra")
                name = node.args[0]
                name = name.values[0] if isinstance(name, ast.JoinedStr) else name
                asked.add((name.value.partition(".")[0].replace("_", "-"), extra))
    several = {(name, extras) for name, extras in asked if "," in extras}
    for name, extras in several:  # of commands with several stages
        assert listed & {(name, extra) for extra in extras.split(",")}
    remote = {("s3fs", "s3")}
    assert (asked - several) | remote | {(name, "track") for name in TRACKERS} == listed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in listed:
        assert any(line.startswith(package) for line in project["optional-dependencies"][extra])
    assert {command for need in NEEDS for command in need.commands} <= set(COMMANDS)


def test_a_check_that_fails_is_a_finding():
    def broken() -> Finding:
        raise OSError("libcudart.so.12: cannot open /home/ann/lib")

    (found,) = findings({"GPU": broken})
    assert (found.name, found.status) == ("GPU", "warn")
    assert found.value == "could not be checked: OSError('libcudart.so.12: cannot open ~/lib')"


def test_names_and_tokens_are_left_out(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "jdoe")
    monkeypatch.setattr(Path, "home", lambda: Path("/scratch/jdoe"))
    text = "/scratch/jdoe/x, /data/jdoe/y, hf_ABCDEFGHIJKLMN, https://jdoe:secret@proxy:3128"
    assert anonymous(text) == "~/x, /data/USER/y, hf_…, https://proxy:3128"


@pytest.mark.parametrize(
    ("contents", "quota"),
    [(["150000 100000\n"], 1.5), (["max 100000\n"], None), (["-1", "100000"], None), ([], None)],
)
def test_the_cpu_time_that_a_container_may_use(monkeypatch, tmp_path, contents, quota):
    paths = tuple(tmp_path / str(number) for number in range(max(1, len(contents))))
    for path, content in zip(paths, contents, strict=False):
        path.write_text(content)
    monkeypatch.setattr(machine, "CPU_QUOTAS", (paths,))
    assert machine.cpu_quota() == quota


def test_a_busy_machine_is_a_warning(monkeypatch):
    assert 0 < machine.share_of_cores(2, 0.02) <= 1
    monkeypatch.setattr(machine, "share_of_cores", lambda cores: 0.4)
    assert machine.find_contention().status == "warn"


class _Answer(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_whether_the_hub_answers(monkeypatch):
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://me:hidden@127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        assert machine.find_hub().value.startswith("127.0.0.1 answers")
        server.shutdown()
    found = machine.find_hub()
    assert found.status == "warn"
    assert "hidden" not in found.value
    assert "cannot be reached" in found.value


def test_two_gpus(monkeypatch):
    for name, value in {
        "is_available": True,
        "device_count": 2,
        "get_device_name": "NVIDIA A100-SXM4-80GB",
        "get_device_capability": (8, 0),
        "mem_get_info": (79_000_000_000, 80_000_000_000),
        "is_bf16_supported": True,
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *a, value=value, **k: value)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(devices, "nvidia_driver", lambda: "550.54.14")
    found = {finding.name: finding for finding in findings({"GPU": devices.find_gpus})}
    assert "80.0 GB free, capability 8.0; `plan` knows it as A100-80GB" in found["GPU 1"].value
    assert found["driver"].value.startswith("550.54.14; torch for CUDA")
    assert found["NCCL"].value == "2.27.3"
    assert {finding.status for finding in found.values()} == {"ok"}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *a: (7, 0))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **k: False)
    found = {finding.name: finding for finding in findings({"GPU": devices.find_gpus})}
    assert "fp16" in found["bfloat16"].fix
    assert "not supported" in found["flash attention"].value


def test_the_driver_is_read_from_the_kernel(monkeypatch, tmp_path):
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\n")
    monkeypatch.setattr(devices, "DRIVER_FILE", version)
    assert devices.nvidia_driver() == "550.54.14"
