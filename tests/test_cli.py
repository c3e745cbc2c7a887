"""The command line: help, options, errors and exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

from electrify import __version__
from electrify.cli import main
from electrify.commands import COMMANDS, HEADINGS


def test_help_imports_no_heavy_modules():
    program = (
        "import sys; from electrify.cli import main; main(['--help']);"
        "heavy = {'torch', 'transformers', 'tyro', 'numpy'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize("command", [*COMMANDS, "corpus text", "plan tiny", "pretrain tiny"])
def test_every_help_has_an_example_and_imports_no_torch(command, warm):
    program = """
def watched(main=electrify.cli.main):
    assert not {"torch", "transformers"} & set(sys.modules), "the warm process already has them"
    try: main()
    except SystemExit: pass
    print("imported", *{"torch", "transformers"} & set(sys.modules))
    return 0
electrify.cli.main = watched
"""
    done = warm.completed(*command.split(), "--help", before=program)
    assert done.returncode == 0, done.stderr
    assert "Example:" in done.stdout
    assert done.stdout.endswith("\nimported\n")


def test_help_groups_every_command_under_a_heading(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert set(HEADINGS) <= set(COMMANDS)
    assert next(iter(HEADINGS)) == next(iter(COMMANDS))
    for command, heading in HEADINGS.items():
        assert lines[lines.index(f"{heading}:") + 1].split()[0] == command
    for name, command in COMMANDS.items():
        assert any(x.startswith(f"  {name} ") and x.endswith(command.summary) for x in lines)


def test_version_and_unknown_command(electrify):
    assert electrify("--version", fresh=True).stdout == f"electrify {__version__}\n"
    error = electrify("prepar", code=2, fresh=True).stderr
    assert "did you mean prepare?" in error
    error = electrify("corpus", "wikipdia", "x", code=2, fresh=True).stderr
    assert "did you mean wikipedia?" in error


def test_an_unknown_option_suggests_the_closest(electrify):
    error = electrify(
        "prepare", "x", "--tokenizer", "t", "--out", "o", "--lenght", "64", code=2
    ).stderr
    assert "--length" in error


def test_from_text_to_shards_and_back_by_settings_file(tmp_path, electrify, vocab):
    """Run the commands of the README, then make the same shards from the saved settings."""
    (tmp_path / "a.txt").write_text("kata loso midi\nnufu peta\n\nraso kadi\n\n" * 200)
    run = lambda *a, **k: electrify(*a, cwd=tmp_path, **k)  # noqa: E731
    out = run("corpus", "text", "a.txt", "--out", "docs", "--dedup").stdout
    assert "2 documents" in out
    assert "duplicate" in out
    run("tokenizer", "docs", "--vocab-size", "100", "--out", "tok", "--min-frequency", "1")
    run("prepare", "docs", "--tokenizer", "tok", "--length", "16", "--out", "shards")
    run("prepare", "--config", "shards/settings.toml", "--out", "again")
    first, second = ((tmp_path / d / "manifest.json").read_text() for d in ("shards", "again"))
    assert first == second
    shown = run("show", "shards").stdout
    assert "[CLS]" in shown
    assert "loso" in run("show", "docs").stdout
    assert "files are intact" in run("show", "shards", "--verify").stdout
    shard = next((tmp_path / "shards").glob("train-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    error = run("show", "shards", "--verify", code=3).stderr
    assert shard.name in error
    assert "SHA-256" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["corpus", "text", "missing", "--out", "o"], "no such file or folder: missing"),
        (["prepare", "missing", "--tokenizer", "t", "--out", "o"], "no tokenizer at t"),
        (["show", "missing"], "nothing to show in missing"),
        (["tokenizer", "--out", "o"], "give documents to train on"),
        (["corpus", "text", "a.txt", "--out", "a.txt"], "is a file"),
        (["corpus", "text", "a.txt", "--out", "."], "contains files that electrify did not make"),
        (["prepare", "--config"], "--config needs a value"),
        (
            ["corpus", "text", "a.txt", "--out", "o", "--min-letters", "7"],
            "must be between 0 and 1",
        ),
    ],
)
def test_errors_say_what_is_wrong_what_was_given_and_how_to_fix_it(
    tmp_path, electrify, arguments, message
):
    (tmp_path / "a.txt").write_text("x")
    error = electrify(*arguments, code=2, cwd=tmp_path, env={"HF_HUB_OFFLINE": "1"}).stderr
    assert message in error
    assert "got:" in error
    assert "fix:" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_a_full_disk_is_an_error_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch):
    import errno

    import electrify.storage.commit as commit

    (tmp_path / "a.txt").write_text("one text\n\nanother text\n")
    arguments = ["corpus", "text", str(tmp_path / "a.txt"), "--out", str(tmp_path / "o")]
    arguments += ["--workers", "1"]
    original = commit.os.fsync
    calls = 0

    def full_after(limit):
        def fsync(descriptor):
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(descriptor)

        return fsync

    for limit in range(12):
        calls = 0
        monkeypatch.setattr(commit.os, "fsync", full_after(limit))
        code = main(arguments)
        if code == 0:
            break
        assert code == 2
        assert "the disk is full" in capsys.readouterr().err
        # No temporary file is left behind.
        assert not list(Path(tmp_path / "o").glob(".*.tmp"))
    assert limit > 3
    assert main(["show", str(tmp_path / "o"), "--verify"]) == 0
