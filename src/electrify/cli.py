"""Run commands: parse their settings, print their results and errors."""

import errno
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, get_type_hints

from electrify import __version__
from electrify.commands import COMMANDS, HEADINGS, Command
from electrify.errors import EXIT_INTERRUPTED, EXIT_USER, UserError, deleted_directory, system_error
from electrify.storage.commit import defined


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, TextIOWrapper):  # characters the terminal cannot show are escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        sys.stderr.close()
        return 0
    except OSError as error:
        explained = deleted_directory() if error.errno == errno.ENOENT else system_error(error)
        if explained is None:
            raise
        print(f"error: {explained}", file=sys.stderr)
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
    if gone := deleted_directory():
        raise gone  # some libraries abort the process if the working directory is missing
    command = COMMANDS[name]
    as_json = command.json and "--json" in rest
    if as_json:
        rest.remove("--json")
    settings = _settings(f"electrify {name}", command, rest)
    from electrify import config

    function = config.named(command.function)
    # Scripts read standard output, so messages for people go to standard error.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = function(settings)
    if as_json:
        print(json.dumps(defined(result), ensure_ascii=False, indent=1))
    # Some commands return their exit code, alone or with their result.
    return result if isinstance(result, int) else getattr(result, "exit_code", 0)


def _settings(program: str, command: Command, arguments: list[str]) -> Any:
    """Return the settings of a command from its arguments and, with --config, a TOML file."""
    import tyro

    from electrify import config
    from electrify.recipes import schema

    kind = _settings_kind(command)
    if command.resume:
        others, run = _taken("--resume RUN", arguments)
        if run is not None:
            return _resume_settings(program, command, run, others)
    if issubclass(kind, schema.FromRecipe):
        return _recipe_settings(program, command, kind, arguments)
    if command.kinds:
        kinds = config.named(command.kinds)
        overview = partial(_kinds_help, program, command, kinds)
        chosen, *arguments = _with_first(program, command, arguments, "kind", overview)
        program = f"{program} {chosen}"
        if chosen not in kinds:
            raise config.unknown(program, chosen, kinds, "kind")
        command = command._replace(example=f"{program} {kinds[chosen].source} --out docs")
        kind = config.named(command.function.split(":")[0] + ":settings_type")(chosen)
    arguments, file = _taken("--config FILE.toml", arguments)
    default = config.read_settings(kind, Path(file), required=tyro.MISSING) if file else None
    description = "\n\n".join([inspect.getdoc(kind) or "", *_hints(command), CONFIG_HELP])
    return tyro.cli(kind, prog=program, args=arguments, default=default, description=description)


def _settings_kind(command: Command) -> type[Any]:
    from electrify import config

    if command.settings:
        return config.named(command.settings)  # type: ignore[no-any-return]
    return get_type_hints(config.named(command.function))["settings"]  # type: ignore[no-any-return]


def _recipe_settings(program: str, command: Command, kind: type[Any], arguments: list[str]) -> Any:
    """Return the settings of a command that takes a recipe first, with its options applied."""
    from dataclasses import replace

    import tyro

    from electrify import config
    from electrify.recipes import schema

    overview = partial(_recipes_help, program, command, kind)
    name, *arguments = _with_first(program, command, arguments, "recipe", overview)
    recipe, arguments = schema.with_config_flags(schema.load(name), arguments)
    default = replace(config.fill(kind, {}, name, tyro.MISSING), recipe=recipe, name=name)
    description = "\n\n".join([inspect.getdoc(kind) or "", *_hints(command), _fields_help(recipe)])
    program = f"{program} {name}"
    return tyro.cli(kind, prog=program, args=arguments, default=default, description=description)


def _recipes_help(program: str, command: Command, kind: type[Any]) -> str:
    from electrify.planning.cookbook import by_purpose

    known = f"recipes: {', '.join(by_purpose())}, or the path of a .toml file"
    more = f"Run `{program} tiny --help` to list the options, `electrify recipes` to choose."
    usage = f"usage: {program} RECIPE …"
    usage += f"\n       {program} --resume RUN …" if command.resume else ""
    example = f"Example: {command.example}"
    return "\n\n".join([usage, inspect.getdoc(kind) or "", known, example, more])


def _resume_settings(program: str, command: Command, run: str, arguments: list[str]) -> Any:
    """Return the settings of a run to resume, with the options given now applied."""
    import tyro

    from electrify import config

    arguments, data = _taken("--data DIR", arguments)
    default = config.named(command.resume)(Path(run), Path(data) if data else None)
    kind, program = type(default), f"{program} --resume {run}"
    description = f"{inspect.getdoc(kind)}\n\nThe defaults below come from the run."
    return tyro.cli(kind, prog=program, args=arguments, default=default, description=description)


def _with_first(
    program: str, command: Command, arguments: list[str], noun: str, overview: Callable[[], str]
) -> list[str]:
    """Return the arguments if they start with a kind or a recipe, or else print the overview."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        raise SystemExit(0)
    if arguments[0].startswith("-"):
        raise UserError(f"{program} needs a {noun} first", got=arguments[0], fix=command.example)
    return arguments


def _hints(command: Command) -> list[str]:
    example = f"Example: {command.example}"
    return [example, "--json prints the result as JSON."] if command.json else [example]


def _fields_help(recipe: Any) -> str:
    lines = [
        "The defaults below come from the recipe. Every field of an architecture's configuration "
        "is also an option; this recipe sets:"
    ]
    for role in ("discriminator", "generator"):
        fields = getattr(recipe, role).config.items()
        lines += [f"  --{role}.config.{name.replace('_', '-')} {value}" for name, value in fields]
    return "\n".join(lines)


CONFIG_HELP = (
    "--config FILE reads options from a TOML file, such as the settings.toml that electrify writes "
    "to its output folders."
)


def _taken(option: str, arguments: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments without an option such as "--config FILE", and its last value."""
    flag, _, value_name = option.partition(" ")
    others, value = [], None
    remaining = iter(arguments)
    for argument in remaining:
        if argument.startswith(f"{flag}="):
            value = argument.removeprefix(f"{flag}=")
        elif argument == flag:
            value = next(remaining, "-")
            if value.startswith("-"):
                what = f"{flag} needs a value"
                raise UserError(what, got=f"nothing after {flag}", fix=f"{flag} {value_name}")
        else:
            others.append(argument)
    return others, value


def _help() -> str:
    lines = [
        "electrify: pre-train text encoders the way ELECTRA does, from raw text.",
        "",
        "usage: electrify COMMAND …",
    ]
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        if name in HEADINGS:
            lines += ["", f"{HEADINGS[name]}:"]
        lines.append(f"  {name:<{width}}  {command.summary}")
    return "\n".join([*lines, "", "Run `electrify COMMAND --help` for the options of a command."])


def _kinds_help(program: str, command: Command, kinds: dict[str, Any]) -> str:
    width = max(map(len, kinds))
    lines = [f"  {name:<{width}}  {kind.says}" for name, kind in kinds.items()]
    usage = f"usage: {program} KIND SOURCE… --out DIR"
    more = f"Run `{program} KIND --help` for the options of a kind."
    return "\n".join([usage, "", *lines, "", f"Example: {command.example}", "", more])
