"""Cut development files out of GLUE's training files: `python benchmarks/tuning_split.py GLUE OUT`.

Settings are chosen on these splits, so that the real development files stay unseen. Rows that share
a sentence, directly or through others, stay on one side: otherwise a model could answer from
memory. In SST-2, whose training file has the phrases of its sentences, phrases of sentences to
evaluate on are left out of training.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

ROWS = {"CoLA": 1000, "SST-2": 1500, "MRPC": 600, "STS-B": 1000, "RTE": 500, "QNLI": 3000}
TEXTS = {"CoLA": [3], "SST-2": [0], "MRPC": [3, 4], "STS-B": [7, 8], "RTE": [1, 2], "QNLI": [1, 2]}
"""The columns with texts."""
WITHOUT_HEADER = {"CoLA"}
WORDS_OF_A_SENTENCE = 15
LARGEST_GROUP = 0.2
"""Fraction of the rows to evaluate on that one group of connected rows may have."""


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
        shared = texts_of(task, train) & texts_of(task, dev)
        print(
            f"{task}: {len(train):,} rows for training, {len(dev):,} to evaluate on, "
            f"{len(shared)} texts in both"
        )


def split(task: str, rows: Sequence[str], count: int) -> tuple[list[str], list[str]]:
    """Return rows for training, shuffled, and about `count` to evaluate on; always the same."""
    rng = random.Random(f"board {task}")
    groups = connected(task, rows)
    if task == "SST-2":  # a sentence to evaluate on must not be a phrase
        groups = [
            g for g in groups if len(texts(task, rows[g[0]])[0].split()) >= WORDS_OF_A_SENTENCE
        ]
    rng.shuffle(groups)
    chosen: set[int] = set()
    for group in groups:
        if len(chosen) + len(group) <= count and len(group) <= LARGEST_GROUP * count:
            chosen.update(group)
    dev = [rows[i] for i in sorted(chosen)]
    train = [row for i, row in enumerate(rows) if i not in chosen]
    if task == "SST-2":
        evaluated = "\n".join(texts(task, row)[0] for row in dev)
        train = [row for row in train if texts(task, row)[0] not in evaluated]
    rng.shuffle(train)
    return train, dev


def connected(task: str, rows: Sequence[str]) -> list[list[int]]:
    r"""Return the groups of rows that are connected by shared texts.

    >>> connected("RTE", ["0\ta\tb", "1\tc\td", "2\tb\te"])
    [[0, 2], [1]]
    """
    parents = list(range(len(rows)))

    def root(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        for text in texts(task, row):
            parents[root(number)] = root(first.setdefault(text, number))
    groups: dict[int, list[int]] = defaultdict(list)
    for number in range(len(rows)):
        groups[root(number)].append(number)
    return sorted(groups.values())


def texts_of(task: str, rows: Sequence[str]) -> set[str]:
    """Return the texts of some rows."""
    return {text for row in rows for text in texts(task, row)}


def texts(task: str, row: str) -> list[str]:
    """Return the texts of a row."""
    cells = row.split("\t")
    return [cells[column].strip() for column in TEXTS[task] if column < len(cells)]


if __name__ == "__main__":
    main()
