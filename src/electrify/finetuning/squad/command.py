"""`electrify squad MODEL --data DIR --out DIR`: fine-tune on SQuAD 1.1 or 2.0, answer, score.

OUT/predictions.json           the answer of every question, for the official evaluation script
OUT/nbest_predictions.json     the 20 best of every question
OUT/null_odds.json             2.0: how likely it is that there is no answer
OUT/result.json                scores, counts and settings
OUT/model                      the model: with the simple head as transformers loads it, with the
                               official head its body, and the head in head.safetensors
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file

from electrify import config
from electrify.finetuning.encoder import HEADS_DRAWN, Encoder, fingerprint, open_encoder
from electrify.finetuning.fit import Fitted, check_fit, fit, forget, outputs
from electrify.finetuning.options import Squad
from electrify.finetuning.squad.answers import Answered, decode, n_best
from electrify.finetuning.squad.data import Files, Version, find_files, read_questions, some_of
from electrify.finetuning.squad.heads import HEADS, JointSpans, SimpleSpans
from electrify.finetuning.squad.metrics import evaluate
from electrify.finetuning.squad.windows import Windows, build_windows
from electrify.models.export import own_tensors
from electrify.progress import duration, progress
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import committed, json_bytes, read_json, sha256_of, write_json
from electrify.training.state import load_model, model_tensors


def squad(settings: Squad) -> dict[str, Any]:
    """Fit, answer, score; what is done is not done again. Returns the result."""
    check_fit(settings.fit)
    config.check_least(settings, dev_limit=0)
    files = find_files(settings.data, settings.version)
    encoder = open_encoder(settings.model)
    finished = (settings.out / "manifest.json").exists()
    # what can be wrong with the input shows before the folder is begun
    prepared = None if finished else _prepared(settings, files, encoder)
    build = Build(settings.out, "squad", _identity(settings, files), HEADS_DRAWN)
    if prepared is not None:
        build.save_settings(config.to_toml(settings, without=("out",)))
        _work(settings, files.version, encoder, build, prepared)
    result: dict[str, Any] = read_json(settings.out / "result.json")
    print(_table(result))
    print(f"{settings.out / 'result.json'}")
    return result


def _identity(settings: Squad, files: Files) -> dict[str, Any]:
    chosen = config.to_dict(settings)
    for name in ("model", "data", "out", "device", "version"):
        del chosen[name]
    hashes = {path.name: sha256_of(path) for path in (files.train, files.dev)}
    model = fingerprint(settings.model)
    identity = {"settings": chosen, "version": files.version, "model": model, "data": hashes}
    # the official head was always new
    return identity | ({"init_head": "new"} if settings.head == "simple" else {})


class Prepared(NamedTuple):
    """Windows to learn from and to answer, and a model that has learned nothing yet."""

    train: Windows
    dev: Windows
    model: SimpleSpans | JointSpans


def _prepared(settings: Squad, files: Files, encoder: Encoder) -> Prepared:
    length = min(settings.length, encoder.longest)
    questions = some_of(read_questions(files.train, files.version), settings.train_share)
    train = build_windows(encoder, questions, length, settings.stride, learn=True)
    asked = read_questions(files.dev, files.version)[: settings.dev_limit or None]
    dev = build_windows(encoder, asked, length, settings.stride, learn=False)
    counts = train.counts
    print(
        f"SQuAD {files.version}: {counts['questions']:,} questions to learn from in "
        f"{counts['windows']:,} windows; {counts['repaired']:,} answers were elsewhere, "
        f"{counts['dropped']:,} nowhere; {len(asked):,} questions to answer in "
        f"{len(dev.windows):,} windows"
    )
    return Prepared(train, dev, HEADS[settings.head].build(encoder, settings.seed))


def _work(
    settings: Squad, version: Version, encoder: Encoder, build: Build, prepared: Prepared
) -> None:
    (train, dev, model), head = prepared, HEADS[settings.head]
    fitted = _fitted(settings, model, train, build.staging)
    answered = decode(dev, outputs(model, dev.lengths, dev.collate, head.rows))
    best = {q.id: a.answers[0].text for q, a in zip(dev.questions, answered, strict=True)}
    odds, threshold, predictions = None, head.threshold, best
    written: dict[str, Any] = {}
    if version == "2.0":
        if settings.null_threshold is not None:
            threshold = settings.null_threshold
        odds = {q.id: _odds(head.odds, a) for q, a in zip(dev.questions, answered, strict=True)}
        predictions = {name: "" if odds[name] > threshold else best[name] for name in best}
        written["null_odds.json"] = odds
    scores = evaluate(dev.questions, best, version, odds, threshold)
    written["predictions.json"] = predictions
    written["nbest_predictions.json"] = {
        q.id: n_best(a) for q, a in zip(dev.questions, answered, strict=True)
    }
    written["result.json"] = {
        "version": version,
        "head": settings.head,
        "model": settings.model,
        "scores": scores,
        **({"null_threshold": threshold} if odds is not None else {}),
        "train": train.counts,
        "dev": {"questions": len(dev.questions), "windows": len(dev.windows)},
        "fit": fitted._asdict(),
        "settings": build.identity["settings"],
    }
    entries = _export(model, encoder, build)
    for name, content in written.items():
        entries.append(committed_file(build.out, name, partial(_write, json_bytes(content))))
    build.finish({"files": entries})


def _odds(of: Any, answered: Answered) -> float:
    return float(of(answered.null, answered.answers[0].score))


def _fitted(settings: Squad, model: Any, train: Windows, staging: Path) -> Fitted:
    """Fit the model, in place; or take the weights that an earlier, killed command fitted."""
    weights, about = staging / "fitted.safetensors", staging / "fitted.json"
    if about.exists():
        load_model(model, load_file(weights), str(weights))
        return Fitted(**read_json(about))
    with progress("learning") as update:
        fitted = fit(
            model,
            train.lengths,
            train.collate,
            settings.fit,
            settings.seed,
            folder=staging / "fit",
            device=settings.device,
            told=lambda step, steps, loss: update(step / steps, f"step {step:,}, loss {loss:.3f}"),
        )
    with committed(weights) as temporary:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in model_tensors(model).items()}
        save_file(tensors, temporary)
    write_json(about, fitted._asdict())
    forget(staging / "fit")
    return fitted


def _export(model: Any, encoder: Encoder, build: Build) -> list[dict[str, Any]]:
    """OUT/model, in files that are each committed."""
    simple = isinstance(model, SimpleSpans)
    network = (model.network if simple else model.body).cpu()
    staged = build.staging / "model"
    network.save_pretrained(staged, state_dict=own_tensors(network))
    encoder.tokenizer.save_pretrained(staged)
    if not simple:
        head = {n: t.cpu() for n, t in model_tensors(model).items() if not n.startswith("body.")}
        save_file(head, staged / "head.safetensors")
    (build.out / "model").mkdir(exist_ok=True)
    return [
        committed_file(build.out, f"model/{path.name}", path.replace)
        for path in sorted(staged.iterdir())
    ]


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


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
