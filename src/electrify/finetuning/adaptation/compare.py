"""Compare a model before and after it was adapted, on validation pages: OUT/result.json.

OUT/before.json, OUT/after.json    the loss and the number of tokens of every word
OUT/result.json                    the comparison, and the verdict
OUT/manifest.json                  written last: files, identity, versions
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from electrify.finetuning.adaptation.passages import Passage, choose_passages, positions_of
from electrify.finetuning.adaptation.tasks import TaskChange
from electrify.finetuning.adaptation.verdict import adaptation_verdict
from electrify.finetuning.adaptation.word_loss import (
    difference_error,
    per_character,
    word_losses,
)
from electrify.finetuning.encoder import Encoder, encode, fingerprint, open_encoder
from electrify.jobs import executor
from electrify.models.detectors import open_masked_lm
from electrify.models.fast import enable_fast_path
from electrify.progress import progress
from electrify.storage.build import Build, Record, committed_file
from electrify.storage.commit import json_bytes, read_json, read_manifest
from electrify.training.engine import Engine
from electrify.training.summary import GeneralChange

SIDES = ("before", "after")


class MeasuredModel(NamedTuple):
    """A model: its masked LM, empty if it has none, and a folder or name with its tokenizer."""

    masked_lm: str
    tokenizer: str


class ModelMeasures(TypedDict):
    """A model on the validation pages."""

    loss_per_character: float | None
    """None if it has no masked-LM head."""
    tokens_per_word: float


class AdaptationResult(TypedDict):
    """The comparison of a model before and after."""

    model: str
    objective: str
    """rtd: the loss is that of the generator; mlm: of the model."""
    before: ModelMeasures
    after: ModelMeasures
    error: float | None
    """Standard error of the difference of the losses per character, over pages."""
    guessing: float
    """Loss per character of guessing by token frequency."""
    pages: int
    words: int
    characters: int
    new_words: list[dict[str, Any]]
    """The first of the words that were added to the tokenizer."""
    general: dict[str, Any] | None
    """The change of the loss on general text, if it was measured."""
    tasks: list[dict[str, Any]]
    verdict: dict[str, Any]


@dataclass(frozen=True)
class Comparing:
    """What to compare, and on what."""

    model: str
    objective: str
    before: MeasuredModel
    after: MeasuredModel
    length: int
    words: int
    device: str = "auto"


class Findings(NamedTuple):
    """What earlier stages found, for the result."""

    new_words: list[dict[str, Any]]
    general: GeneralChange | None
    tasks: list[TaskChange]
    counts_V: NDArray[np.int64]
    """How often each token occurs in the training text."""


def compare_models(
    settings: Comparing, pages: Sequence[str], found: Findings, out: Path
) -> AdaptationResult:
    """Measure both models on the same words of pages, and return the comparison."""
    sides = dict(zip(SIDES, (settings.before, settings.after), strict=True))
    identity = {
        "model": settings.model,
        "objective": settings.objective,
        "length": settings.length,
        "words": settings.words,
        "pages": len(pages),
        "tasks": [task._asdict() for task in found.tasks],
        **{side: _fingerprints(model) for side, model in sides.items()},
    }
    files = [f"{side}.json" for side in SIDES] + ["result.json"]
    if (out / "manifest.json").is_file():
        before = read_manifest(out, "adaptation")["identity"]
        if {**before, "tasks": identity["tasks"]} == identity and before != identity:
            shutil.rmtree(out)  # tasks were added since
    with Build(out, "adaptation", identity, files=files) as build:
        if not build.finished:
            _make(build, settings, list(sides.values()), pages, found)
    result: AdaptationResult = read_json(out / "result.json")
    return result


def _fingerprints(model: MeasuredModel) -> dict[str, str]:
    return {name: fingerprint(source) if source else "" for name, source in model._asdict().items()}


def _make(
    build: Build,
    settings: Comparing,
    models: Sequence[MeasuredModel],
    pages: Sequence[str],
    found: Findings,
) -> None:
    encoders = [open_encoder(model.tokenizer) for model in models]
    passages = choose_passages(pages, encoders, settings.length, settings.words)
    with progress("comparing") as update, executor(1) as pool:

        def measure(model: MeasuredModel, index: int, out: Path) -> Record:
            def report(fraction: float) -> None:
                update((index + fraction) / len(models), SIDES[index])

            content = _measure(model, encoders[index], passages, settings.device, report)
            write = partial(Path.write_bytes, data=json_bytes(content))
            return {"files": [committed_file(out, f"{SIDES[index]}.json", write)]}

        records = [*build.make("models", models, measure, pool, ahead=1)]
    losses = [
        None
        if (stored := read_json(build.out / f"{side}.json")["losses"]) is None
        else np.array(stored)
        for side in SIDES
    ]
    before, after = losses
    error = None
    if before is not None and after is not None:
        error = difference_error(before, after, passages)
    measured = [
        ModelMeasures(
            loss_per_character=None if side is None else per_character(side, passages),
            tokens_per_word=_tokens_per_word(pages, encoder),
        )
        for side, encoder in zip(losses, encoders, strict=True)
    ]
    guesses = _guessing(passages, encoders[1], found.counts_V)
    result = AdaptationResult(
        model=settings.model,
        objective=settings.objective,
        before=measured[0],
        after=measured[1],
        error=error,
        guessing=per_character(guesses, passages),
        pages=len({passage.page for passage in passages}),
        words=sum(len(passage.words) for passage in passages),
        characters=sum(word.end - word.start for p in passages for word in p.words),
        new_words=found.new_words,
        general=found.general._asdict() if found.general else None,
        tasks=[task._asdict() for task in found.tasks],
        verdict={},
    )
    result["verdict"] = adaptation_verdict(result)._asdict()
    files = [file for record in records for file in record["files"]]
    write = partial(Path.write_bytes, data=json_bytes(result))
    files.append(committed_file(build.out, "result.json", write))
    build.finish({"files": files})


def _measure(
    model: MeasuredModel, encoder: Encoder, passages: Sequence[Passage], device: str, report: Any
) -> dict[str, Any]:
    """Return the losses of a model on every word; None if it has no masked-LM head."""
    if not model.masked_lm:
        return {"losses": None, "tokens": None}
    network = open_masked_lm(model.masked_lm)
    enable_fast_path(network)
    network.to(Engine(device=device).device)
    found = word_losses(network, encoder, passages, report)
    return {"losses": found.losses.tolist(), "tokens": found.tokens.tolist()}


def _tokens_per_word(pages: Sequence[str], encoder: Encoder) -> float:
    lines = [line for page in pages for line in page.split("\n") if line.strip()]
    backend = encoder.tokenizer.backend_tokenizer
    tokens = sum(map(len, backend.encode_batch(lines, add_special_tokens=False)))
    return float(tokens / max(1, sum(len(line.split()) for line in lines)))


def _guessing(
    passages: Sequence[Passage], encoder: Encoder, counts_V: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the loss of every word if its tokens are guessed by their frequency."""
    losses_V = np.log((counts_V + 0.5).sum()) - np.log(counts_V + 0.5)
    encodings = encode(encoder, [passage.text for passage in passages], None, encoder.longest)
    return np.array(
        [
            sum(losses_V[encoding.ids[position]] for position in positions_of(word, encoding))
            for passage, encoding in zip(passages, encodings, strict=True)
            for word in passage.words
        ]
    )
