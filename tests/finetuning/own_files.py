"""Small files of each kind whose labels can be learned, and settings that learn them."""

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
PLACES = ("kata", "lota")


def settings(model: Path, folder: Path, suffix: str, **changes: Any) -> Finetune:
    """A command that learns what `write` wrote into a folder."""
    chosen: dict[str, Any] = {"out": folder / "out", "length": 32, "fit": FAST, "device": "cpu"}
    return Finetune(
        str(model), folder / f"train{suffix}", folder / f"dev{suffix}", **{**chosen, **changes}
    )


def write_classes(folder: Path) -> str:
    """Whether a sentence holds a certain word, as CSV."""
    for split, count in (("train", 240), ("dev", 40)):
        lines = [f'"{a}, really",{("bad", "good")[y]}' for a, _, y in rows(count, len(split))]
        (folder / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return ".csv"


def write_pairs(folder: Path) -> str:
    """The same of the first of two sentences, as JSON lines with numbers for labels."""
    for split, count in (("train", 240), ("dev", 40)):
        some = [{"premise": a, "hypothesis": b, "label": y} for a, b, y in rows(count, len(split))]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some))
    return ".jsonl"


def write_scores(folder: Path) -> str:
    """A score far from 0 by the same word, as TSV."""
    for split, count in (("train", 240), ("dev", 40)):
        lines = [
            f"{i}\t{1000 + 500 * y + i % 7 / 2}\t{a}"
            for i, (a, _, y) in enumerate(rows(count, len(split)))
        ]
        (folder / f"{split}.tsv").write_text("\n".join(["id\tscore\tsentence", *lines]) + "\n")
    return ".tsv"


def tagged(count: int, seed: int) -> list[tuple[list[str], list[str]]]:
    """Sentences in which certain words are places."""
    rng = Random(seed)
    sentences = [rng.choices(WORDS[:12], k=rng.randint(2, 8)) for _ in range(count)]
    return [(words, ["B-LOC" if w in PLACES else "O" for w in words]) for words in sentences]


def write_tags(folder: Path) -> str:
    """Places, CoNLL-style."""
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
    """Gives the settings of a finished command of each kind, which is run when first asked for."""
    made: dict[str, Finetune] = {}

    def tuned(kind: str) -> Finetune:
        if kind not in made:
            (folder / kind).mkdir()
            made[kind] = settings(model, folder / kind, WRITERS[kind](folder / kind))
            finetune(made[kind])
        return made[kind]

    return tuned
