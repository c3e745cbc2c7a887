"""`electrify glue MODEL --data GLUE --out DIR`: tasks × seeds to a table with statistics.

Every job has a folder, DIR/jobs/cola-0, and is committed by itself. The same command again runs
what is missing: seeds and tasks can be added later, and finished jobs are never run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from electrify.config import check_least, unknown
from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, fingerprint, open_encoder
from electrify.finetuning.experiment import LOADED, commit, progressing, run_one, stored_result
from electrify.finetuning.fit import OnProgress, silent
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


def glue(settings: Glue) -> list[dict[str, Any]]:
    """Run the jobs that are missing, then show and write the tables; returns the results."""
    names = task_names(settings.tasks)
    check_settings(settings)
    seeds = settings.seeds or PRESETS[settings.preset].seeds
    jobs = planned(settings, settings.model, names, range(seeds))
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"fine-tuning in {settings.out}"):
        run_missing(jobs, settings.workers)
        drop_models(settings.out, sources_of(jobs))
    results = read_results(settings.out)
    name = short_name(settings.model)
    print(glue_summary(results, name))
    files = sorted({path.stem for path in write_tables(settings.out, results, name)})
    print(f"{settings.out}: {', '.join(files)} as .md, .tex and .csv")
    return [result_json(result) for result in results]


def short_name(model: str) -> str:
    """Return what to call a model: its name on the Hub, or the folder that tells it from others.

    >>> short_name("/data/run-7/model/discriminator"), short_name("google/electra-small-generator")
    ('run-7', 'google/electra-small-generator')
    >>> short_name("model/encoder")
    'model/encoder'
    """
    path = Path(model)
    if not path.is_absolute() and not path.exists():
        return model
    names = [name for name in reversed(path.parts) if name not in (*EVERY_EXPORT, path.anchor)]
    return names[0] if names else model


EVERY_EXPORT = ("model", "discriminator", "generator", "encoder")
"""Folders of any `electrify export`, which tell no model from another."""


class Job(NamedTuple):
    """A problem and a seed, and where they are run."""

    problem: GlueProblem
    model: str
    seed: int
    out: Path
    device: str = "auto"
    threads: int = 0
    """Of this job; 0: as many as torch takes."""

    @property
    def name(self) -> str:
        """The job's folder."""
        return f"{self.problem.name}-{self.seed}"

    @property
    def folder(self) -> Path:
        """Where the job keeps what is its own."""
        return self.out / "jobs" / self.name


def run_job(job: Job, on_progress: OnProgress = silent) -> Result:
    """Run one job, in this process."""
    if job.threads:
        torch.set_num_threads(job.threads)
    fit = job.problem.plan.fit
    return run_one(job.problem, job.model, job.seed, job.folder, fit, job.device, on_progress)


def check_settings(settings: Tuning) -> None:
    """Refuse invalid settings before anything is loaded."""
    check_folder(settings.data)
    check_least(settings, train_limit=0, workers=0)
    if settings.out.is_file():
        raise UserError(f"{settings.out} is a file", got=f"{settings.out}", fix="give a folder")


def task_names(text: str) -> list[str]:
    """Tasks from "all" or from names with commas.

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
    asked = [name for part in text.lower().split(",") if (name := part.strip())]
    for name in asked:
        if name not in known:
            raise unknown(f"task {name}", name, TASKS, "task")
    if not asked:
        raise UserError("no tasks", got=f"--tasks {text!r}", fix=f"--tasks {','.join(TASKS)}")
    return list(dict.fromkeys(known[name] for name in asked))


def preset_label(settings: Tuning) -> str:
    """The preset's name, with what was changed of it."""
    changed = {
        name.replace("_", " "): value
        for name, default in CHANGES.items()
        if (value := getattr(settings, name)) != default
    }
    return ", ".join([settings.preset, *(f"{name} {value}" for name, value in changed.items())])


# What changes a score, with the value that is the preset's own.
CHANGES = {
    field.name: field.default
    for field in fields(Tuning)
    if field.name not in ("data", "out", "preset", "train_limit", "workers", "device")
}


def planned(settings: Tuning, model: str, names: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """All jobs, those that others start from first."""
    preset, encoder = PRESETS[settings.preset], open_encoder(model)
    _check_model(settings, preset, encoder)
    chains = dict(preset.chains)
    if settings.from_mnli:
        chains |= {name: "mnli" for name in task_names(settings.from_mnli) if name != "mnli"}
    sources = {chains[name] for name in names if name in chains}
    wanted = [(name, seed) for name in names for seed in seeds]
    wanted += [(source, 0) for source in sorted(sources) if source not in names]
    wanted.sort(key=lambda pair: pair[0] in chains)
    of_fit = ("lr", "epochs", "batch_size", "layer_decay", "precision")
    given = {name: getattr(settings, name) for name in of_fit}
    changes = {name: value for name, value in given.items() if value is not None}
    width, label, model_is = encoder.config.hidden_size, preset_label(settings), fingerprint(model)
    problems = {}
    for name in dict.fromkeys(name for name, _ in wanted):
        task, source = TASKS[name], chains.get(name, "")
        _check_files(settings.data, name, label if name in names else "")
        how = plan_for(preset, task, width, settings.length, changes, settings.head)
        how = how._replace(starts_from=source, init_head=settings.init_head)
        start = settings.out / "jobs" / f"{source}-0" / MODEL if source else None
        data_is = data_fingerprint(settings.data, task)
        dev: list[Split] = [s for s in task.files if s.startswith("dev") and s in data_is]
        problem = GlueProblem(settings.data, task, how, label, dev, settings.train_limit, start)
        problems[name] = problem.identified(model, model_is, data_is)
    where = settings.out, settings.device, _threads(settings.workers)
    return [Job(problems[name], model, seed, *where) for name, seed in wanted]


def _check_model(settings: Tuning, preset: Preset, encoder: Encoder) -> None:
    if not 8 <= settings.length <= encoder.longest:
        fix = f"give 8 … {encoder.longest}"
        raise UserError("--length does not fit the encoder", got=f"{settings.length}", fix=fix)
    if settings.init_head == "pretrained" and (settings.head or preset.head) == "official":
        raise UserError(
            "--init-head pretrained needs the architecture's own head",
            got="the official head, which no model comes with",
            fix="add --head own",
        )


def _check_files(data: Path, name: str, label: str) -> None:
    """Refuse a task that lacks a file, for training or for the scores that its preset reads."""
    read = {split for split, _ in reading_of(label, TASKS[name])} if label else set()
    splits: set[Split] = {"train", "dev", *read}
    for split in sorted(splits):
        if not has_split(data, TASKS[name], split):
            read_split(data, TASKS[name], split)  # which says where it was looked for


def _threads(workers: int) -> int:
    """Of one of several jobs at a time, so that they do not wait for each other."""
    cores = available_cores()
    return 0 if workers == 1 else max(1, cores // (workers or cores))


def run_missing(jobs: Sequence[Job], workers: int) -> None:
    """Run what is not finished; those that start from another job's model after that one."""
    sources = sources_of([job for job in jobs if not finished(job)])
    missing = [job for job in jobs if not finished(job, weights_wanted=job.name in sources)]
    if not missing:
        return
    done = len(jobs) - len(missing)
    with LOADED, progress("fine-tuning") as update, executor(workers) as pool:
        for chained in (False, True):
            wave = [job for job in missing if bool(job.problem.starts_from) == chained]
            wave = [job for job in wave if not _source_failed(job)]
            if workers == 1:  # in this process, where every step can be seen
                found: Iterator[Result] = (
                    run_job(job, progressing(update, job.name, done, len(jobs))) for job in wave
                )
            else:
                found = in_order(run_job, wave, pool, ahead=max(1, len(wave)))
            for result in found:
                done += 1
                update(done / len(jobs), "")
                print(f"{done}/{len(jobs)} {line(result)}", flush=True)


def _source_failed(job: Job) -> bool:
    """Commit a failure for a job that cannot start, because what it starts from has failed."""
    problem = job.problem
    if problem.starts_from is None or problem.starts_from.is_file():
        return False
    why = f"{problem.plan.starts_from}-0, its start, failed"
    result = Result(problem.name, job.seed, problem.preset, failed=why)
    print(line(commit(problem, job.folder, result)), flush=True)
    return True


def finished(job: Job, weights_wanted: bool = False) -> bool:
    """Whether a job was run before, in just this way; if in another, that is an error."""
    result = stored_result(job.problem, job.folder)
    if result is None:
        return False
    if (result.task, result.seed) != (job.problem.name, job.seed):
        got = f"the result of task {result.task}, seed {result.seed}"
        raise damaged_result(job.folder / "result.json", got)
    return bool(result.failed) or not weights_wanted or (job.folder / MODEL).exists()


def sources_of(jobs: Sequence[Job]) -> set[str]:
    """The names of jobs whose models others start from."""
    starts = [job.problem.starts_from for job in jobs]
    return {start.parent.name for start in starts if start is not None}


def line(result: Result) -> str:
    """One job in a line."""
    head = f"{TASKS[result.task].title} seed {result.seed}"
    if result.failed:
        return f"{head}: failed: {result.failed}"
    said = ", ".join(
        f"{metric} {value:.4f}" + (" (mismatched)" if split == "dev_mismatched" else "")
        for split, metrics in result.scores.items()
        for metric, value in metrics.items()
    )
    speed = f"{duration(result.seconds)}, {result.examples_per_second:.0f} examples/s"
    doubt = f"; degenerate: {result.degenerate}" if result.degenerate else ""
    return f"{head}: {said} ({speed}){doubt}"


def drop_models(out: Path, keep: set[str]) -> None:
    """Keep the weights of the best run of each task, and of what others start from."""
    best = best_jobs(read_results(out)).values()
    kept = keep | {f"{result.task}-{result.seed}" for result in best}
    for path in (out / "jobs").glob("*/result.json"):
        kept.add(f"{read_json(path)['identity']['plan']['starts_from']}-0")
    for path in (out / "jobs").glob(f"*/{MODEL}"):
        if path.parent.name not in kept:
            path.unlink()
