"""Small files of each kind with learnable labels, and settings that learn them."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.conftest import WORDS
from tests.finetuning.conftest import rows

from electrify.finetuning.options import Finetune, Fit
from electrify.finetuning.own.command import finetune

FAST = Fit(lr=1e-3, epochs=12, batch_size=16, layer_decay=1.0)
LOCATIONS = ("kata", "lota")


def settings(model: Path, folder: Path, suffix: str, **changes: Any) -> Finetune:
    """Return the settings of a command that learns from the files in a folder."""
    defaults: dict[str, Any] = {"out": folder / "out", "length": 32, "fit": FAST, "device": "cpu"}
    return Finetune(
        str(model), folder / f"train{suffix}", folder / f"dev{suffix}", **{**defaults, **changes}
    )


def write_classes(folder: Path) -> str:
    """Write CSV whose label is whether a sentence contains a certain word."""
    for split, count in (("train", 240), ("dev", 40)):
        lines = [f'"{a}, really",{("bad", "good")[y]}' for a, _, y in rows(count, len(split))]
        (folder / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return ".csv"


def write_pairs(folder: Path) -> str:
    """Write the same for the first of two sentences, as JSON lines with integer labels."""
    for split, count in (("train", 240), ("dev", 40)):
        examples = [
            {"premise": a, "hypothesis": b, "label": y} for a, b, y in rows(count, len(split))
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(e) + "\n" for e in examples))
    return ".jsonl"


def write_scores(folder: Path) -> str:
    """Write TSV with a score far from 0 that depends on the same word."""
    for split, count in (("train", 240), ("dev", 40)):
        lines = [
            f"{i}\t{1000 + 500 * y + i % 7 / 2}\t{a}"
            for i, (a, _, y) in enumerate(rows(count, len(split)))
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["id\tscore\tsentence", *lines]) + "\n")
    return ".tsv"


def tagged(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Return sentences in which certain words are locations."""
    rng = Random(seed)
    sentences = [rng.choices(WORDS[:12], k=rng.randint(2, 8)) for _ in range(count)]
    return [(words, ["B-LOC" if w in LOCATIONS else "O" for w in words]) for words in sentences]


def write_tags(folder: Path) -> str:
    """Write tagged locations as a CoNLL-style file."""
    for split, count in (("train", 240), ("dev", 30)):
        sentences = [
            "".join(f"{word} X {tag}\n" for word, tag in zip(words, tags, strict=True))
            for words, tags in tagged(count, len(split))
        ]
        (folder / f"{split}.txt").write_text("-DOCSTART- X O\n\n" + "\n".join(sentences))
    return ".txt"


WRITERS = {
    "classes": write_classes,
    "pairs": write_pairs,
    "score": write_scores,
    "tags": write_tags,
}


def tuner(model: Path, folder: Path) -> Callable[[str], Finetune]:
    """Return a function that runs the command of a kind once and returns its settings."""
    finished: dict[str, Finetune] = {}

    def tuned(kind: str) -> Finetune:
        if kind not in finished:
            (folder / kind).mkdir()
            finished[kind] = settings(model, folder / kind, WRITERS[kind](folder / kind))
            finetune(finished[kind])
        return finished[kind]

    return tuned
