"""`electrify finetune MODEL --train F --dev F --out DIR`: a model for one's own data.

    DIR/config.json, model.safetensors, tokenizer.json, …   what `pipeline()` and `predict` load
    DIR/result.json       scores of every seed on the development file, and what was learned from
    DIR/settings.toml     settings, for --config
    DIR/manifest.json     written last: files, identity, versions
    DIR/.parts/seed-N     while it is being made: the checkpoints of a fit, its model, its scores

Scores are learned with mean 0 and deviation 1; the last layer is then put on their own scale.
"""

import math
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from electrify.config import check_least, to_dict, to_toml
from electrify.errors import GuardError, UserError
from electrify.finetuning.encoder import (
    Encoder,
    fingerprint,
    load_network,
    new_network,
    open_encoder,
)
from electrify.finetuning.fit import check_fit, fit, forget, outputs
from electrify.finetuning.options import Finetune
from electrify.finetuning.own.data import Columns
from electrify.finetuning.own.problem import (
    AUTO,
    MODELS,
    Data,
    Prepared,
    Problem,
    Training,
    answers,
    fields_of,
    measure,
    prepare,
    read_like,
    read_training,
    unscale,
)
from electrify.finetuning.own.tagging import has_entities, import_seqeval
from electrify.progress import Update, duration, progress
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import read_json, sha256_of, write_json

PROBES = 8
TOLERANCE = 1e-5


class Work(NamedTuple):
    """All that the seeds have in common."""

    settings: Finetune
    problem: Problem
    encoder: Encoder
    train: Prepared
    dev: Prepared
    dev_data: Data
    folder: Path


def finetune(settings: Finetune) -> dict[str, Any]:
    """Train every seed that is not finished, keep the best, write it as a Hugging Face folder."""
    _check(settings)
    named = Columns(settings.text, settings.pair, settings.label)
    found = read_training(settings.train, settings.kind, named)
    dev = read_like(settings.dev, found.problem, found.columns)
    if found.problem.kind == "tags" and has_entities(found.problem.labels):
        import_seqeval()
    encoder = open_encoder(settings.model)
    print(_said(settings.train, found))
    build = Build(settings.out, "fine-tuned model", _identity(settings))
    if not build.finished:
        try:
            _make(build, settings, found, dev, encoder)
        except UserError:
            build.withdraw()
            raise
    result: dict[str, Any] = read_json(settings.out / "result.json")
    print(shown(result))
    print(settings.out)
    return result


def _check(settings: Finetune) -> None:
    check_fit(settings.fit)
    check_least(settings, length=1, seeds=1)


def _identity(settings: Finetune) -> dict[str, Any]:
    """All that decides the result; where files are does not."""
    chosen = to_dict(settings)
    for name in ("model", "train", "dev", "out", "device"):
        del chosen[name]
    if settings.init_head == "pretrained":  # what was always done before there was a choice
        del chosen["init_head"]
    files = {"train": sha256_of(settings.train), "dev": sha256_of(settings.dev)}
    return {"settings": chosen, "model": fingerprint(settings.model), **files}


def _said(path: Path, found: Training) -> str:
    problem = found.problem
    columns = f"; columns: {found.columns}" if any(found.columns) else ""
    columns = columns if found.has_header else f"; no header line{columns}"
    labels = ", ".join(problem.labels[:12]) + (" …" if len(problem.labels) > 12 else "")
    what = {
        "classes": f"{len(problem.labels)} classes ({labels})",
        "score": f"a score (mean {problem.centre:.4g}, deviation {problem.spread:.4g})",
        "tags": f"{len(problem.labels)} tags ({labels})",
    }[problem.kind]
    return f"{path}: {len(found.data.lines):,} rows{columns}\nto learn: {what}; {found.why}"


def _make(
    build: Build, settings: Finetune, found: Training, dev_data: Data, encoder: Encoder
) -> None:
    problem, most = found.problem, min(settings.length, encoder.longest)
    train = prepare(problem, found.data, encoder, most)
    dev = prepare(problem, dev_data, encoder, most)
    for path, rows in ((settings.train, train), (settings.dev, dev)):
        if rows.cut:
            print(cut_said(path, problem, rows, most))
    work = Work(settings, problem, encoder, train, dev, dev_data, build.staging)
    results: list[dict[str, Any]] = []
    with progress("fine-tuning") as update:
        for number in range(settings.seeds):
            seed = settings.seed + number
            told = partial(_step, update, seed, number, settings.seeds)
            results.append(_one_seed(work, seed, told))
            _keep_best(work.folder, results)
    if all("failed" in one for one in results):
        raise UserError(
            "training broke down with every seed",
            got=results[0]["failed"],
            fix="a lower --lr, or look at the data",
        )
    best = best_of(results)["seed"]
    summary = {
        "kind": problem.kind,
        "labels": list(problem.labels),
        "columns": found.columns._asdict(),
        "model": settings.model,
        "init_head": settings.init_head,
        "length": most,
        "train": _about(settings.train, train),
        "dev": _about(settings.dev, dev),
        **summarised(results),
        "best_seed": best,
        "seeds": results,
    }
    build.save_settings(to_toml(settings))
    files = [
        committed_file(build.out, path.name, partial(shutil.copyfile, path))
        for path in sorted(_model_folder(work.folder, best).iterdir())
    ]
    write_json(build.out / "result.json", summary)
    build.finish({"files": files})


def cut_said(path: Path, problem: Problem, rows: Prepared, most: int) -> str:
    """How much of a file no model sees."""
    what = "words" if problem.kind == "tags" else "texts"
    return f"{path}: {rows.cut:,} {what} do not fit into {most} tokens and are cut"


def _about(path: Path, rows: Prepared) -> dict[str, Any]:
    return {"file": path.name, "rows": len(rows.lengths), "cut": rows.cut}


def _step(
    update: Update, seed: int, number: int, count: int, step: int, steps: int, loss: float
) -> None:
    update(
        (number + step / steps) / count, f"seed {seed}, step {step:,}/{steps:,}, loss {loss:.3f}"
    )


def _one_seed(work: Work, seed: int, told: Any) -> dict[str, Any]:
    """Fit, measure and save one seed; what was done before is not done again."""
    folder = work.folder / f"seed-{seed}"
    if (folder / "result.json").exists():
        result: dict[str, Any] = read_json(folder / "result.json")
        return result
    folder.mkdir(exist_ok=True)
    problem, settings = work.problem, work.settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = new_network(
            AUTO[problem.kind], settings.model, settings.init_head, **fields_of(problem)
        )
    model: Any = MODELS[problem.kind](network)
    train = work.train
    try:
        fitted = fit(
            model, train.lengths, train.collate, settings.fit, seed, folder, settings.device, told
        )
    except GuardError as error:
        result = {"seed": seed, "failed": error.what}
        write_json(folder / "result.json", result)
        forget(folder)
        return result
    if problem.kind == "score":
        unscale(network, problem)
    said = answers(problem, work.dev, outputs(model, work.dev.lengths, work.dev.collate))
    result = {
        "seed": seed,
        "scores": measure(problem, work.dev_data, said),
        "degenerate": all_the_same([one.prediction for one in said]),
        "steps": fitted.steps,
        "seconds": round(fitted.seconds, 1),
        "examples_per_second": round(fitted.examples_per_second, 1),
    }
    _save(model.cpu(), work, _model_folder(work.folder, seed))
    write_json(folder / "result.json", result)
    forget(folder)
    return result


def _model_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}" / "model"


def _save(model: Any, work: Work, folder: Path) -> None:
    """Write a network and its tokenizer; loaded again they must say the same."""
    tokenizer = work.encoder.tokenizer
    tokenizer.model_max_length = min(work.settings.length, work.encoder.longest)
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed while it wrote
    model.network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    again = open_encoder(str(folder))
    problem = work.problem
    network = load_network(AUTO[problem.kind], str(folder))
    rows = prepare(problem, _first(work.dev_data, PROBES), again, tokenizer.model_max_length)
    before = outputs(model, work.dev.lengths[:PROBES], work.dev.collate)
    after = outputs(MODELS[problem.kind](network), rows.lengths, rows.collate)
    for old, new in zip(before, after, strict=True):
        limit = TOLERANCE * max(1.0, float(abs(old).max()))
        if old.shape != new.shape or not abs(old - new).max() <= limit:
            raise UserError(
                f"{model.config.model_type} does not survive export",
                got="what was written and loaded again gives other outputs",
                fix="take another model or another version of transformers",
            )


def _first(data: Data, count: int) -> Any:
    fields = (one[:count] if isinstance(one, list) else one for one in data)
    return type(data)._make(fields)


def best_of(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result whose first score is highest; the earliest of equals; never one that failed."""

    def first(result: dict[str, Any]) -> float:
        if "failed" in result:
            return -math.inf
        value = float(next(iter(result["scores"].values())))
        return -math.inf if math.isnan(value) else value

    return max(results, key=first)


def _keep_best(folder: Path, results: Sequence[dict[str, Any]]) -> None:
    best = best_of(results)["seed"]
    for result in results:
        if result["seed"] != best:
            shutil.rmtree(_model_folder(folder, result["seed"]), ignore_errors=True)


def all_the_same(predictions: Sequence[Any]) -> bool:
    """Whether a model gives the same answer to everything: a class, a score, a tag for each word.

    >>> all_the_same([["O"], ["O", "O"]]), all_the_same(["a", "b"]), all_the_same([0.5, 0.5000001])
    (True, False, True)
    """
    if isinstance(predictions[0], float):
        return len(predictions) > 1 and float(np.ptp(predictions)) < 1e-6
    each = [tag for one in predictions for tag in (one if isinstance(one, list) else [one])]
    return len(predictions) > 1 and len(set(each)) == 1


def summarised(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of every score over the seeds.

    >>> summarised([{"scores": {"f1": 0.25}}, {"scores": {"f1": 0.75}}])["mean"]
    {'f1': 0.5}
    """
    done = [one["scores"] for one in results if "failed" not in one]
    columns = {name: [scores[name] for scores in done] for name in done[0]}
    spread = partial(np.std, ddof=1) if len(done) > 1 else np.std
    return {
        "mean": {name: float(np.mean(values)) for name, values in columns.items()},
        "std": {name: float(spread(values)) for name, values in columns.items()},
    }


def shown(result: dict[str, Any]) -> str:
    """A result for people."""
    lines = [
        f"seed {one['seed']}: failed: {one['failed']}"
        if "failed" in one
        else f"seed {one['seed']}: {scores_said(one['scores'])} ({duration(one['seconds'])}, "
        f"{one['examples_per_second']:.0f} examples/s)"
        + ("; the same answer for every row: try a lower --lr" if one["degenerate"] else "")
        for one in result["seeds"]
    ]
    if len(lines) > 1:
        lines += [f"mean:   {scores_said(result['mean'])}", f"std:    {scores_said(result['std'])}"]
        lines.append(f"kept: seed {result['best_seed']}, the best of {len(result['seeds'])}")
    return "\n".join(lines)


def scores_said(scores: dict[str, float]) -> str:
    """Scores in a line."""
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
