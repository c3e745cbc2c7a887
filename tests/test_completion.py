"""Shell completion, tested with a real bash."""

import subprocess

import pytest

from electrify.commands import COMMANDS
from electrify.completion import bash, fish, words_after


@pytest.fixture(scope="module")
def words() -> dict[str, list[str]]:
    return dict(words_after())


def completions(script: str, *typed: str) -> list[str]:
    """Return the completions of the last word in bash."""
    line = " ".join(f"'{word}'" for word in ("electrify", *typed))
    call = f"COMP_WORDS=({line}); COMP_CWORD={len(typed)}; _electrify; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{call}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["pre"], ["prepare", "pretrain", "predict"]),
        (["pretrain", "electra-b"], ["electra-base"]),
        (["pretrain", "tiny", "--run.st"], ["--run.steps"]),
        (["pretrain", "--resu"], ["--resume"]),
        (["corpus", "wiki"], ["wikipedia"]),
        (["corpus", "wikipedia", "--ou"], ["--out"]),
        (["glue", "sub"], ["submit"]),
        (["data", "g"], ["glue"]),
        (["glue", "submit", "--da"], ["--data"]),
        (["squad", "--no-such"], []),
    ],
)
def test_bash_completes_commands_recipes_kinds_and_options(words, typed, expected):
    assert sorted(completions(bash(words), *typed)) == sorted(expected)


def test_every_command_has_its_options(words):
    without = [name for name in COMMANDS if not any(w.startswith("--") for w in words[name])]
    assert without == ["corpus"]  # its kinds have the options


def test_fish_has_a_line_for_every_word(words):
    lines = fish(words).splitlines()
    assert len(lines) == sum(map(len, words.values()))
    assert all(line.replace(r"\'", "").count("'") % 2 == 0 for line in lines)
