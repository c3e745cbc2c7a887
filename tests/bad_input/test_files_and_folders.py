"""Sources and outputs that are unusual, missing, changed, full or in use."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from electrify.corpora.archive import count_unread
from electrify.corpora.troubles import (
    CLOSED_FOLDER,
    HIDDEN_FILE,
    LINKED_FOLDER,
    NOT_A_FILE,
    OTHER_SUFFIX,
)
from tests.bad_input.sources import ALSO_GOOD, GOOD, manifest, same_bytes, source_of, texts, tree
from tests.conftest import make_documents


def test_sources_that_are_not_files_are_refused(tmp_path, refused, monkeypatch):
    """Each ends within the timeout of `run`: none waits for a pipe or reads a device to its end."""
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.txt.gz")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_bytes(GOOD)
    listener = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    listener.bind("socket")
    listener.close()
    odd = ["pipe", "pipe.txt.gz", "socket", "loop", "dangling", "nowhere", "folder", "a.txt/b"]
    for name in [*odd, "/dev/zero", "a" * 5000]:
        for kind in (
            ["text", "jsonl", "csv", "wikipedia", "parquet"] if name == "pipe" else ["text"]
        ):
            refused("corpus", kind, name, "--out", "docs")
            assert not (tmp_path / "docs" / "manifest.json").exists()


@pytest.mark.parametrize("kind", ["wikipedia", "gutenberg", "openwebtext", "jsonl", "parquet"])
def test_every_kind_refuses_missing_and_empty_sources(tmp_path, refused, kind):
    (tmp_path / "empty").mkdir()
    for source in ("nowhere", "./empty") if kind == "jsonl" else ("./empty",):
        assert source.lstrip("./") in refused("corpus", kind, source, "--out", "docs")
    assert not (tmp_path / "docs" / "manifest.json").exists()


def test_unusual_files_in_a_folder(tmp_path, run):
    """A pipe, circular links, a folder named like a file, and names that are not UTF-8."""
    source = tmp_path / "src"
    (source / "folder.txt").mkdir(parents=True)
    os.mkfifo(source / "pipe.txt")
    (source / "self.txt").symlink_to("self.txt")
    (source / "dangling.txt").symlink_to("nowhere")
    (source / "up").symlink_to("..")
    (source / "here").symlink_to(".")
    odd_name = os.fsdecode(b"caf\xe9 \n.txt")
    (source / odd_name).write_bytes(GOOD)
    (source / "last.txt").write_bytes(ALSO_GOOD)
    for out, workers in (("docs", 1), ("docs2", 2)):
        run("corpus", "text", "src", "--out", out, "--workers", workers)
    assert sorted(texts(tmp_path / "docs")) == sorted([GOOD.decode(), ALSO_GOOD.decode()])
    assert same_bytes(tmp_path / "docs", tmp_path / "docs2")
    run("show", "docs")
    # given by name, as source and as output
    out = os.fsdecode(b"out-\xe9")
    run("corpus", "text", f"src/{odd_name}", "--out", out)
    assert texts(tmp_path / out) == [GOOD.decode()]
    assert "nothing to do" in run("corpus", "text", f"src/{odd_name}", "--out", out).stdout
    run("show", out)
    run("show", out, "--verify")


def test_an_error_about_an_unusual_name_is_readable(tmp_path, run, refused):
    refused("corpus", "text", os.fsdecode(b"caf\xe9.txt"), "--out", "docs")
    (tmp_path / os.fsdecode(b"caf\xe9.txt.gz")).write_bytes(b"not gzip")
    run("corpus", "text", os.fsdecode(b"caf\xe9.txt.gz"), "--out", "docs")


def test_the_output_is_never_the_source(tmp_path, refused):
    (tmp_path / "src" / "sub").mkdir(parents=True)
    (tmp_path / "src" / "sub" / "a.txt").write_bytes(GOOD)
    (tmp_path / "link").symlink_to("src")
    before = tree(tmp_path / "src")
    for source, out in [
        ("src", "src"),
        ("src/sub/a.txt", "src/sub"),
        ("src/sub", "src"),
        ("src", "src/docs"),  # the next run would read its own output
        ("link", "src/docs"),
        ("src", "link/docs"),
        (".", "docs"),
    ]:
        refused("corpus", "text", source, "--out", out)
        assert tree(tmp_path / "src") == before


OTHER = {
    "corpus": ("--split", "file"),
    "tokenizer": ("--vocab-size", "160"),
    "prepare": ("--seed", "1"),
}


COMMANDS = list(OTHER)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_there_is_left_alone(tmp_path, run, refused, inputs, command):
    """Made with other settings, with a mangled manifest or without one: nothing changes."""
    run(*inputs[command], "--out", "out")
    before = tree(tmp_path / "out")
    refused(*inputs[command], *OTHER[command], "--out", "out")
    assert "nothing to do" in run(*inputs[command], "--out", "out").stdout
    assert tree(tmp_path / "out") == before
    (tmp_path / "out" / "manifest.json").write_text("{}")
    refused(*inputs[command], "--out", "out", code=3)
    (tmp_path / "out" / "manifest.json").unlink()
    refused(*inputs[command], "--out", "out")
    del before["manifest.json"]
    assert tree(tmp_path / "out") == before


def test_a_source_that_changed_is_noticed(tmp_path, run, refused):
    (tmp_path / "a.txt").write_bytes(GOOD)
    run("corpus", "text", "a.txt", "--out", "docs")
    times = (tmp_path / "a.txt").stat()
    (tmp_path / "a.txt").write_bytes(GOOD.replace(b"good", b"nice"))
    os.utime(tmp_path / "a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    refused("corpus", "text", "a.txt", "--out", "docs")
    assert texts(tmp_path / "docs") == [GOOD.decode()]


@pytest.mark.parametrize("command", COMMANDS)
def test_invalid_outputs(tmp_path, refused, inputs, command):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (tmp_path / "dangling").symlink_to("loop")
    (tmp_path / "loop").symlink_to("dangling")
    before = tree(tmp_path)
    outs = ["file/out"]
    if command == "corpus":
        outs += ["folder", "file", "loop/out", "/dev/full", "/proc/out", "a" * 300, ""]
    for out in outs:
        refused(*inputs[command], "--out", out)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_an_error_and_the_same_command_goes_on(
    tmp_path, run, refused, inputs, command
):
    """A limit on the size of files makes writing fail as on a full disk."""

    def full(limit: int) -> Callable[[], None]:
        def apply() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return apply

    run(*inputs[command], "--out", "clean")
    for limit in (0, 500) if command == "corpus" else (500,):
        refused(*inputs[command], "--out", "out", preexec_fn=full(limit), fresh=True)
        assert not (tmp_path / "out" / "manifest.json").exists()
    run(*inputs[command], "--out", "out")
    assert same_bytes(tmp_path / "out", tmp_path / "clean")


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere; the full disk is tested above"
)
def test_a_folder_without_write_permission(tmp_path, refused, inputs):
    (tmp_path / "locked").mkdir(mode=0o555)
    for arguments in inputs.values():
        refused(*arguments, "--out", "locked/out")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_and_run_again_gives_the_same_bytes(tmp_path, run, inputs, docs, command):
    """Commands are killed twice; the workers may outlive their parent for a while."""
    arguments = inputs[command]
    if command == "corpus":
        (tmp_path / "src").mkdir()
        for number in range(8):
            made = "\n\n".join(d.text for d in make_documents(300, seed=number))
            (tmp_path / "src" / f"{number}.txt").write_text(made)
        arguments = ["corpus", "text", "src", "--workers", 2]
    if command == "prepare":
        arguments = [*arguments, "--workers", 2]
    start = time.monotonic()
    run(*arguments, "--out", "clean")
    duration = time.monotonic() - start
    for fraction in (0.6, 0.9):
        process = subprocess.Popen(
            [sys.executable, "-m", "electrify", *map(str, arguments), "--out", "out"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(fraction * duration)
        process.kill()
        process.wait()
        if (tmp_path / "out" / "manifest.json").exists():
            assert same_bytes(tmp_path / "out", tmp_path / "clean")
    run(*arguments, "--out", "out")
    assert same_bytes(tmp_path / "out", tmp_path / "clean")


@pytest.mark.parametrize("kind", ["jsonl", "wikipedia"])
def test_the_same_bytes_for_any_number_of_workers(tmp_path, run, kind):
    name, data = source_of(kind)
    (tmp_path / name).write_bytes(data)
    for workers in (1, 3):
        run("corpus", kind, name, "--out", f"docs{workers}", "--workers", workers, "--dedup")
    assert same_bytes(tmp_path / "docs1", tmp_path / "docs3")


def test_what_a_folder_has_besides_its_files_is_counted(tmp_path, run, monkeypatch):
    source, other = tmp_path / "src", tmp_path / "other"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.txt").write_bytes(GOOD)
    other.mkdir()
    (other / "b.txt").write_bytes(ALSO_GOOD)
    (source / "linked").symlink_to(other)
    (source / "linked too").symlink_to(other)
    (source / ".hidden.txt").write_bytes(GOOD)
    (source / "report.doc").write_bytes(GOOD)
    os.mkfifo(source / "pipe.txt")
    output = run("corpus", "text", "src", "--out", "docs").stdout
    assert texts(tmp_path / "docs") == [GOOD.decode()]
    expected = {LINKED_FOLDER: 2, HIDDEN_FILE: 1, OTHER_SUFFIX: 1, NOT_A_FILE: 1}
    assert manifest(tmp_path / "docs")["notes"] == expected
    assert all(note in output for note in expected)
    real = os.scandir

    def scandir(path):  # permissions do not bind the superuser
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert count_unread([source], (".txt",)) == {**expected, CLOSED_FOLDER: 1}
