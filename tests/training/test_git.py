"""The commit of a run is read without running git."""

import os
import subprocess

import pytest

from electrify.training.folder import environment
from electrify.training.git import git_commit

PERSON = ("-c", "user.name=a", "-c", "user.email=a@b.c")


def git(folder, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *PERSON, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


def test_the_commit_is_that_of_git(repository, tmp_path):
    head = git(repository, "rev-parse", "HEAD")
    assert git_commit(repository) == git_commit(repository / "sub") == head
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "worktree"))
    git(tmp_path / "worktree", "commit", "-q", "--allow-empty", "-m", "two")
    second = git(tmp_path / "worktree", "rev-parse", "HEAD")
    assert (git_commit(tmp_path / "worktree"), git_commit(repository)) == (second, head)
    git(repository, "pack-refs", "--all")
    assert (git_commit(tmp_path / "worktree"), git_commit(repository)) == (second, head)
    git(repository, "checkout", "-q", "--detach", second)
    assert git_commit(repository) == second
    assert git_commit(tmp_path) == ""


def test_no_program_of_the_repository_is_run(repository, monkeypatch):
    witness = repository / "witness"
    program = repository / "program"
    program.write_text(f"#!/bin/sh\ntouch {witness}\n")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    monkeypatch.chdir(repository)
    assert environment()["git"]["commit"]
    assert not witness.exists()
    git(repository, "status")  # which the program would have noticed
    assert witness.exists()


def test_a_pipe_in_place_of_the_packed_refs_is_not_waited_for(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    os.mkfifo(tmp_path / ".git" / "packed-refs")
    assert git_commit(tmp_path) == ""


@pytest.mark.parametrize(
    "head", ["", "ref: refs/../../secret", "ref: /etc/passwd", "x" * 40, "ref: refs/heads/none"]
)
def test_a_strange_repository_has_no_commit(tmp_path, head):
    (tmp_path / "secret").write_text("f" * 40)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert git_commit(tmp_path) == ""
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert git_commit(tmp_path) == ""
