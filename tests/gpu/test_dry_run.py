"""Whole updates on a pretended CUDA device: devices and dtypes fit, and the host waits once."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from electrify.objectives.masked_lm import MOST_BYTES_OF_LOGITS

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "c++")) is None,
    reason="the pretended CUDA backend needs a C++ compiler",
)
# objective, architecture, precision, optimizer, padding, activation checkpointing
UPDATES = [
    ("rtd", "electra", "bf16", "electra-adam", False, False),
    ("rtd", "electra", "fp16", "lamb", True, True),
    ("rtd", "bert", "float32", "adamw", True, False),
    ("rtd", "albert", "fp16", "electra-adam", False, False),
    ("rtd", "modernbert", "bf16", "muon", True, False),
    ("rtd", "deberta-v2", "bf16", "adamw", False, False),
    ("mlm", "electra", "float32", "lamb", False, False),
    ("mlm", "bert", "bf16", "muon", False, True),
    ("mlm", "albert", "bf16", "adamw", True, False),
    ("mlm", "modernbert", "fp16", "electra-adam", False, False),
    ("mlm", "deberta-v2", "float32", "muon", True, False),
]
HEADS = ["official", "own", "tagger", "squad simple", "squad joint"]


def run(module: str, *arguments: str) -> list[dict]:
    """Run a module in its own process, because torch remembers whether there is CUDA."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.gpu.{module}", *arguments],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


FIRST = 3  # the others run with the slow tests
CASES = [
    pytest.param(
        case, marks=[pytest.mark.slow] * (number >= FIRST), id="-".join(map(str, case[:4]))
    )
    for number, case in enumerate(UPDATES)
]


@cache
def traced_updates(slow: bool) -> dict[tuple, dict]:
    """Trace the first cases, or the others, all in one process."""
    names = ("kind", "architecture", "precision", "optimizer", "padded", "checkpointed")
    chosen = UPDATES[FIRST:] if slow else UPDATES[:FIRST]
    cases = [dict(zip(names, case, strict=True)) for case in chosen]
    return dict(zip(chosen, run("pretraining", json.dumps(cases)), strict=True))


@pytest.fixture
def traced(case) -> dict:
    return traced_updates(case in UPDATES[FIRST:])[case]


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_an_update_waits_for_the_device_once(traced) -> None:
    assert sum(traced["waits"].values()) == 1, traced["waits"]
    assert traced["copies"] == {"asynchronous": 14}  # seven fields, two micro-batches
    assert traced["off the device"] == []
    assert traced["log waits"] == traced["evaluation waits"] == 1
    assert traced["tensors saved"] > 0


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_rows_without_padding_use_flash_attention(traced, case) -> None:
    _, architecture, precision, _, padded, _ = case
    if architecture == "deberta-v2":  # has its own attention
        assert traced["kernels"] == {}
    else:
        flash = precision != "float32" and not padded
        assert traced["kernels"].keys() == {"flash" if flash else "memory-efficient"}


@needs_compiler
@pytest.mark.slow
def test_chunks_bound_the_memory_of_logits() -> None:
    """With two layers and a width of 64, logits are nearly all there is at 256 rows × 77 slots."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "embedding_size": 64,
             "num_attention_heads": 1, "intermediate_size": 64}  # fmt: skip
    case = ["electra-base", sizes, 256, "bf16"]
    all_at_once, chunked = run("logits", json.dumps([[*case, None], [*case, MOST_BYTES_OF_LOGITS]]))
    logits = 256 * 77 * 30_522 * 4
    assert all_at_once > 2.5 * logits
    assert chunked < logits


@pytest.mark.slow
@needs_compiler
def test_every_fine_tuning_head_waits_once() -> None:
    traced = run("finetuning", "bf16")
    assert [case["head"] for case in traced] == HEADS
    for case in traced:
        assert sum(case["waits"].values()) == 1, case
        assert sum(case["prediction waits"].values()) == 1, case  # the logits
        assert case["copies"].keys() == {"asynchronous"}


@pytest.mark.slow
def test_many_ranks_add_up_totals_and_then_loss_and_requests() -> None:
    ddp, fsdp, lamb = run(
        "processes", json.dumps([["ddp", "electra-adam"], ["fsdp", "adamw"], ["ddp", "lamb"]])
    )
    assert ddp == lamb == {"allreduce": 2, "gradient buckets": 1}
    assert fsdp["allreduce"] == 2
    assert fsdp.keys() == {"allreduce", "allgather_base", "reduce_scatter_base"}
