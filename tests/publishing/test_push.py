"""`export --push` uploads every file once, also after a kill, and refuses what cannot work."""

import os
import signal
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import ModelCard
from transformers import AutoModel, AutoTokenizer, ElectraForPreTraining

from electrify.cli import main

REPO = "me/tiny"


def export(*arguments: object) -> int:
    return main(["export", *map(str, arguments)])


def write_repository(files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def test_the_repository_loads_and_a_second_push_uploads_nothing(run_of, fake_hub, tmp_path, capsys):
    run = run_of("electra")
    command = (run, "--out", tmp_path / "model", "--push", "tiny", "--private")
    assert export(*command, "--language", "en", "--license", "apache-2.0") == 0
    assert f"/{REPO}: " in capsys.readouterr().out
    assert fake_hub.repos[REPO]["private"]
    folder = write_repository(fake_hub.files(REPO), tmp_path / "downloaded")
    AutoModel.from_pretrained(folder)
    AutoTokenizer.from_pretrained(folder)
    ElectraForPreTraining.from_pretrained(folder / "discriminator")
    card = ModelCard.load(folder / "README.md")
    assert (card.data.language, card.data.license) == (["en"], "apache-2.0")
    assert f'AutoTokenizer.from_pretrained("{REPO}")' in card.text
    assert 'subfolder="discriminator"' in (folder / "discriminator" / "README.md").read_text()
    assert not [name for name in fake_hub.files(REPO) if name.endswith("manifest.json")]
    counts = Counter(fake_hub.received), Counter(fake_hub.committed)
    assert set(counts[0].values()) == set(counts[1].values()) == {1}
    assert export(*command, "--language", "en", "--license", "apache-2.0") == 0
    assert "already there (private)" in capsys.readouterr().out
    assert (fake_hub.received, fake_hub.committed) == counts
    assert export(*command, "--language", "en", "--license", "mit") == 0
    changed = {path for (_, path), count in fake_hub.committed.items() if count == 2}
    assert changed == {"README.md", "discriminator/README.md", "generator/README.md"}


def test_a_revision_is_a_checkpoint_and_has_no_files_of_another(run_of, fake_hub, tmp_path, capsys):
    run = run_of("electra")
    assert export(run, "--out", tmp_path / "last", "--push", REPO) == 0
    fake_hub.files(REPO)["onnx/model.onnx"] = b"of the last step"
    fake_hub.files(REPO)["LICENSE"] = b"of the user"
    assert export(run, "--out", tmp_path / "two", "--push", REPO, "--revision", "step-2") == 0
    assert "1 outdated removed" in capsys.readouterr().out
    main_files, step_files = fake_hub.files(REPO), fake_hub.files(REPO, "step-2")
    assert set(main_files) - set(step_files) == {"onnx/model.onnx"}
    assert (
        step_files["model.safetensors"] == (tmp_path / "two/encoder/model.safetensors").read_bytes()
    )
    assert step_files["model.safetensors"] != main_files["model.safetensors"]
    assert b'revision="step-2"' in step_files["README.md"]
    assert fake_hub.commits == [("main", "Step 4"), ("step-2", "Step 2")]


def run_command(*arguments: object, hub: str) -> subprocess.Popen:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"},
        **{"HF_ENDPOINT": hub, "HF_TOKEN": "hf_write", "HF_HUB_DISABLE_XET": "1"},
    }
    command = [sys.executable, "-m", "electrify", "export", *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.parametrize(
    "accepted",
    [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(2, marks=pytest.mark.slow)],
)
def test_a_killed_push_is_resumed_and_every_file_arrives_once(accepted, run_of, fake_hub, tmp_path):
    command = (run_of("electra"), "--out", tmp_path / "model", "--push", REPO)
    fake_hub.accepted_puts = accepted
    process = run_command(*command, hub=fake_hub.url)
    assert fake_hub.stalled.wait(120), process.communicate(timeout=5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert set(fake_hub.files(REPO)) == {".gitattributes"}, "all files or none"
    assert len(fake_hub.blobs) == accepted
    fake_hub.accepted_puts = None
    assert export(*command) == 0
    large = [
        data for data in fake_hub.files(REPO).values() if sha256(data).hexdigest() in fake_hub.blobs
    ]
    assert len(large) == len(fake_hub.received) == 3
    assert set(fake_hub.received.values()) == set(fake_hub.committed.values()) == {1}
    assert len(fake_hub.commits) == 1


def refused(capsys, *arguments: object) -> str:
    assert export(*arguments) == 2
    error = capsys.readouterr().err
    assert "got:" in error
    assert "fix:" in error
    return error


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "--push needs a token"),
        ("hf_read", "may only read"),
        ("hf_wrong", "the token is not valid"),
    ],
)
def test_without_a_token_that_may_write_nothing_is_exported(
    token, message, run_of, fake_hub, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    error = refused(capsys, run_of("electra"), "--out", tmp_path / "model", "--push", REPO)
    assert message in error
    assert not (tmp_path / "model").exists()
    assert not fake_hub.repos


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--push", "a/b/c"], "must be the name of a repository"),
        (["--push", REPO, "--revision", "a b"], "must be the name of a branch"),
        (["--push", REPO, "--revision", "step-2", "--step", "4"], "different checkpoints"),
        (["--push", REPO, "--revision", "step-3"], "no such checkpoint"),
        (["--private"], "--private is for --push"),
        (["--revision", "step-2"], "--revision is for --push"),
        (["--language", "English"], "use ISO codes"),
        (["--license", "Apache 2"], "apache-2.0"),
        (["--scores", "nowhere"], "nowhere contains no results"),
    ],
)
def test_bad_options_are_refused_before_anything_is_exported(
    options, message, run_of, fake_hub, tmp_path, capsys
):
    assert message in refused(capsys, run_of("electra"), "--out", tmp_path / "model", *options)
    assert not (tmp_path / "model").exists()
    assert not fake_hub.repos


def test_a_public_repository_is_not_used_if_a_private_one_is_asked_for(
    run_of, fake_hub, tmp_path, capsys
):
    fake_hub.repos[REPO] = {"private": False, "branches": {"main": {}}}
    command = (run_of("electra"), "--out", tmp_path / "model", "--push", REPO, "--private")
    assert "is public" in refused(capsys, *command)
    assert not (tmp_path / "model").exists()


def test_offline_mode_is_named(run_of, fake_hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    error = refused(capsys, run_of("electra"), "--out", tmp_path / "model", "--push", REPO)
    assert "fix: unset HF_HUB_OFFLINE" in error
    assert not fake_hub.requests


def test_a_hub_that_does_not_answer_is_an_error(run_of, fake_hub, tmp_path, capsys):
    fake_hub.close()
    error = refused(capsys, run_of("electra"), "--out", tmp_path / "model", "--push", REPO)
    assert "the Hub cannot be reached" in error
    assert not (tmp_path / "model").exists()
