"""`electrify finetune MODEL --train F --dev F --out DIR`: a model for your own data.

DIR/config.json, model.safetensors, tokenizer.json, …   what `pipeline()` and `predict` load
DIR/result.json       scores of every seed on the development file, and what was learned from
DIR/settings.toml     settings, for --config
DIR/manifest.json     written last: files, identity, versions
DIR/.parts/seed-N     while it is being made: the checkpoints of a run, its model, its scores
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from electrify.config import check_least, to_dict, to_toml
from electrify.errors import UserError
from electrify.finetuning.encoder import fingerprint, open_encoder
from electrify.finetuning.experiment import (
    LOADED,
    TO_PUBLISH,
    load_splits,
    progressing,
    publish,
    run_one,
    stored_result,
)
from electrify.finetuning.fit import check_fit
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.data import Columns
from electrify.finetuning.own.problem import OwnProblem
from electrify.finetuning.own.tagging import has_entities, import_seqeval
from electrify.finetuning.own.target import OwnRows, Target, TrainingFile, read_like, read_training
from electrify.finetuning.results import Result, best_of
from electrify.progress import duration, progress
from electrify.storage.build import Build
from electrify.storage.commit import read_json, sha256_of, write_json


def finetune(settings: Finetune) -> dict[str, Any]:
    """Train every seed that is not finished, keep the best, write it as a Hugging Face folder."""
    check_fit(settings.fit)
    check_least(settings, length=1, seeds=1)
    named = Columns(settings.text, settings.pair, settings.label)
    found = read_training(settings.train, settings.kind, named)
    dev = read_like(settings.dev, found.target, found.columns)
    if found.target.kind == "tags" and has_entities(found.target.labels):
        import_seqeval()
    most = min(settings.length, open_encoder(settings.model).longest)
    problem = OwnProblem(settings, found.target, found.data, dev, most)
    print(_said(settings.train, found))
    with Build(settings.out, "fine-tuned model", _identity(settings)) as build, LOADED:
        if not build.finished:
            try:
                _make(build, problem, found.columns)
            except UserError:
                build.withdraw()
                raise
    result: dict[str, Any] = read_json(settings.out / "result.json")
    print(finetune_summary(result))
    print(settings.out)
    return result


def _identity(settings: Finetune) -> dict[str, Any]:
    """All that decides the result; where files are does not."""
    chosen = to_dict(settings)
    for name in ("model", "train", "dev", "out", "device"):
        del chosen[name]
    if settings.init_head == "pretrained":  # what was always done before there was a choice
        del chosen["init_head"]
    files = {"train": sha256_of(settings.train), "dev": sha256_of(settings.dev)}
    return {"settings": chosen, "model": fingerprint(settings.model), **files}


def _said(path: Path, found: TrainingFile) -> str:
    target = found.target
    columns = f"; columns: {found.columns}" if any(found.columns) else ""
    columns = columns if found.has_header else f"; no header line{columns}"
    labels = ", ".join(target.labels[:12]) + (" …" if len(target.labels) > 12 else "")
    what = {
        "classes": f"{len(target.labels)} classes ({labels})",
        "score": f"a score (mean {target.centre:.4g}, deviation {target.spread:.4g})",
        "tags": f"{len(target.labels)} tags ({labels})",
    }[target.kind]
    return f"{path}: {len(found.data.lines):,} rows{columns}\nto learn: {what}; {found.why}"


def _make(build: Build, problem: OwnProblem, columns: Columns) -> None:
    settings, target = problem.settings, problem.target
    _, splits = load_splits(problem, settings.model)
    about = {}
    for name, path in (("train", settings.train), ("dev", settings.dev)):
        rows: OwnRows = splits[name].rows
        if rows.cut:
            print(describe_truncation(path, target, rows, problem.length))
        about[name] = {"file": path.name, "rows": len(rows.lengths), "cut": rows.cut}
    results: list[Result] = []
    with progress("fine-tuning") as update:
        for number in range(settings.seeds):
            seed = settings.seed + number
            folder = build.staging / f"seed-{seed}"
            on_progress = progressing(update, f"seed {seed}", number, settings.seeds)
            how = settings.fit, settings.device, on_progress
            before = stored_result(problem, folder)
            results.append(before or run_one(problem, settings.model, seed, folder, *how))
            best = best_of(results, first_score)
            for other in results:
                if other is not best:
                    staged = build.staging / f"seed-{other.seed}" / TO_PUBLISH
                    shutil.rmtree(staged, ignore_errors=True)
    if best is None:
        fix = "a lower --lr and another --out, or look at the data"
        raise UserError("training broke down with every seed", got=results[0].failed, fix=fix)
    summary = {
        "kind": target.kind,
        "labels": list(target.labels),
        "columns": columns._asdict(),
        "model": settings.model,
        "init_head": settings.init_head,
        "length": problem.length,
        **about,
        **summarised(results),
        "best_seed": best.seed,
        "seeds": [_recorded(result) for result in results],
    }
    build.save_settings(to_toml(settings))
    files = publish(build.out, build.staging / f"seed-{best.seed}")
    write_json(build.out / "result.json", summary)
    build.finish({"files": files})


def describe_truncation(path: Path, target: Target, rows: OwnRows, most: int) -> str:
    """How much of a file no model sees."""
    what = "words" if target.kind == "tags" else "texts"
    return f"{path}: {rows.cut:,} {what} do not fit into {most} tokens and are cut"


def first_score(result: Result) -> float:
    """The score that models are chosen by."""
    return next(iter(result.scores["dev"].values()))


def _recorded(result: Result) -> dict[str, Any]:
    """A seed in the result of the command."""
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
    }


def summarised(results: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of every score over the seeds.

    >>> summarised([Result("", n, "", {"dev": {"f1": 0.25 + n / 2}}) for n in (0, 1)])["mean"]
    {'f1': 0.5}
    """
    done = [result.scores["dev"] for result in results if not result.failed]
    columns = {name: [scores[name] for scores in done] for name in done[0]}
    freedom = min(1, len(done) - 1)
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "std": {name: float(np.std(values, ddof=freedom)) for name, values in columns.items()},
    }


SAME = "the same answer for every row"
"""What is degenerate in results of versions that do not say it."""


def finetune_summary(result: dict[str, Any]) -> str:
    """A result for people."""
    lines = [
        f"seed {one['seed']}: failed: {one['failed']}"
        if "failed" in one
        else f"seed {one['seed']}: {format_scores(one['scores'])} ({duration(one['seconds'])}, "
        f"{one['examples_per_second']:.0f} examples/s)"
        + (f"; {one.get('why', SAME)}: try a lower --lr" if one["degenerate"] else "")
        for one in result["seeds"]
    ]
    if len(lines) > 1:
        lines += [
            f"mean:   {format_scores(result['mean'])}",
            f"std:    {format_scores(result['std'])}",
        ]
        lines.append(f"kept: seed {result['best_seed']}, the best of {len(result['seeds'])}")
    return "\n".join(lines)


def format_scores(scores: dict[str, float]) -> str:
    """Scores in a line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
