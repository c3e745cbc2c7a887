"""`electrify train`: from a folder of text to a model and a report, resumed after a kill."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.conftest import make_documents

import electrify as package
from electrify.errors import UserError
from electrify.pipeline.choices import Setting
from electrify.pipeline.command import STAGE_OF_CHOICE, Choices, TrainFromText
from electrify.pipeline.stages import Stages
from electrify.training.folder import RunFolder

STAGES = ("docs", "tokenizer", "shards", "run", "model")
SMALL = ("--budget", "5s", "--vocab-size", "200")


@pytest.fixture(scope="module")
def posts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts") / "posts"
    folder.mkdir()
    for number, document in enumerate(make_documents(300)):
        (folder / f"{number}.txt").write_text(document.text * 3)
    (folder / "again.txt").write_text((folder / "7.txt").read_text())
    return folder


@pytest.fixture(scope="module")
def trained(posts, tmp_path_factory):
    """The folder of a finished training, and what the command printed."""
    out = tmp_path_factory.mktemp("trained") / "out"
    command = [sys.executable, "-m", "electrify", "train", posts, *SMALL, "--out", out]
    return out, subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_one_command_ends_with_a_model_and_a_report(trained):
    out, printed = trained
    for stage in STAGES:
        assert f"--out {out / stage}" in printed, stage
        assert (out / stage).is_dir()
    assert (out / "model/encoder/model.safetensors").is_file()
    assert "<html" in (out / "report.html").read_text()
    assert "vocab size: 200 (given by its option)" in printed
    assert "recipe: tiny (5 s on a CPU)" in printed
    assert "Latin script, 1 duplicate removed" in printed
    assert " of memory, bfloat16 is " in printed
    run, end = printed.split("Next steps:")[0].split("$ electrify export")
    verdict = end[end.index("verdict: ") :].strip()
    assert verdict in run, "pretrain and train end with the same verdict"
    headline = verdict.splitlines()[0].removeprefix("verdict: ").replace(" %", "\xa0%")
    assert headline in (out / "report.html").read_text()


def test_the_function_resumes_and_returns_folders_and_metrics(trained, posts, capsys):
    out, _ = trained
    done = package.train(str(posts), out=str(out), budget="5s", vocab_size=200)
    assert capsys.readouterr().out.count("nothing to do") >= 3
    assert [path.name for path in done[:5]] == list(STAGES)
    assert (done.encoder / "model.safetensors").is_file()
    assert done.report.is_file()
    assert 0 < done.metrics["auc"] <= 1
    with pytest.raises(UserError, match="another --vocab-size") as error:
        package.train(posts, out=out, vocab_size=300)
    assert error.value.got == "the folder has 200, the command says 300"
    with pytest.raises(UserError, match="kind has a bad value"):
        package.train(posts, out=out, kind="txt")


def test_printed_commands_can_be_typed(trained, electrify):
    _, printed = trained
    commands = [line[2:] for line in printed.splitlines() if line.startswith("$ electrify")]
    assert [line.split()[1] for line in commands] == [
        *("corpus", "tokenizer", "prepare", "pretrain", "export", "report")
    ]
    for line in commands[:3]:
        repeated = electrify(*line.split()[1:]).stdout
        assert "nothing to do" in repeated, line


def test_a_second_process_is_refused(trained, posts, electrify):
    out, _ = trained
    with Stages(out).claim("choices.json"):
        failed = electrify("train", posts, *SMALL, "--out", out, code=2)
    assert f"another process is training in {out}" in failed.stderr


def test_a_resumed_training_does_not_survey_again(tmp_path):
    settings = TrainFromText(texts=(tmp_path,), out=tmp_path)
    Choices(settings, STAGE_OF_CHOICE).make(
        lambda: [Setting("kind", "jsonl", "why")], "kind", "split"
    )
    (tmp_path / "docs").mkdir()
    Choices(settings, STAGE_OF_CHOICE).make(lambda: pytest.fail("surveyed again"), "kind", "split")


def test_a_split_is_refused_where_there_is_nothing_to_split(tmp_path):
    settings = TrainFromText(texts=(tmp_path,), out=tmp_path, split="file")
    with pytest.raises(UserError, match="--split does not apply"):
        Choices(settings, STAGE_OF_CHOICE).make(
            lambda: [Setting("kind", "jsonl", "why")], "kind", "split"
        )
    assert not (tmp_path / "choices.json").exists()


@pytest.mark.slow
def test_killed_at_any_stage_it_resumes(posts, tmp_path, electrify):
    out = tmp_path / "out"
    command = ("train", posts, *SMALL, "--out", out)
    for stage in STAGES:
        process = subprocess.Popen(
            [sys.executable, "-m", "electrify", *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (out / stage).exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    electrify(*command)
    choices = json.loads((out / "choices.json").read_text())
    assert (choices["recipe"], choices["kind"]) == ("tiny", "text")
    assert (out / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere",), "nowhere cannot be read"),
        (("posts", "--budget", "soon"), "--budget"),
        (("posts", "--recipe", "tinny"), "tiny"),
    ],
)
def test_bad_input_is_refused_before_anything_is_made(arguments, what, posts, tmp_path, electrify):
    out = tmp_path / "out"
    failed = electrify("train", *arguments, "--out", out, code=2, cwd=posts.parent)
    assert what in failed.stderr
    assert not out.exists()


@pytest.mark.slow
def test_an_option_can_be_corrected_until_its_stage_has_begun(posts, tmp_path, electrify):
    command = ("train", posts, "--out", tmp_path / "out", "--length", 3, "--vocab-size")
    electrify(*command, 3, code=2)
    assert not (tmp_path / "out/tokenizer").exists()
    done = electrify(*command, 200, code=2)
    assert "vocab size: 200 (given by its option)" in done.stdout
    assert (tmp_path / "out/tokenizer").is_dir()


@pytest.mark.parametrize("content", ["[]", '{"kind": 5}', '{"colour": "red"}'])
def test_damaged_choices_are_named(content, tmp_path):
    (tmp_path / "choices.json").write_text(content)
    with pytest.raises(UserError):
        Choices(TrainFromText(texts=(tmp_path,), out=tmp_path), STAGE_OF_CHOICE)


def test_an_output_that_cannot_be_is_refused(posts, tmp_path, electrify):
    (tmp_path / "file").write_text("mine")
    failed = electrify("train", posts, "--out", tmp_path / "file", code=2)
    assert "file is a file" in failed.stderr
    assert (tmp_path / "file").read_text() == "mine"
    failed = electrify("train", posts, "--out", posts / "out", code=2)
    assert "--out is inside a source" in failed.stderr
    assert not (posts / "out").exists()


@pytest.mark.slow
def test_a_run_that_was_extended_is_exported_again(trained, posts, electrify, tmp_path):
    out = shutil.copytree(trained[0], tmp_path / "out")
    steps = RunFolder(out / "run").recipe.run.steps
    longer = electrify("pretrain", "--resume", out / "run", "--budget", "9s", code=2)
    assert "--more 1h" in longer.stderr
    electrify("pretrain", "--resume", out / "run", "--steps", steps + 2)
    again = electrify("train", posts, "--budget", "5s", "--vocab-size", 200, "--out", out).stdout
    assert "train longer" in again
    identity = json.loads((out / "model/manifest.json").read_text())["identity"]
    assert identity["step"] == steps + 2
