"""`electrify train`: from a folder of text to a model and a report, resumed after a kill."""

import json
import signal
import subprocess
import sys
import time

import pytest
from tests.conftest import make_documents

STAGES = ("docs", "tokenizer", "shards", "run", "model")


@pytest.fixture
def posts(tmp_path):
    folder = tmp_path / "posts"
    folder.mkdir()
    for number, document in enumerate(make_documents(300)):
        (folder / f"{number}.txt").write_text(document.text * 3)
    return folder


def test_one_command_ends_with_a_model_and_a_report(posts, tmp_path, electrify):
    out = tmp_path / "out"
    command = ("train", posts, "--budget", "5s", "--vocab-size", 200, "--out", out)
    first = electrify(*command).stdout
    for stage in STAGES:
        assert f"--out {out / stage}" in first, stage
        assert (out / stage).is_dir()
    assert (out / "model/encoder/model.safetensors").is_file()
    assert "<html" in (out / "report.html").read_text()
    assert "vocab size: 200 (given by its option)" in first
    assert "recipe: tiny (5 s on a CPU" in first
    run, end = first.split("Next steps:")[0].split("$ electrify export")
    verdict = end[end.index("verdict: ") :].strip()
    assert verdict in run, "pretrain and train end with the same verdict"
    headline = verdict.splitlines()[0].removeprefix("verdict: ").replace(" %", "\xa0%")
    assert headline in (out / "report.html").read_text()
    again = electrify(*command).stdout
    assert "nothing to do" in again
    other = electrify("train", posts, "--vocab-size", 300, "--out", out, code=2)
    assert "the folder has 200, the command says 300" in other.stderr


def test_printed_commands_can_be_typed(posts, tmp_path, electrify):
    out = tmp_path / "out"
    shown = electrify("train", posts, "--budget", "5s", "--vocab-size", 200, "--out", out).stdout
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ electrify")]
    assert [line.split()[1] for line in commands] == [
        *("corpus", "tokenizer", "prepare", "pretrain", "export", "report")
    ]
    for line in commands[:3]:
        repeated = electrify(*line.split()[1:]).stdout
        assert "nothing to do" in repeated, line


@pytest.mark.slow
def test_killed_at_any_stage_it_resumes(posts, tmp_path, electrify):
    out = tmp_path / "out"
    command = ("train", posts, "--budget", "5s", "--vocab-size", 200, "--out", out)
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
    failed = electrify("train", *arguments, "--out", "out", code=2, cwd=tmp_path)
    assert what in failed.stderr
    assert not (tmp_path / "out/docs").exists()


def test_an_option_can_be_corrected_until_its_stage_has_begun(posts, tmp_path, electrify):
    out = tmp_path / "out"
    electrify("train", posts, "--budget", "5s", "--vocab-size", 3, "--out", out, code=2)
    assert not (out / "tokenizer").exists()
    done = electrify("train", posts, "--budget", "5s", "--vocab-size", 200, "--out", out)
    assert "vocab size: 200 (given by its option)" in done.stdout


@pytest.mark.parametrize("content", ["[]", '{"kind": 5}', '{"colour": "red"}'])
def test_damaged_choices_are_named(content, posts, tmp_path, electrify):
    out = tmp_path / "out"
    out.mkdir()
    (out / "choices.json").write_text(content)
    process = electrify("train", posts, "--out", out, code=None)
    assert process.returncode in (2, 3)
    assert "error:" in process.stderr


def test_an_output_that_cannot_be_is_refused(posts, tmp_path, electrify):
    (tmp_path / "file").write_text("mine")
    failed = electrify("train", posts, "--out", tmp_path / "file", code=2)
    assert "cannot be created" in failed.stderr
    failed = electrify("train", posts, "--out", posts / "out", code=2)
    assert "--out is inside a source" in failed.stderr
    assert not (posts / "out").exists()
