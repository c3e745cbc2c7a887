"""`electrify finetune MODEL --train F --dev F --out DIR`: fine-tune a model on your data.

DIR/config.json, model.safetensors, tokenizer.json, …   loaded by `pipeline()` and `predict`
DIR/README.md         model card
DIR/result.json       scores of every seed on the development file, and facts about the data
DIR/settings.toml     settings, for --config
DIR/manifest.json     written last: files, identity, versions
DIR/.parts/seed-N     during training: the checkpoints, model and scores of a run
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from electrify.config import check_minimum, to_dict, to_toml
from electrify.errors import UserError, visible
from electrify.finetuning.devices import settle_precision
from electrify.finetuning.encoder import Encoder, fingerprint, open_encoder
from electrify.finetuning.experiment import (
    LOADED,
    TO_PUBLISH,
    load_splits,
    progress_reporter,
    publish,
    run_one,
    stored_result,
)
from electrify.finetuning.fit import check_hyperparameters
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.data import Columns, require_labels
from electrify.finetuning.own.problem import DETAILS, OwnProblem
from electrify.finetuning.own.sentences import Sentences
from electrify.finetuning.own.summary import (
    finetune_summary,
    finetuned_card,
    next_commands,
    seed_lines,
)
from electrify.finetuning.own.tagging import has_entities, import_seqeval
from electrify.finetuning.own.target import (
    Data,
    OwnRows,
    Target,
    TrainingFile,
    read_matching,
    read_training,
)
from electrify.finetuning.results import Result, best_of
from electrify.finetuning.vectors.problem import SentenceProblem, open_sentences
from electrify.progress import progress
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import read_json, sha256_of, write_json


def finetune(settings: Finetune, brief: bool = False) -> dict[str, Any]:
    """Train every unfinished seed and save the best model as a Hugging Face folder.

    `brief` prints the scores of the seeds only.
    """
    check_hyperparameters(settings.fit)
    check_minimum(settings, length=1, seeds=1)
    precision = settle_precision(settings.fit.precision, settings.device, settings.out)
    settings = replace(settings, fit=replace(settings.fit, precision=precision))
    open_files = open_sentences if settings.kind == "sentences" else _open_own
    training, problem = open_files(settings)
    settings = problem.settings
    print(visible(_describe(settings.train, training)))
    written = ("*.json", "*.safetensors", "*.txt")
    with (
        Build(
            settings.out, "fine-tuned model", finetune_identity(settings), files=written
        ) as build,
        LOADED,
    ):
        if not build.finished:
            try:
                _run_seeds(build, problem, training.columns)
            except UserError:
                build.withdraw()
                raise
    result: dict[str, Any] = read_json(settings.out / "result.json")
    if brief:
        print(visible(seed_lines(result)))
    else:
        print(visible(f"{finetune_summary(result)}\n\n{next_commands(settings.out, result)}\n"))
    print(settings.out)
    return result


def _open_own(settings: Finetune) -> tuple[TrainingFile, OwnProblem]:
    """Read the files, and find out what to predict."""
    if settings.pooling != "auto":
        raise UserError(
            "--pooling is for sentence vectors",
            got=f"--pooling {settings.pooling} --kind {settings.kind}",
            fix="add --kind sentences, or leave --pooling out",
        )
    requested = Columns(settings.text, settings.pair, settings.label)
    training = read_training(settings.train, settings.kind, requested)
    dev = read_matching(settings.dev, training.target, training.columns)
    if training.target.kind == "tags" and has_entities(training.target.labels):
        import_seqeval()
    length = min(settings.length, open_encoder(settings.model).longest)
    return training, OwnProblem(settings, training.target, training.data, dev, length)


def finetune_identity(settings: Finetune) -> dict[str, Any]:
    """Return everything that determines the result; the locations of files do not."""
    options = to_dict(settings)
    for name in ("model", "train", "dev", "out", "device"):
        del options[name]
    if settings.kind != "sentences":  # older folders do not have it
        del options["pooling"]
    if settings.init_head == "pretrained":  # the only behaviour before this option existed
        del options["init_head"]
    files = {"train": sha256_of(settings.train), "dev": sha256_of(settings.dev)}
    return {"settings": options, "model": fingerprint(settings.model), **files}


def _describe(path: Path, training: TrainingFile) -> str:
    target = training.target
    columns = f"; columns: {training.columns}" if any(training.columns) else ""
    columns = columns if training.has_header else f"; no header line{columns}"
    labels = ", ".join(target.labels[:12]) + (" …" if len(target.labels) > 12 else "")
    description = f"{len(target.labels)} {target.kind} ({labels})"
    if target.kind == "score":
        description = f"a score (mean {target.mean:.4g}, std {target.std:.4g})"
    if target.kind == "sentences":
        description = f"sentence vectors, from {labels}"
    rows = f"{path}: {len(training.data.lines):,} rows{columns}"
    return f"{rows}\ntarget: {description}; {training.reason}"


def _run_seeds(build: Build, problem: OwnProblem | SentenceProblem, columns: Columns) -> None:
    settings, target = problem.settings, problem.target
    encoder, splits = load_splits(problem, settings.model)
    file_info = {}
    for name, path in (("train", settings.train), ("dev", settings.dev)):
        rows: OwnRows = splits[name].rows
        if rows.truncated:
            print(visible(describe_truncation(path, target, rows, problem.length)))
        file_info[name] = {"file": path.name, **_describe_rows(target, *splits[name])}
    results: list[Result] = []
    with progress("fine-tuning") as update:
        for number in range(settings.seeds):
            seed = settings.seed + number
            folder = build.staging / f"seed-{seed}"
            on_progress = progress_reporter(update, f"seed {seed}", number, settings.seeds)
            options = settings.fit, settings.device, on_progress
            stored = stored_result(problem, folder)
            results.append(stored or run_one(problem, settings.model, seed, folder, *options))
            best = best_of(results, selection_score)
            for other in results:
                if other is not best:
                    staged = build.staging / f"seed-{other.seed}" / TO_PUBLISH
                    shutil.rmtree(staged, ignore_errors=True)
    if best is None:
        fix = "use a lower --lr and another --out, or check the data"
        raise UserError("training failed with every seed", got=results[0].failed, fix=fix)
    summary = {
        "kind": target.kind,
        "labels": list(target.labels),
        "columns": columns._asdict(),
        "model": settings.model,
        "init_head": settings.init_head,
        "length": problem.length,
        "max_length": encoder.longest,
        "pretrained_length": _pretrained_length(encoder),
        **file_info,
        **summarize(results),
        "best_seed": best.seed,
        "seeds": [
            _seed_record(result, _details(build, result.seed).get("losses", []))
            for result in results
        ],
        **problem.facts(encoder, splits),
        "by_label": _details(build, best.seed).get("by_label", {}),
    }
    build.save_settings(to_toml(settings))
    files = publish(build.out, build.staging / f"seed-{best.seed}")
    card = finetuned_card(settings, summary, build.identity)
    write_card = partial(Path.write_text, data=card, encoding="utf-8", errors="replace")
    files.append(committed_file(build.out, "README.md", write_card))
    write_json(build.out / "result.json", summary)
    build.finish({"files": files})


def _details(build: Build, seed: int) -> dict[str, Any]:
    """Return what a run keeps besides its result; nothing if an earlier version finished it."""
    path = build.staging / f"seed-{seed}" / DETAILS
    details: dict[str, Any] = read_json(path) if path.is_file() else {}
    return details


def _describe_rows(target: Target, data: Data, rows: OwnRows) -> dict[str, Any]:
    """Return the size of a file, the length of its longest row in tokens, and its classes."""
    known = {"rows": len(rows.lengths), "cut": rows.truncated, "longest": max(rows.lengths)}
    if isinstance(data, Sentences):
        return {**known, "words": sum(map(len, data.words))}
    if target.kind in ("score", "sentences"):
        return known
    return {**known, "labels": dict(Counter(require_labels(data)).most_common())}


def _pretrained_length(encoder: Encoder) -> int:
    """Return the maximum length that the tokenizer names; 0 if it names none."""
    limit = int(encoder.tokenizer.model_max_length)
    return limit if limit < 1_000_000 else 0


def describe_truncation(path: Path, target: Target, rows: OwnRows, length: int) -> str:
    """Return a note about how much of a file exceeds the maximum length."""
    unit, fate = ("words", "ignored") if target.kind == "tags" else ("texts", "truncated")
    return f"{path}: {rows.truncated:,} {unit} do not fit into {length} tokens and are {fate}"


def selection_score(result: Result) -> float:
    """Return the score by which models are selected."""
    return next(iter(result.scores["dev"].values()))


def _seed_record(result: Result, losses: Sequence[Any] = ()) -> dict[str, Any]:
    """Return the entry of a seed in result.json, with its training losses by step."""
    if result.failed:
        return {"seed": result.seed, "failed": result.failed}
    return {
        "seed": result.seed,
        "scores": dict(result.scores["dev"]),
        "degenerate": bool(result.degenerate),
        **({"why": result.degenerate} if result.degenerate else {}),
        "steps": result.steps,
        "seconds": round(result.seconds, 1),
        "examples_per_second": round(result.examples_per_second, 1),
        "losses": list(losses),
    }


def summarize(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Return the mean and standard deviation of every score over the seeds.

    >>> summarize([Result("", n, "", {"dev": {"f1": 0.25 + n / 2}}) for n in (0, 1)])["mean"]
    {'f1': 0.5}
    """
    finished = [result.scores["dev"] for result in results if not result.failed]
    columns = {name: [scores[name] for scores in finished] for name in finished[0]}
    ddof = min(1, len(finished) - 1)
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "std": {name: float(np.std(values, ddof=ddof)) for name, values in columns.items()},
    }
