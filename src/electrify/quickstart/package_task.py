"""A classification task without downloads: which package does a docstring come from?"""

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
"""Minimum characters per text; shorter ones are not informative."""


class PackageTask(NamedTuple):
    """The size of the task."""

    packages: int = 8
    train: int = 32
    """Training texts per package."""
    dev: int = 50
    """Evaluation texts per package."""


SIZE = PackageTask()


def write_task(
    docs: Path, out: Path, validation: float, size: PackageTask = SIZE
) -> tuple[Path, Path]:
    """Write train.tsv and dev.tsv from documents that are labelled with their package.

    Evaluation texts are documents that `prepare --validation …` excludes from pre-training.

    The packages with the most texts are used, with the same number of texts each, chosen by a hash
    of their ids: the same documents always give the same task, and no text is in both files.
    """
    by_package: dict[str, tuple[list[tuple[str, str]], list[tuple[str, str]]]] = defaultdict(
        lambda: ([], [])
    )
    count = read_manifest(docs, "documents")["documents"]
    for document in documents_at(docs, range(count)):
        if document.label and len(document.text) >= SHORTEST:
            key = hashlib.sha256(document.id.encode()).hexdigest()
            in_dev = split_of(document.text, validation, test=Prepare.test) != "train"
            by_package[document.label][in_dev].append((key, " ".join(document.text.split())))
    largest = sorted(by_package, key=lambda name: (-len(by_package[name][0]), name))
    counts = (size.train, size.dev)
    enough = [n for n in largest if len(by_package[n][0]) >= size.train]
    chosen = [n for n in enough if len(by_package[n][1]) >= size.dev][: size.packages]
    if len(chosen) < 2:
        raise UserError(
            "too few packages with enough docstrings for the task",
            got=f"{len(chosen)} with {size.train} training and {size.dev} validation texts",
            fix="install more packages, such as numpy and torch, in this environment",
        )
    files = out / "train.tsv", out / "dev.tsv"
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = [], []
    for name in chosen:
        for rows, texts, count in zip(parts, by_package[name], counts, strict=True):
            rows += [(text, name) for _, text in sorted(texts)[:count]]
    out.mkdir(parents=True, exist_ok=True)
    for file, rows in zip(files, parts, strict=True):
        with committed(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as f:
            csv.writer(f, delimiter="\t", lineterminator="\n").writerows([("text", "label"), *rows])
    return files
