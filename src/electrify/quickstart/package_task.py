"""A labelled task that needs no download: which package does a docstring come from?"""

import csv
import hashlib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from electrify.corpora.document import documents_at
from electrify.errors import UserError
from electrify.storage.commit import committed, read_manifest
from electrify.tokens.prepare import Prepare
from electrify.tokens.splits import split_of

SHORTEST = 80
"""Characters that a text has at least: shorter ones say nothing."""


class PackageTask(NamedTuple):
    """How large the task is."""

    packages: int = 8
    train: int = 32
    """Texts of each package to learn from."""
    dev: int = 50
    """Texts of each package to measure on."""


SIZE = PackageTask()


def write_task(
    docs: Path, out: Path, validation: float, size: PackageTask = SIZE
) -> tuple[Path, Path]:
    """Write train.tsv and dev.tsv from documents that know their package.

    What is measured on are documents that `prepare --validation …` holds out of pre-training.

    The packages with most text are taken, and as many texts of each, chosen by a hash of their
    names: the same documents always give the same task, and no text is in both files.
    """
    by_package: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = defaultdict(
        lambda: ([], [])
    )
    count = read_manifest(docs, "documents")["documents"]
    for document in documents_at(docs, range(count)):
        if document.label and len(document.text) >= SHORTEST:
            place = hashlib.sha256(document.id.encode()).hexdigest()
            validation_batches = split_of(document.text, validation, test=Prepare.test) != "train"
            by_package[document.label][validation_batches].append(
                (place, " ".join(document.text.split()))
            )
    largest = sorted(by_package, key=lambda name: (-len(by_package[name][0]), name))
    enough = [n for n in largest if len(by_package[n][0]) >= size.train]
    chosen = [n for n in enough if len(by_package[n][1]) >= size.dev][: size.packages]
    if len(chosen) < 2:
        raise UserError(
            "too few packages with docstrings for a task",
            got=f"{len(chosen)} with {size.train} texts to learn from and {size.dev} held out",
            fix="install some packages, such as numpy and torch, beside electrify",
        )
    files = out / "train.tsv", out / "dev.tsv"
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []
    for name in chosen:
        counts = (size.train, size.dev)
        for rows, some, count in zip(parts, by_package[name], counts, strict=True):
            rows += [(text, name) for _, text in sorted(some)[:count]]
    out.mkdir(parents=True, exist_ok=True)
    for file, rows in zip(files, parts, strict=True):
        with committed(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as f:
            csv.writer(f, delimiter="\t", lineterminator="\n").writerows([("text", "label"), *rows])
    return files
