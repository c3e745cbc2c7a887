"""`prepare` and `glue` on a Dask scheduler with two workers, one of which is killed."""

import subprocess
import sys

import pytest

from electrify.finetuning.glue.command import glue
from electrify.finetuning.options import Glue
from electrify.tokens.prepare import Prepare, prepare
from tests.conftest import make_documents, write_documents
from tests.dask_cluster import QUIET, dask_cluster, holds_a_lock
from tests.finetuning.conftest import encoder_folder, glue_folder  # noqa: F401
from tests.test_jobs import wait_until

TUNING = {"lr": 1e-3, "epochs": 6.0, "layer_decay": 1.0, "length": 32}


def command(*arguments):
    return [sys.executable, "-m", "electrify", *map(str, arguments)]


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
def test_prepare_makes_the_same_files_after_a_worker_was_killed(vocab, tmp_path, monkeypatch):
    """The paths are relative: workers that run elsewhere use the command's working directory."""
    write_documents(tmp_path / "docs", make_documents(3000), per_file=15)
    monkeypatch.chdir(tmp_path)
    prepare(Prepare("docs", str(vocab), "local", length=32, workers="2"))
    out, parts = tmp_path / "out", tmp_path / "out" / ".parts" / "shards"
    given = ("docs", "--tokenizer", vocab, "--out", "out", "--length", 32)
    with dask_cluster(tmp_path) as cluster:
        address = ("--workers", cluster.scheduler_file.name)
        process = subprocess.Popen(command("prepare", *given, *address), **QUIET)
        wait_until(lambda: len(list(parts.glob("*.json"))) > 2)
        cluster.workers[0].kill()
        made = len(list(parts.glob("*.json")))
        assert 2 < made < 50  # of 50: it was killed in the middle
        assert process.wait(timeout=60) == 0
        assert cluster.workers[1].poll() is None
    assert files_of(out) == files_of(tmp_path / "local")


@pytest.mark.slow
def test_glue_makes_the_same_files_after_a_worker_was_killed(
    encoder_folder,  # noqa: F811
    glue_folder,  # noqa: F811
    tmp_path,
):
    local, out = tmp_path / "local", tmp_path / "out"
    chosen = {"tasks": "sst2", "seeds": 4, "workers": 2, **TUNING}
    glue(Glue(model=str(encoder_folder), data=glue_folder, out=local, **chosen))
    named = {name: value for name, value in chosen.items() if name != "workers"}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in named.items()]
    given = ("glue", encoder_folder, "--data", glue_folder, "--out", out, *flags)
    with dask_cluster(tmp_path) as cluster:
        process = subprocess.Popen(command(*given, "--workers", cluster.address), **QUIET)
        wait_until(lambda: holds_a_lock(out, cluster.workers[0].pid), 240)
        cluster.workers[0].kill()
        assert process.wait(timeout=300) == 0
    assert files_of(out).keys() == files_of(local).keys()
    for name, content in files_of(out).items():
        if name.endswith((".safetensors", ".md", ".tex", ".csv")):
            assert content == files_of(local)[name], name
