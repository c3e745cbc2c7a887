"""`electrify squad MODEL --data DIR --out DIR`: fine-tune on SQuAD 1.1 or 2.0, answer, score.

OUT/predictions.json           the answer of every question, for the official evaluation script
OUT/nbest_predictions.json     the 20 best answers of every question
OUT/null_odds.json             2.0: the score that a question has no answer
OUT/result.json                scores, counts and settings
OUT/model                      the model: a transformers folder with the simple head; the backbone
                               with the official head, which is in head.safetensors
"""

from dataclasses import replace
from typing import Any

from electrify.config import check_minimum, to_toml
from electrify.errors import GuardError, UserError
from electrify.finetuning.devices import settle_precision
from electrify.finetuning.encoder import HEADS_INITIALIZED, fingerprint
from electrify.finetuning.experiment import (
    LOADED,
    load_splits,
    progress_reporter,
    publish,
    stored_result,
    train_and_measure,
)
from electrify.finetuning.fit import CHECKPOINTS, FitResult, check_hyperparameters
from electrify.finetuning.options import Squad
from electrify.finetuning.squad.data import find_files
from electrify.finetuning.squad.heads import SPAN_HEADS
from electrify.finetuning.squad.problem import SquadProblem
from electrify.progress import duration, progress
from electrify.storage.build import Build
from electrify.storage.commit import read_json, sha256_of


def squad(settings: Squad) -> dict[str, Any]:
    """Fine-tune, answer and score, unless the result exists; return the result."""
    check_hyperparameters(settings.fit)
    check_minimum(settings, dev_limit=0)
    precision = settle_precision(settings.fit.precision, settings.device, settings.out)
    settings = replace(settings, fit=replace(settings.fit, precision=precision))
    files = find_files(settings.data, settings.version)
    problem = SquadProblem(settings, files, SPAN_HEADS[settings.head].batch_size)
    with LOADED:
        if not (settings.out / "manifest.json").exists():
            _load(problem)  # invalid input is refused before the folder is created
        with Build(
            settings.out, "squad", squad_identity(problem), HEADS_INITIALIZED, ["*.json", "model/*"]
        ) as build:
            if not build.finished:
                build.save_settings(to_toml(settings, without=("out",)))
                try:
                    _train(build, problem)
                except UserError:
                    build.withdraw()
                    raise
    result: dict[str, Any] = read_json(settings.out / "result.json")
    print(_table(result))
    print(f"{settings.out / 'result.json'}")
    return result


def squad_identity(problem: SquadProblem) -> dict[str, Any]:
    """Return everything that determines the result of a problem."""
    files, settings = problem.files, problem.settings
    hashes = {path.name: sha256_of(path) for path in (files.train, files.dev)}
    model = fingerprint(settings.model)
    identity = {"settings": problem.result_settings, "version": files.version, "model": model}
    # The official head was always new.
    init_head = {"init_head": "new"} if settings.head == "simple" else {}
    return {**identity, "data": hashes, **init_head}


def _load(problem: SquadProblem) -> None:
    _, splits = load_splits(problem, problem.settings.model)
    counts, dev = splits["train"].rows.counts, splits["dev"].rows
    print(
        f"SQuAD {problem.files.version}: {counts['questions']:,} training questions in "
        f"{counts['windows']:,} windows ({counts['repaired']:,} answers relocated, "
        f"{counts['dropped']:,} not found and dropped); "
        f"{len(dev.questions):,} development questions in {len(dev.windows):,} windows"
    )


def _train(build: Build, problem: SquadProblem) -> None:
    settings = problem.settings
    folder = build.staging / f"seed-{settings.seed}"
    earlier = build.staging / "fit"  # the name in earlier versions
    if earlier.is_dir() and not folder.exists():
        earlier.rename(folder)
        if not (folder / CHECKPOINTS).exists():
            print("note: an earlier version of electrify trained this model; it is trained again")
    with progress("fine-tuning") as update:
        on_progress = progress_reporter(update, "step", 0, 1)
        options = settings.model, settings.seed, folder, settings.fit, settings.device, on_progress
        try:
            result = stored_result(problem, folder) or train_and_measure(problem, *options)
        except GuardError as error:
            fix = "use a lower --lr and another --out, or check the data"
            raise GuardError(error.what, got=error.got, fix=fix) from error
    if result.degenerate:
        print(f"note: {result.degenerate}")
    build.finish({"files": publish(build.out, folder)})


def _table(result: dict[str, Any]) -> str:
    """Return the scores as a table for the terminal."""
    scores, fitted = result["scores"], FitResult(**result["fit"])
    lines = [f"SQuAD {result['version']}, {result['head']} head, {scores['total']:,} questions"]
    lines += [f"  {name:<18} {scores[name]:8.2f}" for name in scores if "total" not in name]
    lines.append(
        f"  {fitted.steps:,} steps in {duration(fitted.seconds)}, "
        f"{fitted.examples_per_second:.1f} windows/s, final loss {fitted.loss:.3f}"
    )
    return "\n".join(lines)
