"""`electrify squad MODEL --data DIR --out DIR`: fine-tune on SQuAD 1.1 or 2.0, answer, score.

OUT/predictions.json           the answer of every question, for the official evaluation script
OUT/nbest_predictions.json     the 20 best of every question
OUT/null_odds.json             2.0: how likely it is that there is no answer
OUT/result.json                scores, counts and settings
OUT/model                      the model: with the simple head as transformers loads it, with the
                               official head its body, and the head in head.safetensors
"""

from typing import Any

from electrify.config import check_least, to_toml
from electrify.errors import GuardError, UserError
from electrify.finetuning.encoder import HEADS_DRAWN, fingerprint
from electrify.finetuning.experiment import (
    LOADED,
    load_splits,
    progressing,
    publish,
    stored_result,
    train_and_measure,
)
from electrify.finetuning.fit import CHECKPOINTS, Fitted, check_fit
from electrify.finetuning.options import Squad
from electrify.finetuning.squad.data import find_files
from electrify.finetuning.squad.heads import SPAN_HEADS
from electrify.finetuning.squad.problem import SquadProblem
from electrify.progress import duration, progress
from electrify.storage.build import Build
from electrify.storage.commit import read_json, sha256_of


def squad(settings: Squad) -> dict[str, Any]:
    """Fit, answer, score; what is done is not done again. Returns the result."""
    check_fit(settings.fit)
    check_least(settings, dev_limit=0)
    files = find_files(settings.data, settings.version)
    problem = SquadProblem(settings, files, SPAN_HEADS[settings.head].rows)
    with LOADED:
        if not (settings.out / "manifest.json").exists():
            _load(problem)  # what can be wrong with the input shows before the folder is begun
        with Build(settings.out, "squad", _identity(problem), HEADS_DRAWN, ["model"]) as build:
            if not build.finished:
                build.save_settings(to_toml(settings, without=("out",)))
                try:
                    _make(build, problem)
                except UserError:
                    build.withdraw()
                    raise
    result: dict[str, Any] = read_json(settings.out / "result.json")
    print(_table(result))
    print(f"{settings.out / 'result.json'}")
    return result


def _identity(problem: SquadProblem) -> dict[str, Any]:
    files, settings = problem.files, problem.settings
    hashes = {path.name: sha256_of(path) for path in (files.train, files.dev)}
    model = fingerprint(settings.model)
    identity = {"settings": problem.chosen, "version": files.version, "model": model}
    # the official head was always new
    drawn = {"init_head": "new"} if settings.head == "simple" else {}
    return {**identity, "data": hashes, **drawn}


def _load(problem: SquadProblem) -> None:
    _, splits = load_splits(problem, problem.settings.model)
    counts, dev = splits["train"].rows.counts, splits["dev"].rows
    print(
        f"SQuAD {problem.files.version}: {counts['questions']:,} questions to learn from in "
        f"{counts['windows']:,} windows; {counts['repaired']:,} answers were elsewhere, "
        f"{counts['dropped']:,} nowhere; {len(dev.questions):,} questions to answer in "
        f"{len(dev.windows):,} windows"
    )


def _make(build: Build, problem: SquadProblem) -> None:
    settings = problem.settings
    folder = build.staging / f"seed-{settings.seed}"
    earlier = build.staging / "fit"  # the name that earlier versions gave it
    if earlier.is_dir() and not folder.exists():
        earlier.rename(folder)
        if not (folder / CHECKPOINTS).exists():
            print("note: an earlier version of electrify trained this model: it is trained again")
    with progress("learning") as update:
        on_progress = progressing(update, "step", 0, 1)
        how = settings.model, settings.seed, folder, settings.fit, settings.device, on_progress
        try:
            result = stored_result(problem, folder) or train_and_measure(problem, *how)
        except GuardError as error:
            fix = "a lower --lr and another --out, or look at the data"
            raise GuardError(error.what, got=error.got, fix=fix) from error
    if result.degenerate:
        print(f"note: {result.degenerate}")
    build.finish({"files": publish(build.out, folder)})


def _table(result: dict[str, Any]) -> str:
    """The scores for a terminal."""
    scores, fitted = result["scores"], Fitted(**result["fit"])
    lines = [f"SQuAD {result['version']}, {result['head']} head, {scores['total']:,} questions"]
    lines += [f"  {name:<18} {scores[name]:8.2f}" for name in scores if "total" not in name]
    lines.append(
        f"  {fitted.steps:,} steps in {duration(fitted.seconds)}, "
        f"{fitted.examples_per_second:.1f} windows/s, last loss {fitted.loss:.3f}"
    )
    return "\n".join(lines)
