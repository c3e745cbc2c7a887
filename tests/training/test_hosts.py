"""Two hosts, each in its own network namespace, train together through torchrun's rendezvous."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.training.nursery import wait_for

from electrify.training import checkpoint

pytestmark = pytest.mark.slow
HOSTS = {"electrify-a": "10.77.0.1", "electrify-b": "10.77.0.2"}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[None]:
    one, two = HOSTS
    try:
        for host in HOSTS:
            ip("netns", "add", host)
        ip("link", "add", "elec-a", "type", "veth", "peer", "name", "elec-b")
        for host, link in zip(HOSTS, ("elec-a", "elec-b"), strict=True):
            ip("link", "set", link, "netns", host)
            ip("-n", host, "addr", "add", f"{HOSTS[host]}/24", "dev", link)
            ip("-n", host, "link", "set", link, "up")
            ip("-n", host, "link", "set", "lo", "up")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield
    for host in (one, two):
        subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def start(host: str, log: Path, *arguments: object) -> subprocess.Popen[bytes]:
    link = "elec-a" if host.endswith("a") else "elec-b"
    first = HOSTS["electrify-a"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    torchrun += ["--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "run"]
    torchrun += ["--rdzv-endpoint", f"{first}:29571", "--local-addr", HOSTS[host]]
    torchrun += ["--rdzv-conf", f"is_host={int(HOSTS[host] == first)}"]
    with log.open("ab") as file:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, *torchrun, "-m", "electrify", *map(str, arguments)],
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": link},
        )


def test_two_hosts_train_and_one_that_dies_comes_back(hosts, recipe, shards, tmp_path):
    run = tmp_path / "run"
    steps = 2_000
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.steps", steps)
    command += ("--run.save-every", 20, "--device", "cpu", "--run.eval-every", 0)
    both = [start(host, tmp_path / f"{host}.log", *command) for host in HOSTS]
    wait_for(run / "checkpoints" / "step-00000040" / "manifest.json")
    os.killpg(both[1].pid, signal.SIGKILL)
    both[0].terminate()
    both[0].wait(timeout=90)
    reached = checkpoint.newest(run / "checkpoints", print)
    assert reached is not None
    assert reached.step >= 40
    again = [start(host, tmp_path / f"{host}.log", *command) for host in HOSTS]
    begin = time.monotonic()
    while checkpoint.newest(run / "checkpoints", print).step <= reached.step + 40:
        assert time.monotonic() - begin < 120, (tmp_path / "electrify-a.log").read_text()[-2000:]
        time.sleep(0.5)
    for process in again:
        os.killpg(process.pid, signal.SIGKILL)
    said = (tmp_path / "electrify-a.log").read_text() + (tmp_path / "electrify-b.log").read_text()
    assert "resuming from step" in said
