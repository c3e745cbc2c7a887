"""`electrify glue MODEL --data GLUE --out DIR`: fine-tune on GLUE tasks with several seeds.

Every job (a task and a seed) has a folder such as DIR/jobs/cola-0 and is committed on its own.
Rerunning the command runs only the jobs that are missing, so that seeds and tasks can be added.
"""

import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from electrify.config import check_minimum, unknown
from electrify.errors import UserError
from electrify.finetuning.devices import (
    finetuning_precision,
    settle_precision,
    visible_gpus,
    worker_count,
)
from electrify.finetuning.encoder import Encoder, fingerprint, open_encoder
from electrify.finetuning.experiment import (
    LOADED,
    commit,
    progress_reporter,
    run_one,
    stored_result,
)
from electrify.finetuning.fit import OnProgress, no_progress
from electrify.finetuning.glue.data import check_folder, data_fingerprint, has_split, read_split
from electrify.finetuning.glue.presets import PRESETS, Preset, plan_for, reading_of
from electrify.finetuning.glue.problem import MODEL, GlueProblem
from electrify.finetuning.glue.results import best_jobs, read_results
from electrify.finetuning.glue.tables import glue_summary, write_tables
from electrify.finetuning.glue.tasks import TASKS, Split, averaged_tasks
from electrify.finetuning.options import Glue, Tuning
from electrify.finetuning.results import Result, damaged_result, result_json
from electrify.jobs import available_cores, executor, in_order
from electrify.progress import duration, progress
from electrify.storage.commit import read_json
from electrify.storage.lock import hold

_Settings = TypeVar("_Settings", bound=Tuning)


def glue(settings: Glue) -> list[dict[str, Any]]:
    """Run the missing jobs, then print and write the tables; returns the results."""
    names = task_names(settings.tasks)
    settings = settled(settings)
    seeds = settings.seeds or PRESETS[settings.preset].seeds
    jobs = plan_jobs(settings, settings.model, names, range(seeds))
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"fine-tuning in {settings.out}"):
        run_missing(jobs, worker_count(settings.workers, settings.device))
        drop_models(settings.out, sources_of(jobs))
    results = read_results(settings.out)
    name = short_name(settings.model)
    asked = [result for result in results if result.task in names]
    print(f"model: {settings.model}\n\n{glue_summary(asked, name, settings.footnotes)}\n")
    if not settings.footnotes:
        where = f"add --footnotes, or see {settings.out / 'glue.md'}"
        print(f"sources and caveats of the published rows: {where}")
    files = sorted({path.stem for path in write_tables(settings.out, results, name)})
    print(f"{settings.out}: wrote {', '.join(files)} as .md, .tex and .csv")
    print(_next_commands(settings))
    return [result_json(result) for result in results]


def _next_commands(settings: Glue) -> str:
    out, data = shlex.quote(str(settings.out)), shlex.quote(str(settings.data))
    return (
        f"next:\n  electrify report {out} --out report.html\n"
        f"  electrify glue submit {out} --data {data} --out predictions   # the test sets"
    )


def short_name(model: str) -> str:
    """Return a short name for a model: its Hub name, or the folder that distinguishes it.

    >>> short_name("/data/run-7/model/discriminator"), short_name("google/electra-small-generator")
    ('run-7', 'google/electra-small-generator')
    >>> short_name("model/encoder")
    'model/encoder'
    """
    path = Path(model)
    if not path.is_absolute() and not path.exists():
        return model
    names = [name for name in reversed(path.parts) if name not in (*EXPORT_FOLDERS, path.anchor)]
    return names[0] if names else model


EXPORT_FOLDERS = ("model", "discriminator", "generator", "encoder")
"""Folder names that every `electrify export` has, so that they distinguish no model."""


class Job(NamedTuple):
    """A problem and a seed to fine-tune, and the folder and device to do it."""

    problem: GlueProblem
    model: str
    seed: int
    out: Path
    device: str = "auto"
    threads: int = 0
    """CPU threads of this job; 0 keeps torch's default."""

    @property
    def name(self) -> str:
        """Return the name of the job's folder."""
        return f"{self.problem.name}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Return the job's folder."""
        return self.out / "jobs" / self.name


def run_job(job: Job, on_progress: OnProgress = no_progress) -> Result:
    """Run one job in this process.

    Its folder is locked: a job of an interrupted command may still be running in a Dask worker.
    """
    if job.threads:
        torch.set_num_threads(job.threads)
    fit, lock = job.problem.plan.fit, job.folder / "lock"
    job.folder.mkdir(parents=True, exist_ok=True)
    with hold(lock, f"fine-tuning in {job.folder}"):
        result = run_one(job.problem, job.model, job.seed, job.folder, fit, job.device, on_progress)
        lock.unlink(missing_ok=True)
    return result


def settled(settings: _Settings) -> _Settings:
    """Refuse invalid settings before anything is loaded; returns them with the precision."""
    check_folder(settings.data)
    check_minimum(settings, train_limit=0)
    if isinstance(settings.workers, int):
        check_minimum(settings, workers=0)
    if settings.out.is_file():
        raise UserError(f"{settings.out} is a file", got=f"{settings.out}", fix="use a folder")
    precision = settle_precision(settings.precision, settings.device, settings.out)
    return replace(settings, precision=precision)


def task_names(text: str) -> list[str]:
    """Return the task names in "all" or in a comma-separated list.

    >>> task_names("cola, sts")
    ['cola', 'stsb']
    """
    if text == "all":
        return averaged_tasks()
    known = {
        alias: task.name
        for task in TASKS.values()
        for alias in (task.name, task.title.lower(), *task.aliases)
    }
    names = [name for part in text.lower().split(",") if (name := part.strip())]
    for name in names:
        if name not in known:
            raise unknown(f"task {name}", name, TASKS, "task")
    if not names:
        fix = f"use --tasks with some of {','.join(TASKS)}"
        raise UserError("no tasks were given", got=f"--tasks {text!r}", fix=fix)
    return list(dict.fromkeys(known[name] for name in names))


def preset_label(settings: Tuning) -> str:
    """Return the name of the preset, followed by the options that override it."""
    changed = {
        name.replace("_", " "): value
        for name, default in CHANGES.items()
        if (value := getattr(settings, name)) != default
    }
    return ", ".join([settings.preset, *(f"{name} {value}" for name, value in changed.items())])


# Options that affect scores, with the default that leaves the preset unchanged.
CHANGES = {
    field.name: field.default
    for field in fields(Tuning)
    if field.name not in ("data", "out", "preset", "train_limit", "workers", "device")
} | {"precision": "float32"}


def plan_jobs(
    settings: Tuning, model: str, names: Sequence[str], seeds: Sequence[int]
) -> list[Job]:
    """Return all jobs; those that other jobs start from come first."""
    precision = finetuning_precision(settings.precision, settings.device)
    settings = replace(settings, precision=precision)
    preset, encoder = PRESETS[settings.preset], open_encoder(model)
    _check_model(settings, preset, encoder)
    chains = dict(preset.chains)
    if settings.from_mnli:
        chains |= {name: "mnli" for name in task_names(settings.from_mnli) if name != "mnli"}
    wanted = [(name, seed) for name in names for seed in seeds]
    wanted += [(name, 0) for name in sorted({chains[n] for n in names if n in chains} - {*names})]
    wanted.sort(key=lambda pair: pair[0] in chains)
    overridable = ("lr", "epochs", "batch_size", "layer_decay", "precision")
    given = {name: getattr(settings, name) for name in overridable}
    changes = {name: value for name, value in given.items() if value is not None}
    width, label, digest = encoder.config.hidden_size, preset_label(settings), fingerprint(model)
    problems = {}
    for name in dict.fromkeys(name for name, _ in wanted):
        task, source = TASKS[name], chains.get(name, "")
        _check_files(settings.data, name, label if name in names else "")
        plan = plan_for(preset, task, width, settings.length, changes, settings.head)
        plan = plan._replace(starts_from=source, init_head=settings.init_head)
        start = settings.out / "jobs" / f"{source}-0" / MODEL if source else None
        hashes = data_fingerprint(settings.data, task)
        dev = [split for split in task.dev_splits if split in hashes]
        problem = GlueProblem(settings.data, task, plan, label, dev, settings.train_limit, start)
        problems[name] = problem.with_identity(model, digest, hashes)
    workers = worker_count(settings.workers, settings.device)
    where = settings.out, settings.device, _threads(workers)
    return [Job(problems[name], model, seed, *where) for name, seed in wanted]


def _check_model(settings: Tuning, preset: Preset, encoder: Encoder) -> None:
    if not 8 <= settings.length <= encoder.longest:
        raise UserError(
            f"--length must be between 8 and {encoder.longest} for this encoder",
            got=f"{settings.length}",
            fix=f"use --length {min(128, encoder.longest)}",
        )
    if settings.init_head == "pretrained" and (settings.head or preset.head) == "official":
        raise UserError(
            "--init-head pretrained needs the architecture's own head",
            got="the official head, for which no model has pre-trained weights",
            fix="add --head own",
        )


def _check_files(data: Path, name: str, label: str) -> None:
    """Refuse a task without the files for training and for the scores that its preset reads."""
    read = {split for split, _ in reading_of(label, TASKS[name])} if label else set()
    splits: set[Split] = {"train", "dev", *read}
    for split in sorted(splits):
        if not has_split(data, TASKS[name], split):
            read_split(data, TASKS[name], split)  # raises an error that names the missing file


def _threads(workers: int | str) -> int:
    """Return the CPU threads per job, so that parallel jobs share the cores; 0 for all.

    Dask workers are elsewhere and have their own number of threads.
    """
    if isinstance(workers, str):
        return 0
    cores = available_cores()
    return 0 if workers == 1 else max(1, cores // (workers or cores))


def run_missing(jobs: Sequence[Job], workers: int | str) -> None:
    """Run the unfinished jobs; those that start from another job's model come after it."""
    sources = sources_of([job for job in jobs if not finished(job)])
    missing = [job for job in jobs if not finished(job, weights_wanted=job.name in sources)]
    if not missing:
        return
    done = len(jobs) - len(missing)
    gpus = visible_gpus(missing[0].device)
    with LOADED, progress("fine-tuning") as update, executor(workers, gpus) as pool:
        for chained in (False, True):
            wave = [job for job in missing if bool(job.problem.starts_from) == chained]
            wave = [job for job in wave if not _source_failed(job)]
            results = (  # a single worker runs in this process and can report every step
                (run_job(job, progress_reporter(update, job.name, done, len(jobs))) for job in wave)
                if workers == 1
                else in_order(run_job, wave, pool, ahead=max(1, len(wave)))
            )
            for result in results:
                done += 1
                update(done / len(jobs), "")
                print(f"{done}/{len(jobs)} {result_line(result)}", flush=True)


def _source_failed(job: Job) -> bool:
    """Commit a failed result for a job whose start model is missing; returns whether it did."""
    problem = job.problem
    if problem.starts_from is None or problem.starts_from.is_file():
        return False
    why = f"{problem.plan.starts_from}-0, which it starts from, failed"
    result = Result(problem.name, job.seed, problem.preset, failed=why)
    print(result_line(commit(problem, job.folder, result)), flush=True)
    return True


def finished(job: Job, weights_wanted: bool = False) -> bool:
    """Return whether a job is finished; different settings in its folder are an error."""
    result = stored_result(job.problem, job.folder)
    if result is None:
        return False
    if (result.task, result.seed) != (job.problem.name, job.seed):
        got = f"the result of task {result.task}, seed {result.seed}"
        raise damaged_result(job.folder / "result.json", got)
    return bool(result.failed) or not weights_wanted or (job.folder / MODEL).exists()


def sources_of(jobs: Sequence[Job]) -> set[str]:
    """Return the names of the jobs whose models other jobs start from."""
    starts = [job.problem.starts_from for job in jobs]
    return {start.parent.name for start in starts if start is not None}


def result_line(result: Result) -> str:
    """Return a one-line summary of a job."""
    head = f"{TASKS[result.task].title} seed {result.seed}"
    if result.failed:
        return f"{head}: failed: {result.failed}"
    scores = ", ".join(
        f"{metric} {value:.4f}" + (" (mismatched)" if split == "dev_mismatched" else "")
        for split, metrics in result.scores.items()
        for metric, value in metrics.items()
    )
    speed = f"{duration(result.seconds)}, {result.examples_per_second:.0f} examples/s"
    warning = f"; degenerate: {result.degenerate}" if result.degenerate else ""
    return f"{head}: {scores} ({speed}){warning}"


def drop_models(out: Path, keep: set[str]) -> None:
    """Delete all weights except those of the best runs and those that other jobs start from."""
    best = best_jobs(read_results(out)).values()
    kept = keep | {f"{result.task}-{result.seed}" for result in best}
    for path in (out / "jobs").glob("*/result.json"):
        kept.add(f"{read_json(path)['identity']['plan']['starts_from']}-0")
    for path in (out / "jobs").glob(f"*/{MODEL}"):
        if path.parent.name not in kept:
            path.unlink()
