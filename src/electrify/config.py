"""Settings are frozen dataclasses, read from TOML and overridden on the command line.

An unknown key is an error that names the closest match. Keys that a file leaves out have their
defaults; the command line requires those that have none.
"""

import difflib
import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from electrify.errors import UserError

Settings = TypeVar("Settings")


def read_settings(kind: type[Settings], path: Path, required: Any = MISSING) -> Settings:
    """Read settings from a TOML file; a missing field becomes `required`, or is an error."""
    return fill(kind, read_toml(path), path.name, required)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}", got=str(error), fix="check the path") from error
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise UserError(f"{path} is not TOML", got=str(error), fix="fix that line") from error


def fill(kind: type[Settings], table: Mapping[str, Any], source: str, required: Any) -> Settings:
    """Return settings with the values of a table, which errors call `source`."""
    if not isinstance(table, Mapping):
        raise UserError(
            f"{source} is not a table of settings",
            got=shown(table),
            fix=f"write [{source.rpartition(': ')[2]}] and below it one setting per line",
        )
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name in table:
        if name not in known:
            raise unknown(f"{source}: {name}", name, known, "setting")
    values = {}
    for name, field in known.items():
        label = f"{source}: {name}"
        if is_dataclass(hints[name]):
            values[name] = fill(hints[name], table.get(name, {}), label, required)
        elif name in table:
            values[name] = checked(hints[name], table[name], label)
        elif not _has_default(field):
            if required is MISSING:
                raise UserError(f"{label} is missing", got="no value", fix=f"add {name} = …")
            values[name] = required
    return kind(**values)


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def checked(hint: Any, value: Any, name: str) -> Any:
    """Return a value converted to its type, or raise an error if it is not valid."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UserError(f"{name} has a bad value", got=shown(value), fix=problem) from error


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened if it is long.

    >>> shown("x"), len(shown("x" * 100)), shown(10**5000)
    ("'x'", 68, 'an integer of 16610 bits')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python does not print integers of over 4,300 digits
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "too deep"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


MOST_SHOWN = 68


def check_minimum(settings: object, **least: float) -> None:
    """Raise an error if a setting that is given is below its minimum."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is not None and value < smallest:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} is too small", got=f"{value}", fix=f"use {smallest} or more")


def named(path: str) -> Any:
    """Import and return the object at "package.module:name"; tables of such paths import lazily.

    >>> named("math:pi")
    3.141592653589793
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def unknown(what: str, name: str, known: Mapping[str, Any], noun: str) -> UserError:
    """Return the error for an unknown name; it suggests the closest known one."""
    fix = nearest(name.replace("-", "_"), known, f"use one of: {', '.join(known)}")
    return UserError(f"{what} is not a {noun}", got=name, fix=fix)


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a question whether the closest known name was meant, if one is close."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else otherwise


class AcceptsTextPaths:
    """Base class of command settings that converts text to paths in the fields that hold paths.

    From Python: `Prepare(docs=["docs"], tokenizer="tokenizer", out="shards")`.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _with_paths(hint, getattr(self, name)))


def _with_paths(hint: Any, value: Any) -> Any:
    if hint in (Path, Path | None) and isinstance(value, str):
        return Path(value)
    if hint == tuple[Path, ...] and isinstance(value, str | Path | list | tuple):
        values = (value,) if isinstance(value, str | Path) else value
        return tuple(_with_paths(Path, one) for one in values)
    return value


def to_dict(settings: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return settings as plain JSON values, with paths as text and without some fields."""
    table: dict[str, Any] = json.loads(json.dumps(asdict(settings), default=str))
    return {name: value for name, value in table.items() if name not in without}


def to_toml(settings: Any, without: Collection[str] = ()) -> str:
    """Return settings as TOML for `read_settings`, without some fields and those that are None."""
    return "\n".join(_toml_lines(to_dict(settings, without))) + "\n"


def _toml_lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    plain = {k: v for k, v in table.items() if v is not None and not isinstance(v, dict)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()]
    for key, inner in table.items():
        if isinstance(inner, dict) and inner:
            lines += ["", f"[{prefix}{key}]", *_toml_lines(inner, f"{prefix}{key}.")]
    return lines
