"""Compare several models on the same words of validation pages, and collect scores of tasks.

    python benchmarks/domain.py --docs DOCS --out domain.json BASE:NAME=FOLDER …

A FOLDER is the --out of `electrify adapt`, or a folder of exported networks. All models of one BASE
are compared on the same words, and one after the other: no times are measured here. The scores of
the suite in a folder of `electrify adapt` are included.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from electrify.corpora.document import read_parquet, row_groups
from electrify.finetuning.adaptation.passages import choose_passages
from electrify.finetuning.adaptation.word_loss import (
    difference_error,
    per_character,
    word_losses,
)
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.suite.record import read_record
from electrify.models.base import open_base
from electrify.models.detectors import open_masked_lm
from electrify.training.folder import RunFolder
from electrify.training.journal import seconds_trained

LENGTH = 64


def main() -> None:
    """Measure the models and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="BASE:NAME=FOLDER")
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--words", type=int, default=8_000)
    parser.add_argument("--scores", nargs="*", default=[], metavar="BASE=SUITE")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    pages = [document.text for document in read_parquet(row_groups(options.docs))]
    bases: dict[str, dict[str, Path]] = {}
    for argument in options.models:
        name, _, folder = argument.partition("=")
        base, _, arm = name.partition(":")
        bases.setdefault(base, {})[arm] = Path(folder)
    record: dict[str, Any] = {
        base: {"arms": arms_of(folders, pages, options.words)} for base, folders in bases.items()
    }
    for argument in options.scores:
        base, _, folder = argument.partition("=")
        record[base]["scores"] = scores_of(Path(folder))
    options.out.write_text(json.dumps(record, indent=1) + "\n")


def arms_of(folders: dict[str, Path], pages: list[str], words: int) -> dict[str, Any]:
    """Return the loss per character of each model, and its difference from the first."""
    exports = {n: f / "model" if (f / "run").is_dir() else f for n, f in folders.items()}
    models = {name: open_base(str(folder)).masked_lm for name, folder in exports.items()}
    encoders = {
        name: open_encoder(str(Path(model).parent / "encoder")) for name, model in models.items()
    }
    passages = choose_passages(pages, list(encoders.values()), LENGTH, words)
    known: dict[str, Any] = {}
    losses: dict[str, Any] = {}
    for name, model in models.items():
        print(name, flush=True)
        found = word_losses(open_masked_lm(model), encoders[name], passages)
        losses[name] = found.losses
        first = next(iter(losses.values()))
        known[name] = {
            "loss_per_character": per_character(found.losses, passages),
            "difference": per_character(found.losses - first, passages),
            "error": difference_error(first, found.losses, passages),
            "tokens_per_masked_word": float(np.mean(found.tokens)),
            **trained(folders[name] / "run"),
        }
    counts = {
        "words": len(first),
        "pages": len({passage.page for passage in passages}),
        "characters": sum(w.end - w.start for p in passages for w in p.words),
    }
    return {"measured": counts, **known}


def trained(run: Path) -> dict[str, Any]:
    """Return the steps and the seconds of a run."""
    if not run.is_dir():
        return {}
    return {"steps": RunFolder(run).steps, "seconds": round(seconds_trained(run))}


def scores_of(folder: Path) -> dict[str, Any]:
    """Return the scores of every seed of a suite."""
    record = read_record(folder)
    return {
        task.name: {
            "metric": task.metric,
            **{
                model.name: list(record.summary(model.name, task).scores.values())
                for model in record.models
            },
        }
        for task in record.tasks
    }


if __name__ == "__main__":
    main()
