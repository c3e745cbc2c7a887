"""`electrify glue search MODEL --task cola`: search hyperparameters with Optuna.

The study is a journal on disk, which rerunning the command resumes. Trials are scored on the
development set, so the best score is optimistic: confirm it with new seeds.
"""

from dataclasses import replace
from typing import Any

from electrify.errors import UserError, needs
from electrify.finetuning.glue.command import plan_jobs, run_missing, settled, task_names
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
"""The search space: a range of learning rates, and lists of values of the others."""
GIVEN = ("preset", "head", "init_head", "length", "precision", "train_limit", "from_mnli")
"""Options that are not searched; the command that confirms the best trial repeats them."""


def search(settings: Search) -> None:
    """Run trials until there are enough; print the best one and the command to confirm it."""
    names = task_names(settings.task)
    if len(names) != 1:
        raise UserError(
            "search needs exactly one task", got=f"--task {settings.task}", fix="use --task cola"
        )
    settings = settled(settings)
    for name in SPACE:
        if (value := getattr(settings, name)) is not None:
            flag = f"--{name.replace('_', '-')}"
            fix = f"leave out {flag}"
            raise UserError(f"{flag} is chosen by the search", got=f"{flag} {value}", fix=fix)
    optuna = needs("optuna", extra="finetune", why="hyperparameter search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    states = optuna.trial.TrialState
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"searching in {settings.out}"):
        study = _study(optuna, settings, names[0])
        with progress(f"searching {names[0]}") as update:
            while (done := len(study.get_trials(states=[states.COMPLETE]))) < settings.trials:
                killed = study.get_trials(deepcopy=False, states=[states.RUNNING])
                trial = optuna.trial.Trial(study, killed[0]._trial_id) if killed else study.ask()
                chosen = _chosen(trial)
                update(done / settings.trials, f"trial {trial.number}: {_describe(chosen)}")
                score = _score(settings, names[0], trial.number, chosen)
                study.tell(trial.number, score)
                print(f"trial {trial.number}: {score:.4f} with {_describe(chosen)}", flush=True)
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


def _study(optuna: Any, settings: Search, name: str) -> Any:
    """Open the journal of trials, which belongs to one model, its data and its other settings."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    *_, job = plan_jobs(settings, settings.model, [name], [0])
    identity = dict(job.problem.identity)
    study = optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(settings.out / "study.journal"))),
        direction="maximize",
        load_if_exists=True,
    )
    # With the same seed as before, the sampler would suggest the first trials again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials))
    before = study.user_attrs.get("identity", identity)
    others = "a different model, different data or different settings"
    refuse_other(settings.out, before, identity, others, "contains a search", free={"source"})
    study.set_user_attr("identity", identity)
    return study


def _chosen(trial: Any) -> dict[str, Any]:
    # The order of the suggestions determines what the seeded sampler draws.
    others = {n: trial.suggest_categorical(n, list(v)) for n, v in SPACE.items() if n != "lr"}
    return {"lr": trial.suggest_float("lr", *SPACE["lr"], log=True), **others}


def _describe(chosen: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in chosen.items())


def _score(settings: Search, name: str, number: int, chosen: dict[str, Any]) -> float:
    out = settings.out / "trials" / f"{number:04d}"
    trial = replace(settings, out=out, workers=1, **chosen)
    jobs = plan_jobs(trial, settings.model, [name], [0])
    run_missing(jobs, workers=1)
    result = read_result(jobs[-1].folder / "result.json")
    for job in jobs:
        (job.folder / "model.safetensors").unlink(missing_ok=True)
    return float("-inf") if result.failed else main_score(result)
