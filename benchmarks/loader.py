"""Measure the rows per second of a job by its number of ranks: `python benchmarks/loader.py`.

    python benchmarks/loader.py TEXT VOCAB_TXT [--rounds 15]

TEXT is plain text with blank lines between documents, compressed or not; it is prepared at two
lengths first. Each rank makes its own rows of the global batch, so a batch is there after the time
that one rank needs for its share. That is the CPU time of one process with one thread, measured for
one of the ranks; a machine with as many cores as ranks is not needed. Linear means as many times
the rows per second of one rank as there are ranks.
"""

import argparse
import io
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from side_by_side import where

from electrify.batches.loader import Batches
from electrify.batches.masking import Masking
from electrify.corpora.corpus import corpus, settings_type
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.store import Shards
from electrify.tokens.tokenizer import load_tokenizer

BATCHES = ((128, 128), (2048, 512))
"""Rows of the global batch, and their length."""
RANKS = (1, 2, 4, 8, 32, 128)
MASKED_SHARE = 0.15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("vocab", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(where())
    table = Table("batch", "masking", "ranks", "CPU ms of a rank", "rows/s of the job", "of linear")
    with tempfile.TemporaryDirectory(prefix="benchmark") as folder:
        docs = Path(folder) / "docs"
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            corpus(settings_type("text")(sources=(str(args.text),), out=docs, workers="1"))
        for rows, length in BATCHES:
            shards = Path(folder) / f"{length}"
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                prepare(Prepare((docs,), str(args.vocab), shards, length=length, workers="1"))
            for whole_words in (False, True):
                masking = Masking(MASKED_SHARE, length, whole_words=whole_words)
                _add_rows(table, shards, rows, masking, args.rounds)
    Console(width=120).print(table)


def _add_rows(table: Table, shards: Path, rows: int, masking: Masking, rounds: int) -> None:
    examples, tokenizer = Shards(shards, "train"), load_tokenizer(shards / "tokenizer")
    loaders = {
        ranks: Batches(
            examples, tokenizer, masking, rows, seed=1, rows=range(max(1, rows // ranks))
        )
        for ranks in RANKS
    }
    seconds: dict[int, list[float]] = {ranks: [] for ranks in RANKS}
    for number in range(rounds + 1):
        for ranks, loader in loaders.items():
            begin = time.process_time()
            loader[number]
            seconds[ranks].append(time.process_time() - begin)
    one = median(seconds[1][1:])  # the first batch opens and verifies shards
    for ranks in RANKS:
        share = median(seconds[ranks][1:])
        table.add_row(
            f"{rows:,} × {masking.length}",
            "whole words" if masking.whole_words else "single tokens",
            f"{ranks}",
            f"{1e3 * share:.2f}",
            f"{rows / share:,.0f}",
            f"{one / share / ranks:.0%}",
        )


if __name__ == "__main__":
    main()
