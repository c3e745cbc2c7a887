"""`electrify suite SUITE.toml MODEL… --out DIR`: tasks, seeds and models in one table.

DIR/suite.toml               the file, as it was
    models/NAME              the copies with random weights
    jobs/MODEL/TASK-SEED     a folder for each job, committed on its own
    suite.*, seeds.*         tables of means and of seeds, as .md, .tex and .csv
    B-minus-A.*              models compared
    suite.json               everything in the tables; written last

Everything is checked before anything is trained. Rerunning the command runs the jobs that are
missing, so that seeds, tasks and models can be added.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from electrify.config import check_minimum
from electrify.errors import UserError
from electrify.finetuning.devices import settle_precision
from electrify.finetuning.encoder import fingerprint, open_encoder
from electrify.finetuning.options import Blimp, Suite
from electrify.finetuning.results import Result
from electrify.finetuning.suite.file import (
    SuiteFile,
    TunedSettings,
    check_seeds,
    merged,
    read_suite,
)
from electrify.finetuning.suite.jobs import (
    SuiteJob,
    finished_result,
    run_suite_jobs,
    suite_workers,
)
from electrify.finetuning.suite.models import (
    SuiteModel,
    parse_models,
    scores_sentences,
    with_weights,
)
from electrify.finetuning.suite.plans import CheckedTask, check_task, check_tuned
from electrify.finetuning.suite.record import (
    COPY,
    RECORD,
    RecordedModel,
    RecordedRun,
    RecordedTask,
    SuiteRecord,
    recorded_scores,
    write_record,
)
from electrify.finetuning.suite.tables import suite_tables, suite_text, write_suite_tables
from electrify.storage.commit import committed, left_over, read_json, sha256_of
from electrify.storage.lock import hold


def suite(settings: Suite) -> dict[str, Any]:
    """Check everything, run the missing jobs, write and print the tables; returns the record."""
    chosen = _chosen(settings)
    given = (settings.models,) if isinstance(settings.models, str) else settings.models
    models = parse_models(given)
    tasks = _checked(settings, chosen, models)
    absent = _absent(models, tasks)
    out = settings.out.absolute()
    precision = settle_precision(settings.precision, settings.device, out)
    out.mkdir(parents=True, exist_ok=True)
    with hold(out / "lock", f"running a suite in {settings.out}"):
        scored = any(task.plan is None for task in tasks)
        loaded = [with_weights(model, out / "models", scored) for model in models]
        jobs = []
        for model in loaded:
            for task in tasks:
                if (model.name, task.row.name) not in {(name, other) for name, other, _ in absent}:
                    tuned = merged(
                        chosen.tuned, task.row, chosen.models.get(model.name, TunedSettings())
                    )
                    jobs += _jobs(settings, chosen.seeds, task, model, tuned, precision, out)
        finished = [finished_result(job) for job in jobs]  # refuses other settings and data
        for leftover in left_over(out, ["*"]):
            leftover.unlink(missing_ok=True)
        (out / RECORD).unlink(missing_ok=True)
        with committed(out / COPY) as temporary:
            temporary.write_bytes(settings.file.read_bytes())
        results = run_suite_jobs(jobs, finished, settings.workers)
        record = _record(settings, loaded, tasks, jobs, results, absent, out)
        tables = suite_tables(record)
        write_suite_tables(out, tables)
        write_record(out, record)
        (out / "lock").unlink(missing_ok=True)
    print(f"\n{suite_text(tables)}\n")
    print(f"{settings.out}: wrote {', '.join(tables)} as .md, .tex and .csv, and {RECORD}")
    print(f"next:\n  electrify report {shlex.quote(str(settings.out))} --out report.html")
    written: dict[str, Any] = read_json(out / RECORD)
    return written


def _chosen(settings: Suite) -> SuiteFile:
    """Return the file with the options of the command applied; refuses invalid ones."""
    check_minimum(settings, threads=1, train_limit=0)
    suite_workers(settings.workers, 0, 1)
    if settings.out.is_file():
        raise UserError(f"{settings.out} is a file", got=f"{settings.out}", fix="use a folder")
    if settings.data is not None and not settings.data.is_dir():
        fix = "give the folder that the paths in the file start from"
        raise UserError(
            f"there is no folder {settings.data}", got=f"--data {settings.data}", fix=fix
        )
    chosen = read_suite(settings.file)
    if settings.seeds is not None:
        check_seeds(settings.seeds, "--seeds")
        chosen = chosen._replace(seeds=settings.seeds)
    return chosen


def _checked(settings: Suite, chosen: SuiteFile, models: Sequence[SuiteModel]) -> list[CheckedTask]:
    """Return the tasks after reading their data, and the configuration of every model."""
    for model in models:
        open_encoder(model.encoder)
        for row in chosen.tasks:
            own = chosen.models.get(model.name, TunedSettings())
            check_tuned(merged(chosen.tuned, row, own), model.encoder)
    for name in chosen.models.keys() - {model.name for model in models}:
        names = ", ".join(model.name for model in models)
        print(f"note: {settings.file.name} has settings for {name}, which is not among {names}")
    base = settings.data if settings.data is not None else settings.file.parent
    return [check_task(row, base) for row in chosen.tasks]


def _absent(
    models: Sequence[SuiteModel], tasks: Sequence[CheckedTask]
) -> list[tuple[str, str, str]]:
    """Return the models that cannot score sentences, for which BLiMP is left out."""
    pairs = [task for task in tasks if task.plan is None]
    found = [
        (model.name, task.row.name, why)
        for task in pairs
        for model in models
        if (why := scores_sentences(model))
    ]
    for name, task, why in found:
        print(f"note: {task} is left out for {name}: {why}")
    return found


def _jobs(
    settings: Suite,
    seeds: int,
    task: CheckedTask,
    model: SuiteModel,
    tuned: TunedSettings,
    precision: Any,
    out: Path,
) -> list[SuiteJob]:
    """Return the jobs of a task and a model: one for each seed; only one for minimal pairs."""
    if settings.train_limit is not None:
        tuned = merged(tuned, TunedSettings(train_limit=settings.train_limit))
    name, folder = task.row.name, out / "jobs" / model.folder
    where = settings.device, settings.threads
    if task.plan is None:
        base = settings.data if settings.data is not None else settings.file.parent
        pairs = Blimp(
            model=model.scorer,
            data=(base / task.row.data).absolute(),
            out=folder / name,
            limit=task.row.dev_limit,
            device=settings.device,
        )
        return [SuiteJob(name, model.name, model.scorer, 0, folder / name, pairs, *where)]
    plan = task.plan(tuned, model.encoder, (precision, settings.device))
    return [
        SuiteJob(name, model.name, model.encoder, seed, folder / f"{name}-{seed}", plan, *where)
        for seed in range(seeds)
    ]


def _record(
    settings: Suite,
    models: Sequence[SuiteModel],
    tasks: Sequence[CheckedTask],
    jobs: Sequence[SuiteJob],
    results: Sequence[Result],
    absent: list[tuple[str, str, str]],
    out: Path,
) -> SuiteRecord:
    kinds = {task.row.name: task.row.benchmark for task in tasks}
    runs = [
        RecordedRun(
            model=job.model,
            task=job.task,
            seed=job.seed,
            settings=result.preset,
            train_rows=result.train_rows,
            scores=recorded_scores(kinds[job.task], result),
            degenerate=result.degenerate,
            failed=result.failed,
            file=(job.folder / "result.json").relative_to(out).as_posix(),
        )
        for job, result in zip(jobs, results, strict=True)
    ]
    return SuiteRecord(
        settings.file.name,
        sha256_of(settings.file),
        [RecordedModel(model.name, model.given, fingerprint(model.encoder)) for model in models],
        [RecordedTask(task.row.name, task.row.benchmark, task.metric) for task in tasks],
        runs,
        absent,
    )
