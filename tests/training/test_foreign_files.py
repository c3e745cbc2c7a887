"""A run uses its own checkpoints and tokenizer, and never those that others put in its folder."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.reports.pairs import bytes_pairs, make_run

from electrify.cli import main
from electrify.errors import DamagedError, UserError
from electrify.reports.pair import load_pair
from electrify.reports.run import read_run
from electrify.storage.commit import write_json
from electrify.storage.verified import Verified
from electrify.tokens.tokenizer import save_tokenizer
from electrify.training import checkpoint
from electrify.training.folder import RunFolder
from electrify.training.resume import resumed
from electrify.training.trained import load_trained


@pytest.fixture(scope="module")
def made(shards, tmp_path_factory) -> Path:
    """A run with a checkpoint at step 7."""
    return make_run(shards, tmp_path_factory.mktemp("own") / "run")


@pytest.fixture
def run(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture
def foreign(run) -> Path:
    """The run, with an intact checkpoint of another run at step 80."""
    own = checkpoint.read_checkpoint(checkpoint.stored(run / "checkpoints")[0])
    weights = {name: torch.zeros_like(tensor) for name, tensor in own.model.items()}
    taken = checkpoint.Snapshot(80, weights, {}, {})
    checkpoint.write(run / "checkpoints", taken, run="another")
    return run


def test_the_newest_checkpoint_of_the_run_itself_is_used(foreign, tmp_path, capsys):
    assert load_trained(foreign).step == 7
    assert load_pair(str(foreign)).discriminator is not None
    assert read_run(foreign, "run").saved == 7
    assert [c.step for c in RunFolder(foreign).saved()] == [7]  # those that `probe` fine-tunes
    assert main(["export", str(foreign), "--out", str(tmp_path / "model")]) == 0
    assert "another run" in capsys.readouterr().err
    assert "7 of 60" in (tmp_path / "model/discriminator/README.md").read_text()


def test_the_checkpoint_of_another_run_is_refused_by_its_step(foreign, tmp_path, capsys):
    with pytest.raises(DamagedError, match="step-00000080 is damaged") as error:
        load_trained(foreign, 80)
    assert "another run" in error.value.got
    with pytest.raises(UserError, match="no such checkpoint") as error:
        load_trained(foreign, 8)
    assert error.value.fix == "use one of 7"
    assert main(["show", str(foreign), "--verify"]) == 3
    assert (
        "step 80: manifest.json: this is the checkpoint of another run" in capsys.readouterr().err
    )


def replace_tokenizer(run: Path) -> None:
    save_tokenizer(bytes_pairs(), run / "tokenizer")


def replace_word(run: Path) -> None:
    file = run / "tokenizer/tokenizer.json"
    file.write_text(file.read_text().replace('"kata"', '"atak"'))


def remove_tokenizer(run: Path) -> None:
    shutil.rmtree(run / "tokenizer")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("harm", [replace_tokenizer, replace_word, remove_tokenizer])
def test_a_tokenizer_that_is_not_that_of_the_run_is_refused(harm, older, run, tmp_path, capsys):
    """Runs of earlier versions have no hashes of the files, only that of the tokenizer."""
    about = json.loads((run / "run.json").read_text())
    assert [entry["name"] for entry in about["tokenizer"]] == [
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    ]
    if older:
        del about["tokenizer"]
        write_json(run / "run.json", about)
    assert main(["show", str(run), "--verify"]) == 0
    harm(run)
    for command in (["export", str(run), "--out", str(tmp_path / "model")], ["show", str(run)]):
        assert main(command) in ((2, 3) if older and harm is remove_tokenizer else (3,))
    assert not (tmp_path / "model").exists()
    assert main(["show", str(run), "--verify"]) != 0
    assert "tokenizer" in capsys.readouterr().err


def test_the_hash_of_an_older_run_is_not_compared_between_versions(run):
    """Another version of `tokenizers` may write the same tokenizer differently."""
    about = json.loads((run / "run.json").read_text())
    del about["tokenizer"]
    about["shards"]["identity"]["tokenizer"]["sha256"] = "0" * 64
    write_json(run / "run.json", about)
    with pytest.raises(DamagedError):
        RunFolder(run).load_tokenizer()
    about["made_with"]["tokenizers"] = "0.1"
    write_json(run / "run.json", about)
    RunFolder(run).load_tokenizer()


@pytest.mark.parametrize(
    ("name", "value"),
    [("identity", {"recipe": {}, "data": {}}), ("options", 5), ("options", []), ("identity", [])],
)
def test_a_damaged_run_is_an_error_and_no_traceback(run, name, value):
    write_json(run / "run.json", {**RunFolder(run).about, name: value})
    with pytest.raises(DamagedError, match=r"run\.json is damaged"):
        resumed(run)
    with pytest.raises(DamagedError, match=r"run\.json is damaged"):
        assert RunFolder(run).shards


@pytest.mark.parametrize("number", ["1e999", "null", "[]", '"x"'])
def test_damaged_stamps_are_ignored(tmp_path, number):
    (tmp_path / "verified.json").write_text(f'[["a", "b", {number}, 2, 3]]')
    assert ("a", "b", 1, 2, 3) not in Verified(tmp_path / "verified.json")
