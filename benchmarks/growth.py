"""Check that cost grows in proportion to work: `python benchmarks/growth.py TEXT VOCAB_TXT`.

step      FLOP/s of ELECTRA-small's training step at several batch sizes and lengths. The count
          includes attention's quadratic term, so FLOP/s should be the same at every size
prepare   MB/s of `electrify prepare` with one worker on an eighth, half and all of the documents
          of TEXT
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from data import prepare_afresh
from pretrain import VOCABULARY, ours, sized
from rich.console import Console
from rich.table import Table
from side_by_side import measure, where

from electrify.corpora.corpus import corpus, settings_type
from electrify.objectives.objective import build_objective
from electrify.training.networks import objective_flops

BATCHES = (8, 16, 32, 64, 128)
LENGTHS = (32, 64, 128, 256, 512)
TOKENS = 4096
"""Tokens per batch at lengths 32 to 512, so that only the length grows."""
SHARES = (8, 2, 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("vocab", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(where())
    with tempfile.TemporaryDirectory(prefix="growth") as work:
        print_rates(
            measure(prepare_runs(args.text, args.vocab, Path(work)), args.rounds),
            "MB/s",
        )
    by_batch = {f"{size} × 128": step(size, 128) for size in BATCHES}
    print_rates(measure(by_batch, args.rounds), "GFLOP/s")
    by_length = {
        f"{TOKENS // length} × {length}": step(TOKENS // length, length) for length in LENGTHS
    }
    print_rates(measure(by_length, args.rounds), "GFLOP/s")


def step(batch_size: int, length: int):
    """Return a function that runs one step of ELECTRA-small and returns its GFLOPs."""
    args = argparse.Namespace(
        recipe="electra-small", length=length, batch_size=batch_size, dropout=0.1
    )
    recipe = sized(args)
    flops = objective_flops(build_objective(recipe, VOCABULARY), recipe)
    steps = ours(recipe)
    steps(1)  # so that memory is allocated
    return lambda: steps(1) * flops / 1e9


def prepare_runs(text: Path, vocab: Path, work: Path):
    """Return functions that run `electrify prepare` on parts of a text."""
    settings = settings_type("text")(sources=(str(text),), out=work / "docs", workers="1")
    documents = corpus(settings)["documents"]
    rivals = {}
    for share in SHARES:
        out, limit = work / f"docs-{share}", max(1, documents // share)
        part = corpus(replace(settings, out=out, filters=replace(settings.filters, limit=limit)))
        rivals[f"{part['text_bytes'] / 1e6:.1f} MB"] = _prepare(out, vocab, part["text_bytes"])
    return rivals


def _prepare(docs: Path, vocab: Path, size: int):
    def run() -> float:
        prepare_afresh(docs, vocab)
        return size / 1e6

    return run


def print_rates(rates: dict[str, list[float]], unit: str) -> None:
    """Print the best rate at every size, because noise only makes runs slower."""
    best = {name: max(values) for name, values in rates.items()}
    table = Table("size", f"best {unit}", "relative to the largest size")
    for name, rate in best.items():
        table.add_row(name, f"{rate:.1f}", f"{rate / best[list(best)[-1]]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
