"""`electrify glue submit DIR --data GLUE --out FILE.zip`: test predictions for the GLUE server."""

from electrify.commit import committed, read_json
from electrify.errors import UserError
from electrify.finetuning import glue_data
from electrify.finetuning.encoder import fingerprint, open_encoder
from electrify.finetuning.glue import best_jobs
from electrify.finetuning.job import Job, answers_of, load_fitted, predict
from electrify.finetuning.options import Fit, GlueSubmit
from electrify.finetuning.presets import Plan, reading_of
from electrify.finetuning.reading import described
from electrify.finetuning.results import Result, main_score, read_results
from electrify.finetuning.submit import FILES, pack, validate
from electrify.finetuning.tasks import TASKS
from electrify.progress import progress
from electrify.training.engine import Engine


def glue_submit(settings: GlueSubmit) -> None:
    """Predict, write, and check what was written as the server would."""
    glue_data.check_folder(settings.data)
    best = best_jobs(read_results(settings.results))
    if not best:
        raise UserError(
            f"{settings.results} holds no results",
            got=f"{settings.results}",
            fix="run electrify glue first",
        )
    _check_first(settings, best)
    predictions: dict[str, list[float]] = {}
    with progress("predicting") as update:
        for done, result in enumerate(best.values()):
            update(done / len(best), TASKS[result.task].title)
            predictions |= _predicted(settings, result)
            kind = described(reading_of(result.preset, TASKS[result.task]))
            score = f"{main_score(result):.4f} on dev ({kind})"
            print(f"{TASKS[result.task].title}: seed {result.seed}, {score}", flush=True)
    with committed(settings.out) as temporary:
        notes = pack(temporary, predictions)
    for note in notes:
        print(f"note: {note}")
    faults = validate(settings.out)
    if faults:
        more = f"\n       and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise UserError(
            f"{settings.out} would be rejected by the server",
            got="\n       ".join(faults[:5]) + more,
            fix="fine-tune the missing tasks into the same folder and submit again",
        )
    print(f"{settings.out}: complete; upload it at gluebenchmark.com")


def _check_first(settings: GlueSubmit, best: dict[str, Result]) -> None:
    """What can be seen to be wrong before hours of prediction."""
    if not settings.out.absolute().parent.is_dir():
        raise UserError(
            f"no folder {settings.out.parent}", got=f"{settings.out}", fix="make the folder first"
        )
    wanted = [task for task in TASKS.values() if task.averaged]
    if missing := [task.title for task in wanted if task.name not in best]:
        raise UserError(
            "the server takes all tasks or none",
            got=f"no results of {', '.join(missing)}",
            fix=f"electrify glue MODEL --tasks all --out {settings.results}",
        )
    for result in best.values():
        _job(settings, result)
        for file in TASKS[result.task].submitted:
            rows = len(glue_data.read_split(settings.data, TASKS[result.task], file.split))
            if rows != FILES[file.name].rows:
                raise UserError(
                    f"the texts for {file.name} are not the official ones",
                    got=f"{rows:,} rows",
                    fix=f"the server wants {FILES[file.name].rows:,}",
                )


def _predicted(settings: GlueSubmit, result: Result) -> dict[str, list[float]]:
    """The answers of a task's best model for each of the server's files whose texts are there."""
    task = TASKS[result.task]
    job = _job(settings, result)
    encoder, model = open_encoder(job.model), load_fitted(job)
    model.to(Engine(device=settings.device).device)
    found = {}
    for file in task.submitted:
        examples = glue_data.read_split(settings.data, task, file.split)
        logits = predict(model, encoder, task, examples, job.plan.length)
        found[file.name] = [float(a) for a in answers_of(task, logits, job.plan.score_scale)]
    return found


def _job(settings: GlueSubmit, result: Result) -> Job:
    """The job of a result, as it was run."""
    folder = settings.results / "jobs" / f"{result.task}-{result.seed}"
    about = read_json(folder / "result.json")["identity"]
    source = about["source"]
    if about["model"] != fingerprint(source):
        raise UserError(
            "the encoder that was fine-tuned is not what it was",
            got=f"{source} is gone or has other weights",
            fix="put it back, or fine-tune again",
        )
    plan = {**about["plan"], "fit": Fit(**about["plan"]["fit"])}
    job = Job(
        source,
        settings.data,
        result.task,
        result.seed,
        result.preset,
        Plan(**plan),
        settings.results,
    )
    if not (job.folder / "model.safetensors").is_file():
        raise UserError(
            f"the weights of {job.name} are gone",
            got=f"no model.safetensors in {job.folder}",
            fix="remove that folder and run the same electrify glue again",
        )
    return job
