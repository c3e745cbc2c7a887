"""The commands: a table, and what all have in common. A stage is imported when it is asked for."""

import errno
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from electrify import __version__
from electrify.errors import EXIT_INTERRUPTED, EXIT_USER, UserError
from electrify.storage.commit import defined


class Command(NamedTuple):
    """What a command does, the function that does it, and an example."""

    says: str
    function: str
    example: str
    kinds: str | None = None
    """The table of kinds to choose from first, for commands that have kinds."""
    json: bool = False
    """Whether the function returns what it tells, so that --json can print it for scripts."""
    settings: str = ""
    """Its settings, if they are not beside it: help need not wait for torch."""


COMMANDS = {
    "quickstart": Command(
        "the whole way on text that every Python installation carries",
        "electrify.quickstart.command:quickstart",
        "electrify quickstart --out quickstart",
    ),
    "train": Command(
        "train a model on a folder of text: looks, chooses, trains, reports",
        "electrify.pipeline.command:train_from_text",
        "electrify train my_texts/ --budget 1h --out trained",
    ),
    "corpus": Command(
        "raw text to documents",
        "electrify.corpora.corpus:corpus",
        "electrify corpus wikipedia enwiki-latest-pages-articles.xml.bz2 --out docs",
        kinds="electrify.corpora.corpus:KINDS",
        json=True,
    ),
    "tokenizer": Command(
        "documents to a tokenizer",
        "electrify.tokens.vocabulary:make_tokenizer",
        "electrify tokenizer docs --vocab-size 30522 --out tokenizer",
    ),
    "prepare": Command(
        "documents to token shards",
        "electrify.tokens.prepare:prepare",
        "electrify prepare docs --tokenizer tokenizer --length 128 --out shards",
        json=True,
    ),
    "recipes": Command(
        "list, show, copy and check recipes",
        "electrify.planning.cookbook:recipes",
        "electrify recipes copy electra-small",
        json=True,
    ),
    "plan": Command(
        "what a recipe costs: parameters, FLOPs, memory, time",
        "electrify.planning.plan:plan",
        "electrify plan electra-small --hardware V100",
        json=True,
    ),
    "pretrain": Command(
        "shards to a pre-trained model; again: goes on where it stopped",
        "electrify.training.pretrain:pretrain",
        "electrify pretrain electra-small --data shards --out run",
        settings="electrify.training.options:Pretrain",
    ),
    "export": Command(
        "a run to Hugging Face folders",
        "electrify.training.export_run:export_run",
        "electrify export run --out model",
        settings="electrify.training.options:Export",
    ),
    "glue": Command(
        "fine-tune on GLUE: tasks × seeds to a table beside published rows",
        "electrify.finetuning.glue.command:glue",
        "electrify glue model/encoder --data GLUE --tasks cola,mrpc --seeds 5 --out glue",
        json=True,
        settings="electrify.finetuning.options:Glue",
    ),
    "glue submit": Command(
        "test predictions of the best run of each task, as a zip for the server or as files",
        "electrify.finetuning.glue.submit:glue_submit",
        "electrify glue submit glue --data GLUE --out submission.zip",
        settings="electrify.finetuning.options:GlueSubmit",
    ),
    "glue search": Command(
        "learning rate, epochs and layer decay of a task by optuna",
        "electrify.finetuning.glue.search:search",
        "electrify glue search model/encoder --data GLUE --task cola --out search",
        settings="electrify.finetuning.options:Search",
    ),
    "glue compare": Command(
        "two sets of results, seed by seed",
        "electrify.finetuning.glue.compare:compare",
        "electrify glue compare glue-a glue-b",
        json=True,
    ),
    "glue stability": Command(
        "spread over pre-training seeds: the average of the best run of each task",
        "electrify.finetuning.glue.stability:stability",
        "electrify glue stability glue-1 glue-2 glue-3",
        json=True,
    ),
    "probe": Command(
        "fine-tune the checkpoints of a run: scores along the training",
        "electrify.finetuning.glue.probe:probe",
        "electrify probe run --data GLUE --tasks cola,stsb --out probe",
        json=True,
        settings="electrify.finetuning.options:Probe",
    ),
    "squad": Command(
        "fine-tune on SQuAD 1.1 or 2.0: answers, n-best, exact match and F1",
        "electrify.finetuning.squad.command:squad",
        "electrify squad model/encoder --data SQUAD --out squad",
        json=True,
        settings="electrify.finetuning.options:Squad",
    ),
    "finetune": Command(
        "fine-tune on one's own classes, scores or tags (CSV, TSV, JSON lines, CoNLL)",
        "electrify.finetuning.own.command:finetune",
        "electrify finetune model/encoder --train train.tsv --dev dev.tsv --out tuned",
        json=True,
        settings="electrify.finetuning.options:Finetune",
    ),
    "predict": Command(
        "what a fine-tuned model says of the rows of a file",
        "electrify.finetuning.own.predict:predict",
        "electrify predict tuned new.tsv --out predictions.tsv",
        settings="electrify.finetuning.options:Predict",
    ),
    "report": Command(
        "runs and GLUE results as one HTML page",
        "electrify.reports.report:report",
        "electrify report run glue --out report.html",
        settings="electrify.reports.options:Report",
    ),
    "inspect": Command(
        "which tokens of a text a model takes for replaced; --serve: a page to try texts in",
        "electrify.reports.inspection:inspect",
        'electrify inspect model "The quick brown fax jumps." --html page.html',
        settings="electrify.reports.options:Inspect",
    ),
    "completion": Command(
        "a script with which bash, zsh or fish complete these commands and their options",
        "electrify.completion:completion",
        "electrify completion bash > ~/.local/share/bash-completion/completions/electrify",
    ),
    "show": Command(
        "look at documents, shards or a run, or verify them",
        "electrify.reports.show_run:show",
        "electrify show shards --count 3",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, TextIOWrapper):  # what a terminal or a pipe cannot show is no fault
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        known = _gone() if error.errno == errno.ENOENT else _system_error(error)
        if known is None:
            raise
        print(f"error: {known}", file=sys.stderr)
        return EXIT_USER


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"electrify {__version__}")
        return 0
    name, *rest = arguments
    if rest and f"{name} {rest[0]}" in COMMANDS:
        name, *rest = f"{name} {rest[0]}", *rest[1:]
    if name not in COMMANDS:
        from electrify.config import unknown

        raise unknown(f"electrify {name}", name, COMMANDS, "command")
    if gone := _gone():
        raise gone  # libraries abort the process when they look for files there
    command = COMMANDS[name]
    as_json = command.json and "--json" in rest
    if as_json:
        rest.remove("--json")
    settings = _settings(f"electrify {name}", command, rest)
    from electrify import config

    function = config.named(command.function)
    # For a script, what people read goes to the other stream.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = function(settings)
    if as_json:
        print(json.dumps(defined(result), ensure_ascii=False, indent=1))
    return result if isinstance(result, int) else 0  # commands that can end in several ways say so


def _settings(program: str, command: Command, arguments: list[str]) -> Any:
    """The settings the function takes, from a TOML file if one is given and the command line."""
    import tyro

    from electrify import config
    from electrify.recipes import schema

    kind = _settings_kind(command)
    if issubclass(kind, schema.FromRecipe):
        return _recipe_settings(program, command, kind, arguments)
    if command.kinds:
        kinds = config.named(command.kinds)
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_kinds_help(program, command, kinds))
            raise SystemExit(0)
        if arguments[0].startswith("-"):
            raise UserError(
                f"{program} needs the kind first", got=arguments[0], fix=f"{command.example}"
            )
        if arguments[0] not in kinds:
            raise config.unknown(f"{program} {arguments[0]}", arguments[0], kinds, "kind")
        chosen, *arguments = arguments
        program = f"{program} {chosen}"
        command = command._replace(example=f"{program} {kinds[chosen].source} --out docs")
        kind = config.named(command.function.split(":")[0] + ":settings_type")(chosen)
    arguments, file = _config_file(arguments)
    default = config.read_settings(kind, file, required=tyro.MISSING) if file else None
    description = "\n\n".join([f"{kind.__doc__}", *_hints(command), CONFIG_HELP])
    return tyro.cli(kind, prog=program, args=arguments, default=default, description=description)


def _settings_kind(command: Command) -> type[Any]:
    from electrify import config

    if command.settings:
        return config.named(command.settings)  # type: ignore[no-any-return]
    return get_type_hints(config.named(command.function))["settings"]  # type: ignore[no-any-return]


def _recipe_settings(program: str, command: Command, kind: type[Any], arguments: list[str]) -> Any:
    """The settings of a command that takes a recipe first: the recipe's, changed by the flags."""
    from dataclasses import replace

    import tyro

    from electrify import config
    from electrify.recipes import schema

    if not arguments or arguments[0] in ("-h", "--help"):
        usage = f"usage: {program} RECIPE …      {program} {schema.names()[-1]} --help says more"
        known = f"recipes: {', '.join(schema.names())}, or the path of a .toml file"
        print("\n\n".join([usage, f"{kind.__doc__}", known, f"Example: {command.example}"]))
        raise SystemExit(0)
    if arguments[0].startswith("-"):
        raise UserError(f"{program} needs a recipe first", got=arguments[0], fix=command.example)
    name, *arguments = arguments
    recipe, arguments = schema.with_config_flags(schema.load(name), arguments)
    default = replace(config.fill(kind, {}, name, tyro.MISSING), recipe=recipe, name=name)
    description = "\n\n".join([f"{kind.__doc__}", *_hints(command), _fields_help(recipe)])
    program = f"{program} {name}"
    return tyro.cli(kind, prog=program, args=arguments, default=default, description=description)


def _hints(command: Command) -> list[str]:
    example = f"Example: {command.example}"
    return [example, "--json prints the result for scripts."] if command.json else [example]


def _fields_help(chosen: Any) -> str:
    lines = [
        "The defaults below are the recipe's. Any field of an architecture's configuration is an "
        "option too; here are set:"
    ]
    for role in ("discriminator", "generator"):
        fields = getattr(chosen, role).config.items()
        lines += [f"  --{role}.config.{name.replace('_', '-')} {value}" for name, value in fields]
    return "\n".join(lines)


CONFIG_HELP = (
    "--config FILE takes settings from a TOML file; documents, tokenizers, shards and fine-tuned "
    "models hold theirs as settings.toml."
)


def _config_file(arguments: list[str]) -> tuple[list[str], Path | None]:
    """The arguments without `--config FILE`, and the file."""
    joined = [argument for argument in arguments if argument.startswith("--config=")]
    if joined:
        others = [argument for argument in arguments if argument not in joined]
        return others, Path(joined[-1].removeprefix("--config="))
    if "--config" not in arguments:
        return arguments, None
    place = arguments.index("--config")
    if place + 1 == len(arguments):
        raise UserError("--config needs a file", got="nothing after it", fix="--config FILE.toml")
    return arguments[:place] + arguments[place + 2 :], Path(arguments[place + 1])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.says}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "electrify: pre-train text encoders the way ELECTRA does, from raw text.",
            "",
            "usage: electrify COMMAND …      electrify COMMAND --help says more",
            "",
            *lines,
        ]
    )


def _kinds_help(program: str, command: Command, kinds: dict[str, Any]) -> str:
    width = max(map(len, kinds))
    lines = [f"  {name:<{width}}  {kind.says}" for name, kind in kinds.items()]
    usage = f"usage: {program} KIND SOURCE… --out DIR      {program} KIND --help says more"
    return "\n".join([usage, "", *lines, "", f"example: {command.example}"])


SYSTEM_FAULTS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this system allows",
    errno.EROFS: "the folder cannot be written to",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EIO: "the disk reports an error",
    errno.ENAMETOOLONG: "a name is longer than this system allows",
}


def _gone() -> UserError | None:
    """The error for a working directory that was deleted, if it was."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return UserError(
            "the working directory does not exist any more",
            got=os.environ.get("PWD", "a deleted folder"),
            fix="cd to a folder that exists, then run the same command again",
        )
    return None


def _system_error(error: OSError) -> UserError | None:
    if (what := SYSTEM_FAULTS.get(error.errno or 0)) is None:
        return None
    return UserError(
        what,
        got=f"{error}",
        fix="mend that, then run the same command again: finished parts are kept",
    )
