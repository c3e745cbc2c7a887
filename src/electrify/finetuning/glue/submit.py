"""`electrify glue submit DIR --data GLUE --out FILE.zip`: write a submission to the GLUE server.

If `--out` is a folder, write single files in the server's format, for any tasks.
"""

from collections.abc import Sequence
from pathlib import Path

from electrify.errors import UserError
from electrify.finetuning.devices import prediction_precision
from electrify.finetuning.encoder import fingerprint, open_encoder
from electrify.finetuning.fit import outputs
from electrify.finetuning.glue import data as glue_data
from electrify.finetuning.glue.command import task_names
from electrify.finetuning.glue.presets import TaskPlan, describe_reading, reading_of
from electrify.finetuning.glue.problem import MODEL, GlueProblem, load_finetuned
from electrify.finetuning.glue.published import published
from electrify.finetuning.glue.results import best_jobs, main_score, need_results
from electrify.finetuning.glue.submission import (
    FILLED,
    SUBMISSION_FILES,
    pack,
    validate_submission,
    write_files,
)
from electrify.finetuning.glue.tables import beside_published
from electrify.finetuning.glue.tasks import TASKS, Submitted
from electrify.finetuning.options import Fit, GlueSubmit
from electrify.finetuning.results import Result
from electrify.finetuning.table import terminal
from electrify.progress import progress
from electrify.storage.commit import committed, read_json
from electrify.training.engine import Engine


def glue_submit(settings: GlueSubmit) -> None:
    """Predict the test files, write the predictions, and validate them as the server would."""
    glue_data.check_folder(settings.data)
    best = best_jobs(need_results(settings.results))
    if not best:
        fix = "run electrify glue with other settings and another --out"
        raise UserError("all runs failed", got=f"{settings.results}", fix=fix)
    if settings.tasks:
        best = _chosen_tasks(settings, best)
    wanted = _check_first(settings, best)
    predictions: dict[str, list[float]] = {}
    with progress("predicting") as update:
        for done, (task, files) in enumerate(wanted.items()):
            result = best[task]
            update(done / len(wanted), TASKS[task].title)
            predictions |= _predicted(settings, result, files)
            kind = describe_reading(reading_of(result.preset, TASKS[task]))
            score = f"{main_score(result):.4f} on dev ({kind})"
            print(f"{TASKS[task].title}: seed {result.seed}, {score}", flush=True)
    if _is_zip(settings.out):
        _write_zip(settings.out, predictions)
    else:
        _write_folder(settings.out, predictions)


def _chosen_tasks(settings: GlueSubmit, best: dict[str, Result]) -> dict[str, Result]:
    names = task_names(settings.tasks)
    if missing := [TASKS[name].title for name in names if name not in best]:
        got = f"results of {', '.join(TASKS[name].title for name in best)}"
        fix = f"fine-tune them with electrify glue --out {settings.results}, or leave them out"
        raise UserError(f"no results of {', '.join(missing)}", got=got, fix=fix)
    return {name: best[name] for name in names}


def _is_zip(out: Path) -> bool:
    """Return whether to write a zip, which needs all tasks, rather than a folder of any files."""
    return out.suffix.lower() == ".zip"


def _write_zip(path: Path, predictions: dict[str, list[float]]) -> None:
    with committed(path) as temporary:
        notes = pack(temporary, predictions)
    for note in notes:
        print(f"note: {note}")
    faults = validate_submission(path)
    if faults:
        more = f"\n       and {len(faults) - 5} more" if len(faults) > 5 else ""
        got = "\n       ".join(faults[:5]) + more
        fix = "fine-tune the missing tasks into the same folder and rerun this command"
        raise UserError(f"the server would reject {path}", got=got, fix=fix)
    print(f"{path}: complete; upload it at gluebenchmark.com")
    print("Published test results, to compare with the scores from the server:\n")
    print(terminal(beside_published({}, published("test"), title="GLUE, published test results")))


def _write_folder(folder: Path, predictions: dict[str, list[float]]) -> None:
    for path in write_files(folder, predictions):
        print(path)
    missing = [name for name in SUBMISSION_FILES if name not in predictions and name != FILLED]
    if missing:
        print(f"note: the server requires all files; missing: {', '.join(missing)}")
    else:
        print("note: all tasks are complete; use --out FILE.zip to pack them for the server")


def _check_first(settings: GlueSubmit, best: dict[str, Result]) -> dict[str, list[Submitted]]:
    """Return the files to write, by task; errors are raised before hours of prediction."""
    out, packed = settings.out, _is_zip(settings.out)
    if not out.absolute().parent.is_dir():
        raise UserError(f"no folder {out.parent}", got=f"{out}", fix="create the folder first")
    if out.is_dir() if packed else out.is_file():
        fix = "use FILE.zip for the server, or a folder for single files"
        raise UserError(f"{out} is a {'folder' if packed else 'file'}", got=f"{out}", fix=fix)
    needed = [task for task in TASKS.values() if task.averaged and task.submitted] if packed else []
    if missing := [task.title for task in needed if task.name not in best]:
        raise UserError(
            "the server requires all tasks",
            got=f"no results of {', '.join(missing)}",
            fix=f"run electrify glue MODEL --tasks all --out {settings.results}; or use --out "
            "FOLDER to write the test predictions of the available tasks",
        )
    wanted: dict[str, list[Submitted]] = {}
    for result in best.values():
        task = TASKS[result.task]
        _problem(settings, result)
        files = [
            file
            for file in task.submitted
            if packed or glue_data.has_split(settings.data, task, file.split)
        ]
        if files:
            wanted[task.name] = files
        for file in files:
            rows = len(glue_data.read_split(settings.data, task, file.split))
            if rows != SUBMISSION_FILES[file.name].rows:
                raise UserError(
                    f"the test file for {file.name} is not the official one",
                    got=f"{rows:,} rows",
                    fix=f"use the official file, which has {SUBMISSION_FILES[file.name].rows:,}",
                )
    if not wanted:
        got = f"results of {', '.join(TASKS[name].title for name in best)}"
        fix = "point --data to a GLUE folder with their test files"
        raise UserError(f"{settings.data} has no test files", got=got, fix=fix)
    return wanted


def _predicted(
    settings: GlueSubmit, result: Result, files: Sequence[Submitted]
) -> dict[str, list[float]]:
    """Predict some of the server's files with the best model of a task."""
    problem, source, folder = _problem(settings, result)
    encoder = open_encoder(source)
    model = load_finetuned(problem, encoder, result.seed, folder)
    model.to(Engine(device=settings.device).device)
    precision = prediction_precision(problem.plan.fit.precision, settings.device)
    predictions = {}
    for file in files:
        rows = problem.prepare(problem.read(file.split), encoder, learn=False)
        logits = outputs(model, rows.lengths, rows.collate, precision=precision)
        predictions[file.name] = [float(a.prediction) for a in problem.answers(rows, logits)]
    return predictions


def _problem(settings: GlueSubmit, result: Result) -> tuple[GlueProblem, str, Path]:
    """Return the problem of a result as it was run, the source of its encoder and its folder."""
    folder = settings.results / "jobs" / f"{result.task}-{result.seed}"
    identity = read_json(folder / "result.json")["identity"]
    source = identity["source"]
    if identity["model"] != fingerprint(source):
        got = f"{source} is missing or has different weights"
        fix = "restore it, or fine-tune again"
        raise UserError("the encoder has changed since it was fine-tuned", got=got, fix=fix)
    if not (folder / MODEL).is_file():
        got = f"no {MODEL} in {folder}"
        fix = "remove that folder and rerun the same electrify glue command"
        raise UserError(f"the weights of {folder.name} are missing", got=got, fix=fix)
    plan = TaskPlan(**{**identity["plan"], "fit": Fit(**identity["plan"]["fit"])})
    return GlueProblem(settings.data, TASKS[result.task], plan, result.preset), source, folder
