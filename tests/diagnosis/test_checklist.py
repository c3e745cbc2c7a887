"""`electrify doctor --gpu`: each check is isolated, and the list runs on a CPU too."""

import json
import sys
from pathlib import Path

import pytest
import torch

from electrify.cli import main
from electrify.diagnosis import bench as benches
from electrify.diagnosis import checklist
from electrify.diagnosis.bench import Bench, CheckFailed, CheckSkipped, difference, run_child
from electrify.diagnosis.checklist import CHECKLIST, Passed, losses_agree, run_check, run_checklist
from electrify.diagnosis.command import Diagnosis
from electrify.diagnosis.shards import write_random_shards
from electrify.tokens.store import Shards

REPORT = Diagnosis(
    schema=1,
    electrify="0",
    usable=True,
    findings=[{"section": "GPU", "name": "GPU", "value": "none", "status": "ok", "fix": ""}],
    missing=[],
)


def write_run(folder: Path, *losses: float | None) -> Path:
    folder.mkdir()
    records = [
        {"step": n, "split": "train", "generator_loss": loss, "discriminator_loss": 0.5}
        for n, loss in enumerate(losses, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    return folder


def test_the_difference_of_two_runs(tmp_path):
    one, other = write_run(tmp_path / "a", 8.0, 6.0), write_run(tmp_path / "b", 8.0, 6.6)
    assert difference(one, other) == (0.0, pytest.approx(0.6 / 6.6))
    bench = Bench(tmp_path, "cpu")
    limited = lambda run, limit: losses_agree(lambda _: run, lambda _: other, limit, bench)  # noqa: E731
    assert limited(one, 0.1).numbers["limit"] == 0.1
    with pytest.raises(CheckFailed, match=r"9\.1e-02"):
        limited(one, 1e-3)
    with pytest.raises(CheckFailed, match="inf"):
        limited(write_run(tmp_path / "c", 8.0, None), 0.1)
    with pytest.raises(CheckFailed, match="2 losses were logged, the other run has 4"):
        limited(write_run(tmp_path / "d", 8.0), 0.1)


def test_a_child_that_fails_says_why(monkeypatch):
    assert run_child([sys.executable, "-c", "print(3)"], {}) == "3\n"
    with pytest.raises(CheckFailed, match="exit code 1: MemoryError: 80 GB"):
        run_child([sys.executable, "-c", "raise MemoryError('80 GB')"], {})
    monkeypatch.setattr(benches, "CHILD_SECONDS", 0.2)
    with pytest.raises(CheckFailed, match="no end after"):
        run_child([sys.executable, "-c", "import time; time.sleep(60)"], {})


def test_a_check_that_fails_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    def fails(bench):
        raise CheckFailed("exit code 1: out of memory\n/home/ann/x\nlast line")

    def skips(bench):
        raise CheckSkipped("it needs two GPUs, this machine has 1")

    checks = {
        "broken": lambda bench: 1 / 0,
        "fails": fails,
        "skips": skips,
        "passes": lambda bench: Passed("fine", {"loss": float("nan")}),
    }
    monkeypatch.setattr(checklist, "CHECKLIST", checks)
    result = run_checklist("cpu", tmp_path / "out", REPORT)
    assert [check["status"] for check in result["checks"]] == ["fail", "fail", "skip", "pass"]
    assert result["passed"] is False
    shown = capsys.readouterr().out
    assert "  fail     fails   exit code 1: out of memory\n             | ~/x\n" in shown
    assert "ZeroDivisionError" in shown
    assert "2 fail, 1 skip, 1 pass" in shown
    written = json.loads((tmp_path / "out/doctor-gpu.json").read_text())
    assert list(written) == ["schema", "device", "passed", "seconds", "checks", "doctor"]
    assert set(written["checks"][0]) == {"name", "status", "text", "numbers", "seconds", "log"}
    assert written["checks"][3]["numbers"] == {"loss": None}
    assert "2 fail, 1 skip, 1 pass" in (tmp_path / "out/doctor-gpu.txt").read_text()
    assert not (tmp_path / "out/work").exists()


def test_checks_that_a_machine_cannot_run_say_why(tmp_path, monkeypatch):
    def skipped(name, device):
        result = run_check(name, CHECKLIST[name], Bench(tmp_path, device))
        assert result["status"] == "skip", result
        return result["text"]

    assert "NVIDIA" in skipped("TF32", "cpu")
    assert skipped("compiled", "cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    assert skipped("two processes", "cuda") == "it needs two GPUs, this machine has 1"
    assert "capability" in skipped("attention", "cuda")


def planned(monkeypatch, tmp_path, bytes_used: float, **memory: float) -> Bench:
    table = {
        "hardware": {"name": "A100"},
        "run": {"tokens": 1000.0},
        "seconds": {"float32": 2.0},
        "memory": {"float32": memory},
    }
    monkeypatch.setattr(Bench, "planned", table)
    monkeypatch.setattr(Bench, "planned_precision", "float32")
    monkeypatch.setattr(Bench, "measured", tmp_path)
    bench = Bench(tmp_path, "cuda")
    (tmp_path / "timing.jsonl").write_text('{"step": 9, "tokens_per_second": 240.0}\n')
    bench.probed("memory").write_text(json.dumps({"bytes": bytes_used}))
    return bench


def test_speed_and_memory_are_compared_with_the_plan(monkeypatch, tmp_path):
    bench = planned(monkeypatch, tmp_path, 3e9, all=3e9, context=1e9)
    found = checklist.memory_use(bench)
    assert found.numbers["ratio"] == 1.5
    assert "3.0 GB, plan (A100): 2.0 GB, ratio 1.50" in found.text
    with pytest.raises(CheckFailed, match=r"240 tokens/s, plan \(A100\): 500 tokens/s"):
        checklist.speed(bench)


@pytest.mark.parametrize(
    ("kernels", "passes"),
    [
        ({"_scaled_dot_product_flash_attention": 4}, True),
        ({"_scaled_dot_product_cudnn_attention": 4}, True),
        ({"_scaled_dot_product_flash_attention": 2, "_scaled_dot_product_attention_math": 2}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_only_fused_kernels_pass(monkeypatch, tmp_path, kernels, passes):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(Bench, "pretrain", lambda *a, **k: None)
    bench = Bench(tmp_path, "cuda")
    bench.probed("kernels").write_text(json.dumps(kernels))
    result = run_check("attention", checklist.attention_kernels, bench)
    assert result["status"] == ("pass" if passes else "fail")


def test_random_shards_have_no_padding(tmp_path):
    shards = Shards(write_random_shards(tmp_path / "shards", vocab_size=100, length=16))
    assert {len(shards[n].ids) for n in range(len(shards))} == {16}
    assert shards.tokenizer().vocab_size == 100


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_says_what_to_do(capsys, tmp_path):
    assert main(["doctor", "--gpu", "--out", str(tmp_path / "out")]) == 2
    assert "--device cpu" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_whole_list_on_a_cpu(electrify, tmp_path):
    done = electrify("doctor", "--gpu", "--device", "cpu", "--out", tmp_path / "out", "--json")
    result = json.loads(done.stdout)
    statuses = {check["name"]: check["status"] for check in result["checks"]}
    assert statuses == {
        name: "skip" if name in ("TF32", "fp16", "compiled") else "pass" for name in CHECKLIST
    }
    assert str(tmp_path) not in (tmp_path / "out/doctor-gpu.txt").read_text()
