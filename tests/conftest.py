"""Shared fixtures: a small corpus of documents, a tokenizer and shards of it, and commands."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

# Workers with several threads each would compete for the cores; set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from electrify.corpora.document import Document, write_parquet
from electrify.storage.build import Build, committed_file
from electrify.tokens import tokenizer
from electrify.tokens.prepare import Prepare, prepare
from tests.training.nursery import DATA, Nursery

WARM_COMMANDS = ("corpus", "tokenizer", "prepare", "show")
WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra") for b in ("ta", "so", "di", "fu")]


def make_documents(count: int, seed: int = 0) -> list[Document]:
    """Return documents of 1 to 12 lines of 3 to 40 words."""
    rng = Random(seed)
    documents = []
    for number in range(count):
        lines = [
            " ".join(rng.choices(WORDS, k=rng.randint(3, 40))) for _ in range(rng.randint(1, 12))
        ]
        documents.append(Document(str(number), "\n".join(lines), "made up"))
    return documents


def write_documents(folder: Path, documents: list[Document], per_file: int = 40) -> Path:
    """Write a finished folder of documents like `electrify corpus`."""
    build = Build(folder, "documents", {"settings": {}, "sources": []})
    files = []
    for number, start in enumerate(range(0, len(documents), per_file)):
        chunk = documents[start : start + per_file]
        name = f"documents-{number:05d}.parquet"
        files.append(
            committed_file(folder, name, lambda path, chunk=chunk: write_parquet(path, chunk))
        )
    characters = sum(len(document.text) for document in documents)
    build.finish({"documents": len(documents), "characters": characters, "files": files})
    return folder


@pytest.fixture(scope="session")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("corpus") / "docs", make_documents(400))


@pytest.fixture(scope="session")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    syllables = sorted({w[:2] for w in WORDS} | {f"##{w[2:]}" for w in WORDS})
    words = [*tokenizer.OUR_NAMES.values(), *syllables, *WORDS[::2]]
    path.write_text("\n".join(words) + "\n")
    return path


@pytest.fixture(scope="session")
def shards(docs: Path, vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shards") / "shards"
    prepare(Prepare((docs,), str(vocab), out, length=32, validation=0.1, workers="1"))
    return out


@pytest.fixture(scope="session")
def warm() -> Iterator[Nursery]:
    """A process that has imported what the data commands need."""
    process = Nursery(DATA)
    yield process
    process.close()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process that has imported what training and fine-tuning need, without access to the Hub."""
    process = Nursery()
    yield process
    process.close()


@pytest.fixture
def electrify(
    request: pytest.FixtureRequest,
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run a command in a new process; with `fresh`, in one that starts from scratch."""

    def run(
        *arguments: object, code: int | None = 0, fresh: bool = False, **kwargs: object
    ) -> "subprocess.CompletedProcess[str]":
        if fresh or arguments[0] not in WARM_COMMANDS:
            command = [sys.executable, "-m", "electrify", *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, **kwargs)  # type: ignore[call-overload]
        else:
            done = request.getfixturevalue("warm").completed(*arguments, **kwargs)
        assert code in (done.returncode, None), (
            f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run
