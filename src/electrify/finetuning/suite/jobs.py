"""Run the jobs of a suite, each a task, a model and a seed, here or on a Dask cluster.

A job's folder holds what its command keeps next to a result, without the weights. Jobs are the same
for any number of workers: torch has the same number of threads in each, and no two run in the same
process at a time, because torch's random numbers belong to the process.
"""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from electrify.errors import UserError
from electrify.finetuning.blimp.command import measure_blimp
from electrify.finetuning.devices import visible_gpus
from electrify.finetuning.experiment import (
    LOADED,
    TO_PUBLISH,
    progress_reporter,
    run_one,
    stored_result,
)
from electrify.finetuning.fit import OnProgress, no_progress
from electrify.finetuning.glue.problem import MODEL
from electrify.finetuning.options import Blimp
from electrify.finetuning.results import Result, damaged_result
from electrify.finetuning.suite.plans import SuitePlan
from electrify.jobs import available_cores, executor, in_order, is_number
from electrify.progress import duration, progress
from electrify.storage.commit import left_over
from electrify.storage.lock import hold

_ONE_AT_A_TIME = threading.Lock()
"""A Dask worker may have several threads."""


class SuiteJob(NamedTuple):
    """A task, a model and a seed to run."""

    task: str
    model: str
    """The model's name in tables."""
    source: str
    """The model's folder or Hub name."""
    seed: int
    folder: Path
    plan: SuitePlan | Blimp
    """How to fine-tune, or the settings of minimal pairs, which need no training."""
    device: str = "auto"
    threads: int = 1

    @property
    def name(self) -> str:
        """Return the name of the job in messages."""
        seed = "" if isinstance(self.plan, Blimp) else f" seed {self.seed}"
        return f"{self.task} {self.model}{seed}"

    @property
    def lock(self) -> Path:
        """Return the file that the process holds that runs the job."""
        return self.folder.with_name(f"{self.folder.name}.lock")


def run_suite_job(job: SuiteJob, on_progress: OnProgress = no_progress) -> Result:
    """Run one job in this process, unless another process has finished it meanwhile.

    After a kill, or if a Dask worker is lost from sight, two processes may be given the same job;
    the second one waits for the first.
    """
    with _ONE_AT_A_TIME, _only_here(job):
        torch.set_num_threads(job.threads)
        if isinstance(job.plan, Blimp):
            return _minimal_pairs(job, job.plan)
        result = stored_result(job.plan, job.folder) or run_one(
            job.plan.make(), job.source, job.seed, job.folder, job.plan.fit, job.device, on_progress
        )
        drop_weights(job.folder)
        return result


@contextmanager
def _only_here(job: SuiteJob) -> Iterator[None]:
    job.folder.mkdir(parents=True, exist_ok=True)
    with hold(job.lock, f"running {job.name}", wait=True):
        _clean(job)
        yield
        job.lock.unlink(missing_ok=True)


def _clean(job: SuiteJob) -> None:
    """Remove what a process left that was killed while writing."""
    for leftover in left_over(job.folder, ["*"]):
        leftover.unlink(missing_ok=True)


def _minimal_pairs(job: SuiteJob, settings: Blimp) -> Result:
    """Score minimal pairs, and return the accuracy and that of each paradigm as a result."""
    found = measure_blimp(settings)
    scores = {"accuracy": found["overall"]["accuracy"]}
    paradigms = {one["name"]: one["accuracy"] for one in found["paradigms"]}
    low, high = found["overall"]["interval"]
    bounds = {"low": low, "high": high}
    return Result(
        job.task,
        job.seed,
        f"scored by {found['score']}",
        scores={"dev": scores, "paradigms": paradigms, "interval": bounds},
        seconds=found["seconds"],
    )


def drop_weights(folder: Path) -> None:
    """Remove the weights of a finished job, which a table does not need."""
    shutil.rmtree(folder / TO_PUBLISH, ignore_errors=True)
    (folder / MODEL).unlink(missing_ok=True)


def finished_result(job: SuiteJob) -> Result | None:
    """Return the result of a finished job; one with other settings or data is refused."""
    if isinstance(job.plan, Blimp):
        done = (job.folder / "manifest.json").is_file()
        result = _minimal_pairs(job, job.plan) if done else None
    else:
        result = stored_result(job.plan, job.folder)
    if result is None:
        return None
    if (result.task, result.seed) != (job.task, job.seed):
        got = f"the result of task {result.task}, seed {result.seed}"
        raise damaged_result(job.folder / "result.json", got)
    _clean(job)
    job.lock.unlink(missing_ok=True)
    drop_weights(job.folder)
    return result


def run_suite_jobs(
    jobs: Sequence[SuiteJob], finished: Sequence[Result | None], workers: str
) -> list[Result]:
    """Run the jobs that are not finished; returns the results of all, in order."""
    results = {job.folder: result for job, result in zip(jobs, finished, strict=True)}
    missing = [job for job in jobs if results[job.folder] is None]
    if missing:
        done = len(jobs) - len(missing)
        gpus = visible_gpus(missing[0].device)
        count = suite_workers(workers, len(gpus), missing[0].threads)
        with LOADED, progress("suite") as update, executor(count, gpus) as pool:
            found = (  # a single worker runs in this process and can report every step
                (
                    run_suite_job(job, progress_reporter(update, job.name, done, len(jobs)))
                    for job in missing
                )
                if count == 1
                else in_order(run_suite_job, missing, pool, ahead=max(1, len(missing)))
            )
            for job, result in zip(missing, found, strict=True):
                done += 1
                results[job.folder] = result
                update(done / len(jobs), "")
                print(f"{done}/{len(jobs)} {job.name}: {_outcome(result)}", flush=True)
    return [result for result in results.values() if result is not None]


def suite_workers(workers: int | str, gpus: int, threads: int) -> int | str:
    """Return the number of processes, or the address of a Dask scheduler.

    >>> suite_workers("3", 0, 1), suite_workers("0", 2, 1), suite_workers("tcp://host:8786", 0, 1)
    (3, 2, 'tcp://host:8786')
    """
    text = str(workers)
    if not is_number(text):
        return text
    count = int(text)
    if count < 0:
        fix = "use 0 for one per core, or the address of a Dask scheduler"
        raise UserError("--workers must be 0 or more", got=text, fix=fix)
    return count or gpus or max(1, available_cores() // threads)


def _outcome(result: Result) -> str:
    if result.failed:
        return f"failed: {result.failed}"
    scores = ", ".join(f"{name} {value:.4f}" for name, value in result.scores["dev"].items())
    warning = f"; degenerate: {result.degenerate}" if result.degenerate else ""
    return f"{scores} ({duration(result.seconds)}){warning}"
