"""Run commands on bad input: each ends soon, leaves no temporary files and reports its error."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bad_input.sources import Run
from tests.conftest import make_documents


@pytest.fixture
def run(electrify: Run, tmp_path: Path) -> Run:
    """Run a command in its own folder, where it must end soon and leave no temporary files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(*arguments: object, **kwargs: object) -> "subprocess.CompletedProcess[str]":
        if arguments[0] in ("corpus", "prepare") and "--workers" not in arguments:
            arguments = (*arguments, "--workers", 1)  # one process starts fastest
        env = {**os.environ, "TMPDIR": str(scratch), **kwargs.pop("env", {})}  # type: ignore[dict-item]
        done = electrify(*arguments, cwd=tmp_path, timeout=60, env=env, **kwargs)
        assert not list(scratch.iterdir()), "temporary files were left behind"
        return done

    return run


@pytest.fixture
def refused(run: Run) -> Callable[..., str]:
    """Run a command that must fail with a proper error, and return the error."""

    def refused(*arguments: object, code: int = 2, **kwargs: object) -> str:
        error = run(*arguments, code=code, **kwargs).stderr
        what = error.index("error: ")
        assert what < error.index("\n  got: ") < error.index("\n  fix: "), error
        return error

    return refused


@pytest.fixture
def inputs(tmp_path: Path, docs: Path, vocab: Path) -> dict[str, list[object]]:
    """Valid arguments of each command that makes a folder, except --out."""
    (tmp_path / "a.txt").write_text("\n\n".join(d.text for d in make_documents(400)))
    return {
        "corpus": ["corpus", "text", "a.txt"],
        "tokenizer": ["tokenizer", docs, "--vocab-size", 150],
        "prepare": ["prepare", docs, "--tokenizer", vocab, "--length", 64],
    }


@pytest.fixture(scope="session")
def shards(docs: Path, vocab: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the documents, all in the training split."""
    folder = tmp_path_factory.mktemp("prepared") / "shards"
    options = [docs, "--tokenizer", vocab, "--validation", 0, "--test", 0, "--out", folder]
    command = [sys.executable, "-m", "electrify", "prepare", *map(str, options), "--workers", "1"]
    subprocess.run(command, check=True, capture_output=True)
    return folder
