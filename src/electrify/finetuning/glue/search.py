"""`electrify glue search MODEL --task cola`: rates, epochs and layer decay by optuna.

The study is a journal on disk: the same command again goes on with it. Scores are those of the
development examples, so the best of many trials is somewhat too good: confirm it with new seeds.
"""

from dataclasses import replace
from typing import Any

from electrify.errors import UserError, needs
from electrify.finetuning.glue.command import check_settings, planned, run_missing, task_names
from electrify.finetuning.glue.results import main_score
from electrify.finetuning.options import Search
from electrify.finetuning.results import read_result
from electrify.progress import progress
from electrify.storage.folder import refuse_other
from electrify.storage.lock import hold

SPACE: dict[str, tuple[Any, ...]] = {
    "lr": (5e-5, 1e-3),
    "layer_decay": (0.7, 0.8, 0.9, 1.0),
    "epochs": (3.0, 5.0, 10.0),
    "batch_size": (16, 32),
}
"""What is tried: the rate within bounds, the others from a list."""
GIVEN = ("preset", "head", "init_head", "length", "precision", "train_limit", "from_mnli")
"""What stays as given, for the command that confirms the best trial."""


def search(settings: Search) -> None:
    """Try settings until there are enough trials; print the best and how to use it."""
    names = task_names(settings.task)
    if len(names) != 1:
        raise UserError("one task at a time", got=f"--task {settings.task}", fix="--task cola")
    check_settings(settings)
    _check_free(settings)
    optuna = _optuna()
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"searching in {settings.out}"):
        study = _study(optuna, settings, names[0])
        with progress(f"searching {names[0]}") as update:
            while (done := _count(optuna, study)) < settings.trials:
                trial = _started_before(optuna, study) or study.ask()
                chosen = _chosen(trial)
                update(done / settings.trials, f"trial {trial.number}: {_said(chosen)}")
                score = _score(settings, names[0], trial.number, chosen)
                study.tell(trial.number, score)
                print(f"trial {trial.number}: {score:.4f} with {_said(chosen)}", flush=True)
    best = study.best_trial
    flags = " ".join(f"--{k.replace('_', '-')} {v:g}" for k, v in best.params.items())
    fixed = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name in GIVEN
        if (value := getattr(settings, name))
    )
    print(f"best of {settings.trials}: {best.value:.4f}, trial {best.number}")
    print(
        f"next: electrify glue {settings.model} --data {settings.data} --tasks {names[0]} {flags} "
        f"{fixed} --seeds 5 --out {settings.out}-best"
    )


def _check_free(settings: Search) -> None:
    """What is searched for cannot be given."""
    given = [name for name in SPACE if getattr(settings, name) is not None]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise UserError(f"{flag} is searched for", got=f"{flag} given", fix=f"leave out {flag}")


def _count(optuna: Any, study: Any) -> int:
    return len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))


def _started_before(optuna: Any, study: Any) -> Any:
    """A trial that was under way when the command was killed: its job goes on where it stopped."""
    running = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.RUNNING])
    return optuna.trial.Trial(study, running[0]._trial_id) if running else None


def _optuna() -> Any:
    optuna = needs("optuna", extra="finetune", why="searching")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, settings: Search, name: str) -> Any:
    """The journal of trials, which belongs to one model, its data and what is not searched for."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    *_, job = planned(settings, settings.model, [name], [0])
    same = dict(job.problem.identity)
    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(settings.out / "study.journal"))),
        direction="maximize",
        load_if_exists=True,
    )
    # A sampler that began anew with the same seed would suggest the first trials again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    before = study.user_attrs.get("identity", same)
    others = "another model, other data or other settings"
    refuse_other(settings.out, before, same, others, "holds a search", free={"source"})
    study.set_user_attr("identity", same)
    return study


def _chosen(trial: Any) -> dict[str, Any]:
    low, high = SPACE["lr"]
    others = {
        name: trial.suggest_categorical(name, list(values))
        for name, values in SPACE.items()
        if name != "lr"
    }
    return {"lr": trial.suggest_float("lr", low, high, log=True), **others}


def _said(chosen: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in chosen.items())


def _score(settings: Search, name: str, number: int, chosen: dict[str, Any]) -> float:
    here = replace(settings, out=settings.out / "trials" / f"{number:04d}", **chosen)
    jobs = planned(here, settings.model, [name], [0])
    run_missing(jobs, workers=1)
    result = read_result(jobs[-1].folder / "result.json")
    for job in jobs:
        (job.folder / "model.safetensors").unlink(missing_ok=True)
    return float("-inf") if result.failed else main_score(result)
