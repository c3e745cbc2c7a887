"""Jobs in this process, in a pool and on a Dask cluster."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from electrify.errors import UserError
from electrify.jobs import executor, in_order


def square(number: int) -> int:
    return number * number


def die(number: int) -> int:
    os._exit(9)


@pytest.mark.parametrize("workers", [1, 2, "2"])
def test_results_come_in_order(workers):
    with executor(workers) as pool:
        assert list(in_order(square, range(20), pool, ahead=3)) == [n * n for n in range(20)]


def gpu_seen(folder: Path) -> str:
    """Return the GPU of a worker, once as many as there are GPUs have started."""
    (folder / f"{os.getpid()}").touch()
    wait_until(lambda: len(list(folder.iterdir())) == 3)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def wait_until(condition, seconds: float = 60) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds
        time.sleep(0.01)


def test_every_worker_sees_one_gpu_and_more_workers_share_them(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with executor(3, gpus=["4", "7"]) as pool:
        seen = list(in_order(gpu_seen, [tmp_path] * 3, pool, ahead=3))
    assert sorted(seen) == ["4", "4", "7"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,7"


def test_the_number_of_pending_jobs_is_limited():
    started = 0

    def jobs():
        nonlocal started
        for number in range(100):
            started = number + 1
            yield number

    class Slow(Executor):
        def submit(self, fn, /, *args):
            future = Future()
            pending.append((future, fn, args))
            if len(pending) == 4:  # the first job finishes only when four are pending
                first, function, arguments = pending[0]
                first.set_result(function(*arguments))
            return future

    pending = []
    assert next(in_order(square, jobs(), Slow(), ahead=4)) == 0
    assert started == 4


def test_a_result_is_yielded_as_soon_as_it_is_ready():
    started = []
    with executor(1) as pool:
        results = in_order(square, (started.append(n) or n for n in range(9)), pool, ahead=8)
        next(results)
        assert started == [0]
        results.close()


INTERRUPTED = """
import sys, time
from electrify.jobs import executor, in_order
with executor(2) as pool:
    print("ready", flush=True)
    list(in_order(time.sleep, [60] * 4, pool, ahead=4))
"""


@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_a_second_interrupt_ends_immediately(gap):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    process.stdout.readline()
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    time.sleep(gap)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    process.wait(timeout=20)
    assert time.monotonic() - start < 5


STARTING = """
import sys, time
from electrify.jobs import executor, in_order
time.sleep(0.5)  # stands for slow imports; the workers run this too

if __name__ == "__main__":
    try:
        with executor(2) as pool:
            list(in_order(time.sleep, [60] * 4, pool, ahead=4))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds workers in /proc")
@pytest.mark.parametrize("moment", [0.0, 0.1, 0.4, 0.8])
def test_workers_print_nothing_when_interrupted_early(moment, tmp_path):
    """Ctrl-C in a terminal also reaches workers that have not yet started to ignore it."""
    (tmp_path / "starting.py").write_text(STARTING)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "starting.py"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while len(children.read_text().split()) < 3:  # two workers and the resource tracker
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=20)[1]
    assert (process.returncode, errors) == (130, "")


SAVING = """
import signal, sys, time
from pathlib import Path
from electrify.jobs import executor, in_order

def work(path):
    received = []
    before = signal.signal(signal.SIGTERM, lambda *_: received.append(1))
    path.with_suffix(".started").touch()
    while not received:
        time.sleep(0.01)
    time.sleep(0.3)  # stands for the time to save
    path.with_suffix(".saved").touch()
    signal.signal(signal.SIGTERM, before)
    raise KeyboardInterrupt

if __name__ == "__main__":
    with executor(2) as pool:
        list(in_order(work, [Path(sys.argv[1]) / name for name in "abcd"], pool, ahead=4))
"""


def test_workers_can_save_their_work_after_an_interrupt(tmp_path):
    (tmp_path / "saving.py").write_text(SAVING)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "saving.py", tmp_path], stderr=subprocess.DEVNULL
    )
    while len(list(tmp_path.glob("*.started"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) != 0
    started = {path.stem for path in tmp_path.glob("*.started")}
    assert {path.stem for path in tmp_path.glob("*.saved")} == started


def test_a_worker_that_dies_is_an_error_with_a_fix():
    with pytest.raises(UserError, match="a worker process died"), executor(2) as pool:
        list(in_order(die, range(4), pool, ahead=4))


LARGE_JOBS = """
import os
from electrify.errors import UserError
from electrify.jobs import executor, in_order

def fail(job):
    raise UserError("wrong", got="this", fix="that")

def die(job):
    os._exit(9)

if __name__ == "__main__":
    for function, what in ((fail, "wrong"), (die, "a worker process died")):
        try:
            with executor(2) as pool:
                list(in_order(function, [bytes(1 << 20)] * 20, pool, ahead=20))
        except UserError as error:
            assert error.what == what, error
            print("stopped")
"""


def test_an_error_stops_large_jobs_that_are_on_their_way_to_a_worker(tmp_path):
    """They are larger than the pipe; Debian's Python 3.11.2 would wait for them forever."""
    (tmp_path / "large.py").write_text(LARGE_JOBS)
    command = [sys.executable, tmp_path / "large.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "stopped\n" * 2), done.stderr


def test_a_job_on_a_dask_cluster():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        executor(cluster.scheduler_address) as pool,
    ):
        assert list(in_order(square, range(5), pool, ahead=2)) == [0, 1, 4, 9, 16]


def test_a_wrong_address_is_refused(monkeypatch):
    original = Client.__init__
    monkeypatch.setattr(
        Client,
        "__init__",
        lambda self, address, timeout: original(self, address, timeout=timeout / 20),
    )
    with pytest.raises(UserError), executor("tcp://127.0.0.1:9"):
        pass
