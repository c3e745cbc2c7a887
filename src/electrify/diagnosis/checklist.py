"""`electrify doctor --gpu`: try on a device what could only be checked by design without one.

OUT/doctor-gpu.json    the results and the machine, to send back
OUT/doctor-gpu.txt     the same as text
OUT/.doctor-…          only while it runs
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from electrify.diagnosis.bench import (
    NO_TF32,
    UPDATES,
    Bench,
    CheckFailed,
    CheckSkipped,
    LossDifference,
    difference,
)
from electrify.diagnosis.command import SCHEMA, line, report_text
from electrify.diagnosis.devices import FLASH_CAPABILITY
from electrify.diagnosis.finding import anonymous
from electrify.planning.hardware import bytes_text
from electrify.progress import duration
from electrify.storage.commit import committed, defined, read_json, write_json
from electrify.training.folder import RunFolder
from electrify.training.journal import METRICS_FILE, TIMING_FILE, read_records

FLOAT32_LIMIT = 1e-3
"""Relative difference of the losses; over the updates, rounding errors grow and samples differ."""
ROUNDED_LIMIT = 2e-2
"""The same for TF32, bfloat16 and float16, which round every matmul to 8 to 11 bits."""
PLAN_FACTORS = {"cuda": 2.0, "cpu": 4.0}
"""How far a measured speed or memory may be from `plan`; CPUs are shared with other programs."""
FUSED = ("flash", "cudnn")
EASY_SCORE = 0.9


class Passed(NamedTuple):
    """A check whose result is right."""

    text: str
    numbers: Mapping[str, Any]


TrainedRun = Callable[[Bench], Path]
ON_CPU, EXACTLY = attrgetter("reference"), attrgetter("exact")


def losses_agree(run: TrainedRun, reference: TrainedRun, limit: float, bench: Bench) -> Passed:
    """Check that two runs have the same losses, up to a limit."""
    return _within(difference(run(bench), reference(bench)), limit)


def _within(found: LossDifference, limit: float) -> Passed:
    text = (
        f"losses differ by {found.largest:.1e} in {UPDATES} updates, {found.first:.1e} in the "
        f"first (limit {limit:.0e})"
    )
    if not found.largest <= limit:  # also if it is NaN
        raise CheckFailed(text)
    return Passed(text, {**found._asdict(), "limit": limit})


def _tf32(bench: Bench) -> Path:
    _only_on_cuda(bench, "TF32 is a format of NVIDIA GPUs")
    return bench.pretrain("tf32")


def _bf16(bench: Bench) -> Path:
    return bench.pretrain("bf16", "--run.precision", "bf16")


def _fp16(bench: Bench) -> Path:
    _only_on_cuda(bench, "float16 is for GPUs without bfloat16")
    return bench.pretrain("fp16", "--run.precision", "fp16")


def _two_processes(bench: Bench) -> Path:
    _check_two_devices(bench)
    return bench.pretrain("two", processes=2, environment=NO_TF32)


def _sharded(bench: Bench) -> Path:
    _check_two_devices(bench)
    return bench.pretrain("sharded", "--shard", processes=2, environment=NO_TF32)


def _compiled(bench: Bench) -> Path:
    _only_on_cuda(bench, "compiling for a CPU takes minutes, and the tests do it")
    return bench.pretrain("compiled", "--compile", environment=NO_TF32)


def _only_on_cuda(bench: Bench, why: str) -> None:
    if bench.device != "cuda":
        raise CheckSkipped(why)


def _check_two_devices(bench: Bench) -> None:
    if bench.device == "cuda":
        import torch

        if (count := torch.cuda.device_count()) < 2:
            raise CheckSkipped(f"it needs two GPUs, this machine has {count}")


def resumes(bench: Bench) -> Passed:
    """Check that a run that is resumed in the middle logs what a run without a stop logs."""
    resumed = bench.work / "resumed"
    shutil.copytree(bench.exact, resumed)
    newest, before, *_ = RunFolder(resumed).saved()
    shutil.rmtree(newest.folder)
    kept = before.step
    bench.pretrain("resumed", environment=NO_TF32)
    if f"resuming from step {kept}" not in bench.output("resumed"):
        raise CheckFailed("the run was not resumed but started again")
    same = (resumed / METRICS_FILE).read_bytes() == (bench.exact / METRICS_FILE).read_bytes()
    if same:
        return Passed(f"resumed at update {kept}: metrics are equal bit for bit", {"step": kept})
    found = difference(resumed, bench.exact)
    if bench.device == "cpu":  # where it is promised
        raise CheckFailed(f"metrics differ by {found.largest:.1e}")
    passed = _within(found, FLOAT32_LIMIT)
    return passed._replace(text=f"resumed at update {kept}: not bit for bit, {passed.text}")


def speed(bench: Bench) -> Passed:
    """Compare the tokens per second of ELECTRA-small with those that `plan` expects."""
    found = read_records(bench.measured / TIMING_FILE)[-1]["tokens_per_second"]
    planned, precision = bench.planned, bench.planned_precision
    expected = planned["run"]["tokens"] / planned["seconds"][precision]
    return _against_plan(bench, found, expected, lambda n: f"{n:,.0f} tokens/s", planned)


def memory_use(bench: Bench) -> Passed:
    """Compare the peak memory of ELECTRA-small with the one that `plan` expects."""
    _ = bench.measured
    found = read_json(bench.probed("memory"))
    planned, precision = bench.planned, bench.planned_precision
    needed = planned["memory"][precision]
    expected = needed["all"] - needed.get("context", 0)  # torch does not count CUDA's own memory
    passed = _against_plan(bench, found["bytes"], expected, bytes_text, planned)
    return passed._replace(numbers={**passed.numbers, **found})


def _against_plan(
    bench: Bench,
    found: float,
    expected: float,
    show: Callable[[float], str],
    planned: Mapping[str, Any],
) -> Passed:
    ratio, limit = found / expected, PLAN_FACTORS[bench.device]
    hardware = planned["hardware"]["name"]
    text = (
        f"ELECTRA-small: {show(found)}, plan ({hardware}): {show(expected)}, ratio {ratio:.2f} "
        f"(limit {limit:g} either way)"
    )
    if not 1 / limit <= ratio <= limit:
        raise CheckFailed(text)
    return Passed(text, {"measured": found, "planned": expected, "ratio": ratio, "limit": limit})


def attention_kernels(bench: Bench) -> Passed:
    """Check that batches without padding use a fused attention kernel."""
    precision = "float32"
    if bench.device == "cuda":
        import torch

        if torch.cuda.get_device_capability() < FLASH_CAPABILITY:
            raise CheckSkipped("this GPU has no flash attention: it needs capability 8.0")
        precision = "bf16"
    flags = ("--run.steps", 1, "--run.eval-every", 0, "--run.precision", precision)
    bench.pretrain("kernels", *flags, probe="kernels")
    counts = read_json(bench.probed("kernels"))
    text = ", ".join(f"{name.strip('_')} × {count}" for name, count in counts.items()) or "none"
    if not counts or not all(any(word in name for word in FUSED) for name in counts):
        raise CheckFailed(f"not flash attention but {text}")
    return Passed(text, counts)


def exports(bench: Bench) -> Passed:
    """Check that the run is exported; the export loads what it wrote and compares the outputs."""
    roles = sorted(path.parent.name for path in bench.model.glob("*/model.safetensors"))
    return Passed(f"loaded again with the same outputs: {', '.join(roles)}", {"roles": roles})


def finetunes(bench: Bench) -> Passed:
    """Check that the exported encoder learns on the device to tell two words apart."""
    rows = [f"w{n % 2} w{n % 2} w{n}\t{'even' if n % 2 == 0 else 'odd'}" for n in range(64)]
    labelled, out = bench.work / "labelled.tsv", bench.work / "tuned"
    labelled.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    files = ("--train", labelled, "--dev", labelled, "--out", out)
    flags = ("--lr", 1e-3, "--batch-size", 8, "--epochs", 5, "--device", bench.device, "--json")
    result = json.loads(bench.electrify("finetune", bench.model / "encoder", *files, *flags))
    metric, score = next(iter(result["mean"].items()))
    text = f"{metric} {score:.2f} on {len(rows)} easy rows (limit {EASY_SCORE})"
    if not score >= EASY_SCORE:
        raise CheckFailed(text)
    return Passed(text, {"score": score, "limit": EASY_SCORE})


CHECKLIST: Mapping[str, Callable[[Bench], Passed]] = {
    "float32": partial(losses_agree, EXACTLY, ON_CPU, FLOAT32_LIMIT),
    "TF32": partial(losses_agree, _tf32, ON_CPU, ROUNDED_LIMIT),
    "bf16": partial(losses_agree, _bf16, ON_CPU, ROUNDED_LIMIT),
    "fp16": partial(losses_agree, _fp16, ON_CPU, ROUNDED_LIMIT),
    "resume": resumes,
    "two processes": partial(losses_agree, _two_processes, EXACTLY, FLOAT32_LIMIT),
    "sharded": partial(losses_agree, _sharded, EXACTLY, FLOAT32_LIMIT),
    "compiled": partial(losses_agree, _compiled, EXACTLY, FLOAT32_LIMIT),
    "speed": speed,
    "memory": memory_use,
    "attention": attention_kernels,
    "export": exports,
    "fine-tuning": finetunes,
}


def run_checklist(device: str, out: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    """Run every check, print one line for each, and write the results with the report."""
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    title = f"Checklist on {device}"
    print(f"\n{title}", flush=True)
    checks, lines = [], []
    with TemporaryDirectory(prefix=".doctor-", dir=out, ignore_cleanup_errors=True) as work:
        bench = Bench(Path(work), device)
        for name, check in CHECKLIST.items():
            checks.append(run_check(name, check, bench))
            lines.append(check_line(checks[-1]))
            print(lines[-1], flush=True)
    counts = Counter(check["status"] for check in checks)
    seconds = time.monotonic() - begin
    end = f"{', '.join(f'{n} {status}' for status, n in counts.items())} in {duration(seconds)}"
    result = {
        "schema": SCHEMA,
        "device": device,
        "passed": not counts["fail"],
        "seconds": seconds,
        "checks": checks,
        "doctor": dict(report),
    }
    write_json(out / "doctor-gpu.json", defined(result))
    with committed(out / "doctor-gpu.txt") as temporary:
        text = [report_text(report), "", title, *lines, "", end]
        temporary.write_text("\n".join(text) + "\n", encoding="utf-8")
    print(f"\n{end}\nsend back: {out / 'doctor-gpu.json'} and {out / 'doctor-gpu.txt'}")
    return result


def run_check(name: str, check: Callable[[Bench], Passed], bench: Bench) -> dict[str, Any]:
    """Run a check and return its result; whatever goes wrong in it is its result."""
    begin, numbers, log = time.monotonic(), {}, ""
    try:
        text, found = check(bench)
        status, numbers = "pass", dict(found)
    except CheckSkipped as why:
        status, text = "skip", f"{why}"
    except CheckFailed as failure:
        status, (text, _, log) = "fail", f"{failure}".partition("\n")
    except Exception as error:  # a mistake in the check must not end the others
        status, text = "fail", f"{error!r}"
    return {
        "name": name,
        "status": status,
        "text": anonymous(text),
        "numbers": numbers,
        "seconds": time.monotonic() - begin,
        "log": anonymous(log),
    }


def check_line(result: Mapping[str, Any]) -> str:
    """Return the line of a check, with the last lines of its output below if it failed."""
    log = "".join(f"\n             | {text}" for text in result["log"].splitlines())
    width = max(map(len, CHECKLIST))
    return line(result["status"], result["name"], result["text"], width) + log
