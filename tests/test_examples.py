"""The files of `examples/`: their syntax, and the SLURM script under stand-ins for SLURM."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import yaml

from electrify.training import checkpoint
from tests.training.conftest import RECIPE

EXAMPLES = Path(__file__).parents[1] / "examples"
SLURM = EXAMPLES / "slurm" / "pretrain.sbatch"
KUBERNETES = EXAMPLES / "kubernetes" / "pytorchjob.yaml"
SKYPILOT = EXAMPLES / "skypilot" / "pretrain.yaml"

# Runs a script; signals its shell, and only that, in the first jobs, when $WATCHED has grown.
SBATCH = """
import os, pathlib, signal, subprocess, sys, time
watched, requeued = pathlib.Path(os.environ["WATCHED"]), pathlib.Path("requeued")
size = lambda: watched.stat().st_size if watched.exists() else 0
for job in range(10):
    before, end = size(), time.monotonic() + 120
    shell = subprocess.Popen(["bash", sys.argv[1]], start_new_session=True)
    while shell.poll() is None and job < int(os.environ["SIGNALS"]):
        if size() > before:
            shell.send_signal(signal.SIGUSR1)
            break
        assert time.monotonic() < end
        time.sleep(0.01)
    code = shell.wait(timeout=120)
    if len(requeued.read_text().split() if requeued.exists() else []) == job:
        sys.exit(code)
"""
SCONTROL = """
import os, pathlib, sys
if sys.argv[1:] == ["show", "hostnames", "node[1-2]"]:
    print("localhost")
    print("localhost")
else:
    assert sys.argv[1:] == ["requeue", os.environ["SLURM_JOB_ID"]]
    with pathlib.Path("requeued").open("a") as file:
        file.write("requeued ")
"""
# One task per node. A signal is forwarded to the tasks, not to the processes that they start.
SRUN = """
import os, signal, subprocess, sys, time
assert sys.argv[1] == "--kill-on-bad-exit=1"
tasks = []
signal.signal(signal.SIGUSR1, lambda number, frame: [task.send_signal(number) for task in tasks])
for node in range(int(os.environ["SLURM_JOB_NUM_NODES"])):
    environment = {**os.environ, "SLURMD_NODENAME": "localhost", "SLURM_NODEID": str(node)}
    tasks.append(subprocess.Popen(sys.argv[2:], env=environment, start_new_session=True))
while any(task.poll() is None for task in tasks):
    if any(task.poll() for task in tasks):
        [task.terminate() for task in tasks]
    time.sleep(0.02)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Python resets its own handlers while it exits
sys.exit(max(task.returncode % 256 for task in tasks))
"""
TORCHRUN = """
import os, sys
os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *sys.argv[1:]])
"""
# A process in a session of its own, like torchrun's; it ends with $CODE, or $SAVED after a signal.
PRETENDED_TORCHRUN = """
import os, subprocess, sys
training = '''
import os, pathlib, signal, sys, time
signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit(int(os.environ["SAVED"])))
with pathlib.Path(os.environ["WATCHED"]).open("a") as file:
    file.write("step\\\\n")
jobs = len(pathlib.Path("requeued").read_text().split()) if pathlib.Path("requeued").exists() else 0
while jobs < int(os.environ["SIGNALS"]):
    time.sleep(0.01)
sys.exit(int(os.environ["CODE"]))
'''
done = subprocess.run([sys.executable, "-c", training], start_new_session=True)
sys.exit(done.returncode and 1)
"""
QUICK_SLEEP = """
import time
time.sleep(0.1)
"""


def install(folder: Path, **programs: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in programs.items():
        (folder / name).write_text(f"#!{sys.executable}\n{source}")
        (folder / name).chmod(0o755)
    return folder


def edited(script: Path, **settings: object) -> str:
    """The script after its settings were edited as its comments say."""
    text = script.read_text()
    for name, value in settings.items():
        text, count = re.subn(rf"^{name}=\S+", f"{name}={value}", text, flags=re.MULTILINE)
        assert count == 1, name
    return text


def free_job() -> int:
    """A job number whose port is free."""
    rng = Random()
    while True:
        job = rng.randrange(10_000)
        with socket.socket() as listener:
            try:
                listener.bind(("", 20_000 + job))
            except OSError:
                continue
            return job


def submit(
    folder: Path, *, torchrun: str, signals: int, nodes: int, flags: str = "", **environment: str
) -> tuple[int, int, str]:
    """Submit the SLURM script; returns its exit code, how often it was requeued, and its log."""
    bin_folder = install(
        folder / "bin", sbatch=SBATCH, srun=SRUN, scontrol=SCONTROL, sleep=QUICK_SLEEP
    )
    install(folder / "venv" / "bin", torchrun=torchrun)
    settings = {"RECIPE": folder / "small.toml", "RUN": folder / "run", "FLAGS": f"({flags})"}
    settings |= {"ENVIRONMENT": folder / "venv", "DATA": environment.pop("DATA", "shards")}
    (folder / "small.toml").write_text(RECIPE)
    (folder / "pretrain.sbatch").write_text(edited(SLURM, **settings))
    slurm = {
        "SLURM_JOB_ID": str(free_job()),
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "WATCHED": str(folder / "run" / "metrics.jsonl"),
        "SIGNALS": str(signals),
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["sbatch", "pretrain.sbatch"],
        cwd=folder,
        env={**os.environ, **slurm, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    requeued = folder / "requeued"
    count = len(requeued.read_text().split()) if requeued.exists() else 0
    return done.returncode, count, done.stdout


def test_the_files_parse():
    subprocess.run(["bash", "-n", SLURM], check=True)
    pods = yaml.safe_load(KUBERNETES.read_text())["spec"]["pytorchReplicaSpecs"]
    task = yaml.safe_load(SKYPILOT.read_text())
    for script in (*map(container_script, pods.values()), task["setup"], task["run"]):
        subprocess.run(["bash", "-n", "-c", script], check=True)


def container_script(pod: dict) -> str:
    (container,) = pod["template"]["spec"]["containers"]
    assert container["command"] == ["bash", "-c"]
    return container["args"][0]


def test_the_slurm_job_is_signalled_and_may_be_requeued():
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", SLURM.read_text(), re.MULTILINE)
    wanted = {"signal": "B:USR1@300", "requeue": "", "open-mode": "append", "time": "24:00:00"}
    assert wanted.items() <= dict(options).items()


def test_the_images_are_pinned_and_not_of_root():
    text = (EXAMPLES / "docker" / "Dockerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert [stage.split()[:3:2] for stage in stages] == [
        ["python:3.12-slim", "base"],
        ["base", "cpu"],
        ["base", "cuda"],
    ]
    for stage in stages[1:]:
        assert "--constraint constraints.txt" in stage
        assert "\nUSER trainer\n" in stage
    for source in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
        assert all((EXAMPLES.parent / name).exists() for name in source.split())


@pytest.mark.parametrize(
    ("signals", "saved", "code", "fails", "requeued"),
    [
        (0, 0, 0, False, 0),  # trained to the last step
        (0, 0, 3, True, 0),  # an error
        (3, 0, 0, False, 3),  # three time limits, then trained to the last step
        (1, 0, 3, True, 1),  # an error in the second job
        (1, 4, 0, True, 0),  # an error instead of a save
    ],
)
def test_only_a_saved_run_is_requeued(signals, saved, code, fails, requeued, tmp_path):
    (tmp_path / "run").mkdir()
    codes = {"SAVED": str(saved), "CODE": str(code)}
    jobs = submit(tmp_path, torchrun=PRETENDED_TORCHRUN, signals=signals, nodes=2, **codes)
    # Which code depends on which task fails first: the others are killed.
    assert (jobs[0] != 0, jobs[1]) == (fails, requeued), jobs[2]


# --- with real training


def train(folder: Path, shards: Path, *, signals: int, nodes: int) -> Path:
    """Train on pretended nodes of one process each, on the CPU."""
    folder.mkdir()
    flags = "--run.steps 120 --device cpu"
    here = {"DATA": str(shards), "CUDA_VISIBLE_DEVICES": ""}
    code, requeued, log = submit(
        folder, torchrun=TORCHRUN, signals=signals, nodes=nodes, flags=flags, **here
    )
    assert (code, requeued) == (0, signals), log
    assert log.count("(SIGUSR1) and saved") == signals, log
    assert log.count("done: 120 steps") == 1, log
    return folder / "run"


def weights(run: Path) -> dict[str, bytes]:
    newest = checkpoint.stored(run / "checkpoints")[0]
    assert newest.step == 120
    found = {path.name: path.read_bytes() for path in newest.folder.glob("*.safetensors")}
    assert found
    return found


def numbers(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if isinstance(v, int | float)} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_signalled_and_requeued_three_times_it_ends_with_the_same_bytes(nodes, shards, tmp_path):
    alone = train(tmp_path / "alone", shards, signals=0, nodes=nodes)
    stopped = train(tmp_path / "stopped", shards, signals=3, nodes=nodes)
    assert weights(stopped) == weights(alone)
    if nodes == 1:
        assert (stopped / "metrics.jsonl").read_bytes() == (alone / "metrics.jsonl").read_bytes()
    else:  # the sums of an interval that was cut in two are in another order
        assert numbers(stopped) == [pytest.approx(line, rel=1e-9) for line in numbers(alone)]


@pytest.mark.slow
def test_the_other_examples_fail_unless_the_run_is_at_its_last_step(nursery, shards, tmp_path):
    """With exit code 0, Kubernetes and SkyPilot would not start a stopped run again."""
    run, recipe = tmp_path / "run", tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", 20)
    assert nursery.run(*command, log=tmp_path / "log") == 0
    python = "import os, sys\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    programs = install(tmp_path / "bin", torchrun="", python=python)
    sky = ("NODE_IPS", "NUM_NODES", "NUM_GPUS_PER_NODE")
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        **{"RECIPE": "tiny", "DATA": "shards", "RUN": str(run)},
        **{"SKYPILOT_NODE_RANK": "0", **{f"SKYPILOT_{name}": "1" for name in sky}},
    }
    pods = yaml.safe_load(KUBERNETES.read_text())["spec"]["pytorchReplicaSpecs"]
    scripts = [container_script(pods["Master"]), yaml.safe_load(SKYPILOT.read_text())["run"]]

    def codes() -> list[int]:
        every = [subprocess.run(["bash", "-c", script], env=environment) for script in scripts]
        return [done.returncode for done in every]

    assert codes() == [0, 0]
    (run / "checkpoints" / "step-00000020").rename(tmp_path / "last")
    assert codes() == [1, 1]
