"""`electrify blimp MODEL --data DIR`: which sentence of every minimal pair a model prefers.

OUT/result.json          accuracies overall, by phenomenon and by paradigm
OUT/blimp.*              the table by phenomenon, as .md, .tex and .csv
OUT/paradigms.*          the table by paradigm
OUT/paradigms/NAME.csv   the scores of both sentences of every pair, committed when it is scored
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from electrify.config import check_minimum, to_toml
from electrify.errors import UserError
from electrify.finetuning.blimp.model import kind_of, load_scorer, scored_model
from electrify.finetuning.blimp.pairs import BAD, GOOD, Paradigm, find_paradigms, read_paradigm
from electrify.finetuning.blimp.results import (
    BlimpResult,
    PairCounts,
    accuracies,
    blimp_table,
    compared,
)
from electrify.finetuning.blimp.scoring import Scorer, sentence_scores
from electrify.finetuning.encoder import Encoding, encode, fingerprint, open_encoder
from electrify.finetuning.options import Blimp, ScoreKind
from electrify.finetuning.own.files import format_table
from electrify.finetuning.table import table_files, terminal
from electrify.jobs import executor
from electrify.progress import duration, progress
from electrify.storage.build import Build, committed_file
from electrify.storage.commit import defined, json_bytes, read_json, sha256_of


def blimp(settings: Blimp) -> BlimpResult:
    """Score the pairs that are missing, then print the accuracies by phenomenon; return them."""
    result = measure_blimp(settings)
    print(terminal(blimp_table(result, result["phenomena"], "phenomenon")))
    pairs = result["overall"]["pairs"]
    print(f"\n{settings.out}: {pairs:,} pairs, scored in {duration(result['seconds'])}")
    return result


def measure_blimp(settings: Blimp) -> BlimpResult:
    """Score the pairs that are missing and return the accuracies."""
    check_minimum(settings, limit=0)
    source, files = scored_model(settings.model), find_paradigms(settings.data)
    kind = settings.score if settings.score != "auto" else kind_of(source)
    identity = {
        "model": fingerprint(source),
        "score": kind,
        "limit": settings.limit,
        "data": {name: sha256_of(path) for name, path in files.items()},
    }
    finished = (settings.out / "manifest.json").exists()
    # Invalid input is refused before the folder is created.
    loaded = None if finished else _load(settings, source, kind, files)
    written = ["result.json", "blimp.*", "paradigms.*", "paradigms/*"]
    with Build(settings.out, "blimp", identity, files=written) as build:
        if not build.finished and loaded is not None:
            build.save_settings(to_toml(settings, without=("out",)))
            _build(build, loaded, {"model": settings.model, "score": kind})
    result: BlimpResult = read_json(settings.out / "result.json")
    return result


class TokenizedPairs(NamedTuple):
    """A paradigm and its tokenized sentences: the acceptable ones, then the others."""

    paradigm: Paradigm
    encodings: Sequence[Encoding]


class LoadedBlimp(NamedTuple):
    """A model and the pairs for it."""

    scorer: Scorer
    paradigms: list[TokenizedPairs]


def _load(settings: Blimp, source: str, kind: ScoreKind, files: dict[str, Path]) -> LoadedBlimp:
    encoder = open_encoder(source)
    tokenized = []
    for name, path in files.items():
        paradigm = read_paradigm(name, path, settings.limit)
        encodings = encode(encoder, [*paradigm.good, *paradigm.bad], None, encoder.longest)
        if any(encoding.overflowing for encoding in encodings):
            raise UserError(
                f"{path} has a sentence that is too long for the model",
                got=f"more than {encoder.longest} tokens",
                fix="use a model that accepts longer texts, or remove the sentence",
            )
        tokenized.append(TokenizedPairs(paradigm, encodings))
    return LoadedBlimp(load_scorer(source, kind, encoder, settings.device), tokenized)


def _build(build: Build, loaded: LoadedBlimp, about: dict[str, str]) -> None:
    (build.out / "paradigms").mkdir(exist_ok=True)
    count = len(loaded.paradigms)
    with progress("scoring") as update, executor(1) as pool:

        def score(part: TokenizedPairs, index: int, out: Path) -> dict[str, Any]:
            def report(fraction: float) -> None:
                update((index + fraction) / count, f"{index + 1}/{count} {part.paradigm.name}")

            return _score_paradigm(loaded.scorer, part, out, report)

        records = [*build.make("paradigms", loaded.paradigms, score, pool, ahead=1)]
    seconds = sum(record["seconds"] for record in records)
    identity = {"fingerprint": build.identity["model"], "seconds": seconds}
    result: Any = {**about, **identity, **accuracies([record["counts"] for record in records])}
    tables = {
        "blimp": blimp_table(result, result["phenomena"], "phenomenon"),
        "paradigms": blimp_table(result, result["paradigms"], "paradigm"),
    }
    contents = {name: text.encode() for name, text in table_files(tables).items()}
    contents["result.json"] = json_bytes(defined(result))
    files = [file for record in records for file in record["files"]]
    for name, content in contents.items():
        files.append(committed_file(build.out, name, partial(Path.write_bytes, data=content)))
    build.finish({"files": files})


def _score_paradigm(
    scorer: Scorer, part: TokenizedPairs, out: Path, report: Callable[[float], None]
) -> dict[str, Any]:
    """Score the pairs of a paradigm, commit their scores and return the record."""
    began = time.monotonic()
    paradigm, encodings = part
    pairs = len(paradigm.good)
    scores = sentence_scores(scorer, encodings, lambda done: report(done / len(encodings)))
    tokens = np.array([len(encoding) for encoding in encodings], np.float64)
    good, bad = scores[:pairs], scores[pairs:]
    counts = PairCounts(
        name=paradigm.name,
        phenomenon=paradigm.phenomenon,
        field=paradigm.field,
        pairs=pairs,
        correct=compared(good, bad),
        ties=int((good == bad).sum()),
        shorter=compared(-tokens[:pairs], -tokens[pairs:]),
    )
    rows = zip(good.tolist(), bad.tolist(), paradigm.good, paradigm.bad, strict=True)
    text = format_table(("score_good", "score_bad", GOOD, BAD), [*rows], ".csv")
    write = partial(Path.write_text, data=text, encoding="utf-8")
    file = committed_file(out, f"paradigms/{paradigm.name}.csv", write)
    return {"counts": counts, "seconds": time.monotonic() - began, "files": [file]}
