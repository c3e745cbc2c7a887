"""`electrify pretrain` with packed rows and with a chosen attention."""

import shutil

import pytest
from tests.training.test_resume import contents, interrupted

from electrify.errors import UserError
from electrify.recipes.schema import Recipe, check, override
from electrify.tokens.prepare import Prepare, prepare

FLAGS = ("--run.packing", "--run.steps", 8, "--run.eval-every", 4, "--run.save-every", 4)
FLAGS += ("--run.log-every", 2, "--run.keep-last", 9, "--micro-batch", 4)


@pytest.fixture(scope="module")
def finished(nursery, recipe, shards, tmp_path_factory):
    """A finished packed run next to its shards."""
    home = tmp_path_factory.mktemp("packed")
    shutil.copytree(shards, home / "shards")
    command = ("pretrain", recipe, "--data", "shards", "--out", "run", *FLAGS)
    nursery.start(*command, log=home / "log", cwd=home)
    assert nursery.wait() == 0, (home / "log").read_text()
    return home / "run"


def test_a_packed_run_fills_its_rows_and_resumes_with_the_same_bytes(finished, nursery, tmp_path):
    log = (finished.parent / "log").read_text()
    assert "training examples in " in log
    assert "% full" in log
    run = interrupted(finished, tmp_path / "elsewhere", step=4)
    assert nursery.run("pretrain", "--resume", run, log=tmp_path / "log") == 0
    assert "resuming from step 4" in (tmp_path / "log").read_text()
    assert contents(run) == contents(finished)


def test_a_packed_run_is_reported(finished, nursery, tmp_path):
    out = tmp_path / "page.html"
    assert nursery.run("report", finished, "--out", out, log=tmp_path / "log") == 0
    assert "epochs" in out.read_text()


def test_documents_of_packed_shards_are_kept_apart(nursery, recipe, docs, vocab, tmp_path):
    data, log = tmp_path / "data", tmp_path / "log"
    prepare(Prepare((docs,), str(vocab), data, length=32, layout="packed", workers="1"))
    command = ("pretrain", recipe, "--data", data, "--out", tmp_path / "run", "--run.steps", 1)
    assert nursery.run(*command, "--run.packing", log=log) == 0, log.read_text()
    assert "attention crosses" not in log.read_text()


def test_an_architecture_that_mixes_neighbours_is_refused_before_the_run(
    nursery, recipe, shards, tmp_path
):
    log, run = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", run, "--run.packing")
    changed = ("--discriminator.architecture", "convbert")
    assert nursery.run(*command, *changed, log=log) == 2, log.read_text()
    assert "convbert cannot keep the documents of a packed row apart" in log.read_text()
    assert not run.exists()


def test_an_unknown_attention_has_a_near_match(nursery, recipe, shards, tmp_path):
    with pytest.raises(UserError) as error:
        check(override(Recipe(), {"attn_implementation": "flash_attention2"}))
    assert error.value.fix == "did you mean flash_attention_2?"
    log, out = tmp_path / "log", tmp_path / "run"
    command = ("pretrain", recipe, "--data", shards, "--out", out, "--run.steps", 2)
    assert nursery.run(*command, "--run.attn-implementation", "eager", log=log) == 0
    assert nursery.run(*command, "--run.attn-implementation", "eagre", log=log) == 2
    assert "did you mean eager?" in log.read_text()
