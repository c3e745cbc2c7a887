"""`electrify glue search MODEL --task cola`: rates, epochs and layer decay by optuna.

The study is a journal on disk: the same command again goes on with it. Scores are those of the
development examples, so the best of many trials is somewhat too good: confirm it with new seeds.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from electrify.errors import UserError
from electrify.finetuning.glue import Tuning, check_settings, finished, planned, task_names
from electrify.finetuning.job import run_job
from electrify.finetuning.results import main_score, read_result
from electrify.lock import hold
from electrify.progress import progress

SPACE: dict[str, tuple[Any, ...]] = {
    "lr": (5e-5, 1e-3),
    "layer_decay": (0.7, 0.8, 0.9, 1.0),
    "epochs": (3.0, 5.0, 10.0),
    "batch_size": (16, 32),
}
"""What is tried: the rate within bounds, the others from a list."""


@dataclass(frozen=True, kw_only=True)
class Search(Tuning):
    """Search for the learning rate, epochs, layer decay and batch size of one task."""

    model: tyro.conf.Positional[str]
    """An encoder that transformers loads: a folder or a name on the Hub."""
    task: str
    """One GLUE task."""
    trials: int = 20
    """How many settings to try in all, those of earlier runs of the command included."""


def search(settings: Search) -> None:
    """Try settings until there are enough trials; print the best and how to use it."""
    [name] = task_names(settings.task) if "," not in settings.task else [""]
    if not name:
        raise UserError("one task at a time", got=settings.task, fix="--task cola")
    check_settings(settings)
    optuna = _optuna()
    settings.out.mkdir(parents=True, exist_ok=True)
    with hold(settings.out / "lock", f"searching in {settings.out}"):
        study = _study(optuna, settings.out, name)
        _forget_killed(optuna, study)
        with progress(f"searching {name}") as update:
            while (done := len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE]))) < (
                settings.trials
            ):
                trial = study.ask()
                chosen = _chosen(trial)
                update(done / settings.trials, f"trial {trial.number}: {_said(chosen)}")
                score = _score(settings, name, trial.number, chosen)
                study.tell(trial, score)
                print(f"trial {trial.number}: {score:.4f} with {_said(chosen)}", flush=True)
    best = study.best_trial
    flags = " ".join(f"--{k.replace('_', '-')} {v:g}" for k, v in best.params.items())
    print(f"best of {len(study.trials)}: {best.value:.4f}, trial {best.number}")
    print(
        f"next: electrify glue {settings.model} --data {settings.data} --tasks {name} {flags} "
        f"--seeds 5 --out {settings.out}-best"
    )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            "searching needs optuna", got=str(error), fix='pip install "electrify[finetune]"'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _study(optuna: Any, out: Path, name: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return optuna.create_study(
        study_name=name,
        storage=JournalStorage(JournalFileBackend(str(out / "study.journal"))),
        sampler=optuna.samplers.TPESampler(seed=0),
        direction="maximize",
        load_if_exists=True,
    )


def _forget_killed(optuna: Any, study: Any) -> None:
    """A trial that was under way when the command was killed did not count."""
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


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
    *_, job = planned(here, settings.model, [name], [0])
    result = read_result(job.folder / "result.json") if finished(job) else run_job(job)
    (job.folder / "model.safetensors").unlink(missing_ok=True)
    return float("-inf") if result.failed else main_score(result)
