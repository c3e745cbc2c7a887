"""`electrify glue MODEL --data GLUE --out DIR`: tasks × seeds to a table with statistics.

Every job is committed by itself. The same command again runs what is missing: seeds and tasks can
be added later, and finished jobs are never run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from electrify.config import check_least, unknown
from electrify.errors import UserError
from electrify.finetuning.encoder import HEADS_DRAWN, fingerprint, open_encoder
from electrify.finetuning.fit import forget
from electrify.finetuning.glue import data as glue_data
from electrify.finetuning.glue.presets import PRESETS, plan, reading_of
from electrify.finetuning.glue.problem import Job, identified, run_job
from electrify.finetuning.glue.results import (
    Result,
    as_table,
    main_score,
    read_result,
    read_results,
    write_result,
)
from electrify.finetuning.glue.tables import shown, write_tables
from electrify.finetuning.glue.tasks import TASKS, Split
from electrify.finetuning.options import Glue, Tuning
from electrify.jobs import available_cores, executor, in_order
from electrify.progress import duration, progress
from electrify.storage.commit import differences, made_before, read_json
from electrify.storage.lock import hold


def glue(settings: Glue) -> list[dict[str, Any]]:
    """Run the jobs that are missing, then show and write the tables; returns the results."""
    names = task_names(settings.tasks)
    check_settings(settings)
    seeds = settings.seeds or PRESETS[settings.preset].seeds
    jobs = planned(settings, settings.model, names, range(seeds))
    settings.out.mkdir(parents=True, exist_ok=True)
    lock = hold(settings.out / "lock", f"fine-tuning in {settings.out}")
    with lock:
        run_missing(jobs, settings.workers)
        drop_models(settings.out, sources_of(jobs))
    results = read_results(settings.out)
    name = short_name(settings.model)
    print(shown(results, name))
    files = sorted({path.stem for path in write_tables(settings.out, results, name)})
    print(f"{settings.out}: {', '.join(files)} as .md, .tex and .csv")
    return [as_table(result) for result in results]


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


def check_settings(settings: Tuning) -> None:
    """Refuse what cannot be, before anything is loaded."""
    glue_data.check_folder(settings.data)
    check_least(settings, train_limit=0, workers=0)
    if settings.out.is_file():
        raise UserError(f"{settings.out} is a file", got=f"{settings.out}", fix="give a folder")


def task_names(text: str) -> list[str]:
    """Tasks from "all" or from names with commas.

    >>> task_names("cola, stsb")
    ['cola', 'stsb']
    """
    if text == "all":
        return [task.name for task in TASKS.values() if task.averaged]
    names = [ALIASES.get(name, name) for part in text.lower().split(",") if (name := part.strip())]
    for name in names:
        if name not in TASKS:
            raise unknown(f"task {name}", name, TASKS, "task")
    if not names:
        raise UserError("no tasks", got=f"--tasks {text!r}", fix=f"--tasks {','.join(TASKS)}")
    return list(dict.fromkeys(names))


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

ALIASES = {"sst": "sst2", "sst-2": "sst2", "sts": "stsb", "sts-b": "stsb"}


def planned(settings: Tuning, model: str, names: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """All jobs, those that others start from first."""
    preset, encoder = PRESETS[settings.preset], open_encoder(model)
    if not 8 <= settings.length <= encoder.longest:
        raise UserError(
            "--length does not fit the encoder",
            got=f"{settings.length}",
            fix=f"give 8 … {encoder.longest}",
        )
    if settings.init_head == "pretrained" and (settings.head or preset.head) == "official":
        raise UserError(
            "--init-head pretrained needs the architecture's own head",
            got="the official head, which no model comes with",
            fix="add --head own",
        )
    of_fit = ("lr", "epochs", "batch_size", "layer_decay", "precision")
    given = {name: getattr(settings, name) for name in of_fit}
    changes = {name: value for name, value in given.items() if value is not None}
    label = preset_label(settings)
    chained = (
        [n for n in task_names(settings.from_mnli) if n != "mnli"] if settings.from_mnli else []
    )
    chains = {**preset.chains, **dict.fromkeys(chained, "mnli")}
    wanted = [(name, seed) for name in names for seed in seeds]
    sources = {chains[name] for name in names if name in chains}
    wanted += [(source, 0) for source in sorted(sources) if source not in names]
    wanted.sort(key=lambda pair: pair[0] in chains)
    for name in {name for name, _ in wanted}:
        reading = reading_of(label, TASKS[name]) if name in names else ()
        splits: set[Split] = {"train", "dev", *(split for split, _ in reading)}
        for split in sorted(splits):
            if not glue_data.has_split(settings.data, TASKS[name], split):
                glue_data.read_split(settings.data, TASKS[name], split)
    model_is = fingerprint(model)
    data_is = {n: glue_data.fingerprint(settings.data, TASKS[n]) for n in {n for n, _ in wanted}}
    jobs = []
    for name, seed in wanted:
        how = plan(
            preset, TASKS[name], encoder.config.hidden_size, settings.length, changes, settings.head
        )._replace(starts_from=chains.get(name, ""), init_head=settings.init_head)
        start = settings.out / "jobs" / f"{how.starts_from}-0" / "model.safetensors"
        job = Job(
            model,
            settings.data,
            name,
            seed,
            label,
            how,
            settings.out,
            settings.train_limit,
            start if how.starts_from else None,
            settings.device,
            _threads(settings.workers),
        )
        jobs.append(identified(job, model_is, data_is[name]))
    return jobs


def _threads(workers: int) -> int:
    """Of one of several jobs at a time, so that they do not wait for each other."""
    cores = available_cores()
    return 0 if workers == 1 else max(1, cores // (workers or cores))


def run_missing(jobs: Sequence[Job], workers: int) -> None:
    """Run what is not finished; those that start from another job's model after that one."""
    dependent = [job for job in jobs if job.starts_from is not None and not finished(job)]
    sources = sources_of(dependent)
    missing = [job for job in jobs if not finished(job, weights_wanted=job.name in sources)]
    if not missing:
        return
    done = len(jobs) - len(missing)
    with progress("fine-tuning") as update, executor(workers) as pool:
        for wave in _waves(missing):
            wave = [job for job in wave if not _source_failed(job)]
            if workers == 1:  # in this process, where every step can be seen
                found: Iterator[Result] = (
                    run_job(job, partial(_step, update, job, done, len(jobs))) for job in wave
                )
            else:
                found = in_order(run_job, wave, pool, ahead=len(wave))
            for result in found:
                done += 1
                update(done / len(jobs), "")
                print(f"{done}/{len(jobs)} {line(result)}", flush=True)


def _step(update: Any, job: Job, done: int, count: int, step: int, steps: int, loss: float) -> None:
    update((done + step / steps) / count, f"{job.name} {step:,}/{steps:,} loss {loss:.3f}")


def _source_failed(job: Job) -> bool:
    """Commit a failure for a job that cannot start, because what it starts from has failed."""
    if job.starts_from is None or job.starts_from.is_file():
        return False
    job.folder.mkdir(parents=True, exist_ok=True)
    result = Result(
        job.task, job.seed, job.preset, failed=f"{job.plan.starts_from}-0, its start, failed"
    )
    write_result(job.folder, result, job.identity)
    print(line(result), flush=True)
    return True


def _waves(jobs: Sequence[Job]) -> list[list[Job]]:
    chained = [job for job in jobs if job.starts_from]
    return [wave for wave in ([j for j in jobs if not j.starts_from], chained) if wave]


def finished(job: Job, weights_wanted: bool = False) -> bool:
    """Whether a job was run before, in just this way; if in another, that is an error."""
    begun, path = job.folder / "identity.json", job.folder / "result.json"
    if not begun.is_file() and not path.is_file():
        return False
    before = read_json(path)["identity"] if path.is_file() else read_json(begun)
    other = differences(before, job.identity, free={"source"})
    if since := made_before(before, job.identity, HEADS_DRAWN, free={"source", "preset"}):
        raise UserError(
            f"{job.folder} was made before {since}",
            got=other,
            fix="use another --out; nothing was touched",
        )
    if other:
        raise UserError(
            f"{job.folder} was made with other settings, another model or other data",
            got=other,
            fix="use the same ones, or another --out; nothing was touched",
        )
    if not path.is_file():
        return False
    forget(job.folder)  # of a process that was killed just after the result
    failed = bool(read_result(path).failed)
    return failed or not weights_wanted or (job.folder / "model.safetensors").exists()


def sources_of(jobs: Sequence[Job]) -> set[str]:
    """The names of jobs whose models others start from."""
    return {job.starts_from.parent.name for job in jobs if job.starts_from is not None}


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


def best_jobs(results: Sequence[Result]) -> dict[str, Result]:
    """The run of each task that is best on its development examples."""
    best: dict[str, Result] = {}
    for result in results:
        if not result.failed and (
            result.task not in best or main_score(result) > main_score(best[result.task])
        ):
            best[result.task] = result
    return best


def drop_models(out: Path, keep: set[str]) -> None:
    """Keep the weights of the best run of each task, and of what others start from."""
    results = read_results(out)
    kept = keep | {f"{result.task}-{result.seed}" for result in best_jobs(results).values()}
    for path in (out / "jobs").glob("*/result.json"):
        kept.add(f"{read_json(path)['identity']['plan']['starts_from']}-0")
    for path in (out / "jobs").glob("*/model.safetensors"):
        if path.parent.name not in kept:
            path.unlink()
