"""Whether cost grows as work does: `python benchmarks/growth.py TEXT VOCAB_TXT [--rounds 3]`.

step      operations a second of ELECTRA-small's training step at several batch sizes and lengths.
          The count has attention's quadratic term in it, so a step whose cost grows as it should
          does as many a second at every size
prepare   megabytes a second of `electrify prepare` with one worker, on an eighth of the documents
          of TEXT, half of them and all
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
"""Of a batch of length 32 to 512: what grows is the length alone."""
SHARES = (8, 2, 1)


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("text", type=Path)
    asked.add_argument("vocab", type=Path)
    asked.add_argument("--rounds", type=int, default=3)
    given = asked.parse_args()
    print(where())
    with tempfile.TemporaryDirectory(prefix="growth") as work:
        say(measure(prepares(given.text, given.vocab, Path(work)), given.rounds), "MB/s")
    by_batch = {f"{size} × 128": step(size, 128) for size in BATCHES}
    say(measure(by_batch, given.rounds), "GFLOP/s")
    by_length = {f"{TOKENS // long} × {long}": step(TOKENS // long, long) for long in LENGTHS}
    say(measure(by_length, given.rounds), "GFLOP/s")


def step(batch_size: int, length: int):
    """One step of ELECTRA-small on so many examples of a length."""
    given = argparse.Namespace(
        recipe="electra-small", length=length, batch_size=batch_size, dropout=0.1
    )
    recipe = sized(given)
    flops = objective_flops(build_objective(recipe, VOCABULARY), recipe)
    steps = ours(recipe)
    steps(1)  # memory is there from now on
    return lambda: steps(1) * flops / 1e9


def prepares(text: Path, vocab: Path, work: Path):
    """`electrify prepare` on parts of a text."""
    whole = settings_type("text")(sources=(str(text),), out=work / "docs", workers="1")
    documents = corpus(whole)["documents"]
    rivals = {}
    for share in SHARES:
        out, limit = work / f"docs-{share}", max(1, documents // share)
        part = corpus(replace(whole, out=out, filters=replace(whole.filters, limit=limit)))
        rivals[f"{part['text_bytes'] / 1e6:.1f} MB"] = _prepare(out, vocab, part["text_bytes"])
    return rivals


def _prepare(docs: Path, vocab: Path, size: int):
    def run() -> float:
        prepare_afresh(docs, vocab)
        return size / 1e6

    return run


def say(rates: dict[str, list[float]], unit: str) -> None:
    """The best rate at every size: noise only ever takes away."""
    best = {name: max(some) for name, some in rates.items()}
    table = Table("size", f"{unit}, best", "of the largest size")
    for name, rate in best.items():
        table.add_row(name, f"{rate:.1f}", f"{rate / best[list(best)[-1]]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
