"""Cut development files out of GLUE's training files: `python benchmarks/tuning_split.py GLUE OUT`.

Settings are chosen on these splits, so that the real development files stay unseen. Rows that
share text with the new development file would make it too easy, so they are left out of training:
SST-2's training file contains the phrases of its sentences, and QNLI's several questions for each
paragraph, which follow each other.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

ROWS = {"CoLA": 1000, "SST-2": 1500, "MRPC": 600, "STS-B": 1000, "RTE": 500, "QNLI": 3000}
WITHOUT_HEADER = {"CoLA"}
WORDS_OF_A_SENTENCE = 15


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("glue", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    for task, count in ROWS.items():
        lines = (
            (args.glue / task / "train.tsv").read_text(encoding="utf-8").rstrip("\n").split("\n")
        )
        header = [] if task in WITHOUT_HEADER else lines[:1]
        train, dev = split(task, lines[len(header) :], count)
        folder = args.out / task
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in (("train", train), ("dev", dev)):
            text = "\n".join([*header, *rows]) + "\n"
            (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
        print(f"{task}: {len(train):,} rows for training, {len(dev):,} to evaluate on")


def split(task: str, rows: Sequence[str], count: int) -> tuple[list[str], list[str]]:
    """Return rows for training, shuffled, and `count` rows to evaluate on; always the same."""
    rng = random.Random(f"board {task}")
    indices = range(len(rows))
    if task == "QNLI":
        chosen = set(indices[-count:])
    elif task == "SST-2":
        sentences = [i for i in indices if len(_phrase(rows[i]).split()) >= WORDS_OF_A_SENTENCE]
        chosen = set(rng.sample(sentences, count))
    else:
        chosen = set(rng.sample(indices, count))
    dev = [rows[i] for i in sorted(chosen)]
    train = [rows[i] for i in indices if i not in chosen]
    if task == "SST-2":
        evaluated = "\n".join(map(_phrase, dev))
        train = [row for row in train if _phrase(row) not in evaluated]
    rng.shuffle(train)
    return train, dev


def _phrase(row: str) -> str:
    return row.split("\t")[0].strip()


if __name__ == "__main__":
    main()
