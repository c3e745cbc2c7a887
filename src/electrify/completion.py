"""`electrify completion bash`: print a script that completes commands and options in the shell.

Options are parsed from the help of each command, so the script always matches it. tyro's own
completion is not used: it writes one script per parser rather than one for a table of commands,
cannot complete recipes and kinds before options, and starts Python at every TAB.
"""

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import tyro

from electrify.cli import main
from electrify.commands import COMMANDS
from electrify.corpora.corpus import KINDS
from electrify.planning.cookbook import DO
from electrify.recipes import schema

OPTION = re.compile(r"(?:^|\s\s|│ )(--[a-z][a-z0-9.-]*)", re.MULTILINE)  # in any column
WITH_RECIPE = ("pretrain", "plan")


@dataclass(frozen=True)
class Completion:
    """Print a completion script; save it to a file that your shell reads.

    bash: electrify completion bash > ~/.local/share/bash-completion/completions/electrify

    zsh: electrify completion zsh > ~/.electrify-completion, and source it in ~/.zshrc

    fish: electrify completion fish > ~/.config/fish/completions/electrify.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional] = "bash"
    """The shell to print the script for."""


def completion(settings: Completion) -> None:
    """Print the completion script of a shell."""
    words = dict(words_after())
    print(fish(words) if settings.shell == "fish" else bash(words, settings.shell == "zsh"))


def words_after() -> Iterator[tuple[str, list[str]]]:
    """Yield the words that may follow a command, or a command and its first argument."""
    first = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    yield "", first
    for group in (name for name in first if name not in COMMANDS):
        yield group, [n.removeprefix(f"{group} ") for n in COMMANDS if n.startswith(f"{group} ")]
    for name in COMMANDS:
        if name in WITH_RECIPE:
            yield name, [*schema.names(), *options(name, "tiny")]
        elif name == "corpus":
            yield name, list(KINDS)
            for kind in KINDS:
                yield f"{name} {kind}", options(name, kind)
        else:
            subcommands = [n.removeprefix(f"{name} ") for n in COMMANDS if n.startswith(f"{name} ")]
            subcommands += get_args(DO) if name == "recipes" else []
            yield name, subcommands + options(*name.split())


def options(*command: str) -> list[str]:
    """Return the options of a command, parsed from its help."""
    text = io.StringIO()
    os.environ["COLUMNS"] = "200"  # in a narrow terminal the help would break long options
    with redirect_stdout(text), suppress(SystemExit):
        main([*command, "--help"])
    return list(dict.fromkeys(OPTION.findall(text.getvalue())))


def bash(words: Mapping[str, list[str]], zsh: bool = False) -> str:
    """Return the script for bash, which zsh can load too; it completes files if no word matches."""
    one, two = (
        [
            f'        "{command}") words="{" ".join(following)}" ;;'
            for command, following in words.items()
            if len(command.split()) == parts
        ]
        for parts in (1, 2)
    )
    return "\n".join(
        [
            *(["autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
            "_electrify() {",
            f'    local words="{" ".join(words[""])}"',
            '    if ((COMP_CWORD > 1)); then case "${COMP_WORDS[1]}" in',
            *one,
            "    esac; fi",
            '    if ((COMP_CWORD > 2)); then case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in',
            *two,
            "    esac; fi",
            '    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))',
            "}",
            "complete -o default -F _electrify electrify",
        ]
    )


def fish(words: Mapping[str, list[str]]) -> str:
    """Return the script for fish."""
    summaries = {
        name.split()[0]: command.summary.replace("'", r"\'")
        for name, command in reversed(COMMANDS.items())  # a command, not its subcommands
    }
    lines = [
        f"complete -c electrify -n __fish_use_subcommand -f -a {name} -d '{summary}'"
        for name, summary in ((name, summaries[name]) for name in words[""])
    ]
    for command, following in words.items():
        if command:
            seen = " && ".join(f"__fish_seen_subcommand_from {part}" for part in command.split())
            lines += [
                f"complete -c electrify -n '{seen}' "
                + (f"-l {word[2:]}" if word.startswith("--") else f"-a {word}")
                for word in following
            ]
    return "\n".join(lines)
