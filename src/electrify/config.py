"""Settings are frozen dataclasses; TOML fills them, the command line overrides them.

A key that does not exist is an error with its nearest match. `read_settings` gives the settings of
a file with what the file leaves out at its default; a field without default and without value is
marked for the command line to demand.
"""

import difflib
import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, asdict, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from electrify.errors import UserError

Settings = TypeVar("Settings")


def read_settings(kind: type[Settings], path: Path, required: Any = MISSING) -> Settings:
    """The settings of a TOML file. A field without value becomes `required`, or is an error."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}", got=str(error), fix="check the path") from error
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits
        raise UserError(f"{path} is not TOML", got=str(error), fix="repair that line") from error
    return fill(kind, table, path.name, required)


def fill(kind: type[Settings], table: Mapping[str, Any], place: str, required: Any) -> Settings:
    """Settings from a table of values; `place` names it in errors."""
    if not isinstance(table, Mapping):
        raise UserError(
            f"{place} is not a table of settings",
            got=shown(table),
            fix=f"write [{place.rpartition(': ')[2]}] and its settings below, one a line",
        )
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name in table:
        if name not in known:
            raise unknown(f"{place}: {name}", name, known, "setting")
    values = {}
    for name, field in known.items():
        here = f"{place}: {name}"
        if is_dataclass(hints[name]):
            values[name] = fill(hints[name], table.get(name, {}), here, required)
        elif name in table:
            values[name] = checked(hints[name], table[name], here)
        elif not _has_default(field):
            if required is MISSING:
                raise UserError(f"{here} is missing", got="no value", fix=f"add {name} = …")
            values[name] = required
    return kind(**values)


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def checked(hint: Any, value: Any, here: str) -> Any:
    """Return a value as its type has it, or refuse it."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UserError(f"{here} has a bad value", got=shown(value), fix=problem) from error


def shown(value: object) -> str:
    """A value for an error message, cut where it is long; Python prints no huge integers.

    >>> shown("x"), len(shown("x" * 100)), shown(10**5000)
    ("'x'", 68, 'an integer of 16610 bits')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "too deep"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


MOST_SHOWN = 68


def check_least(settings: object, **least: float) -> None:
    """Refuse flags that are below the least they can be."""
    for name, smallest in least.items():
        if (value := getattr(settings, name)) < smallest:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} is too small", got=f"{value}", fix=f"give {smallest} or more")


def named(path: str) -> Any:
    """Return what "package.module:name" names; tables keep such paths to import nothing early.

    >>> named("math:pi")
    3.141592653589793
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def unknown(what: str, name: str, known: Mapping[str, Any], noun: str) -> UserError:
    """The error for a name that does not exist, with the nearest one that does."""
    near = difflib.get_close_matches(name.replace("-", "_"), known, n=1, cutoff=0.5)
    everything = ", ".join(known)
    return UserError(
        f"{what} is not a {noun}",
        got=name,
        fix=f"did you mean {near[0]}?" if near else f"there are: {everything}",
    )


class AcceptsTextPaths:
    """Base of the settings of a command: text becomes paths in fields that hold paths.

    Python users write `Prepare(docs=["docs"], tokenizer="tokenizer", out="shards")`.
    """

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            object.__setattr__(self, name, _with_paths(hint, getattr(self, name)))


def _with_paths(hint: Any, value: Any) -> Any:
    if hint in (Path, Path | None) and isinstance(value, str):
        return Path(value)
    if hint == tuple[Path, ...] and isinstance(value, str | Path | list | tuple):
        several = (value,) if isinstance(value, str | Path) else value
        return tuple(_with_paths(Path, one) for one in several)
    return value


def to_dict(settings: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Settings as plain JSON values, paths as text; what is called as in `without` is left out."""
    table: dict[str, Any] = json.loads(json.dumps(asdict(settings), default=str))
    return {name: value for name, value in table.items() if name not in without}


def to_toml(settings: Any, without: Collection[str] = ()) -> str:
    """Settings as TOML for `read_settings`; what is None, and `without`, is left out."""
    return "\n".join(_toml_lines(to_dict(settings, without))) + "\n"


def _toml_lines(table: dict[str, Any], prefix: str = "") -> list[str]:
    plain = {k: v for k, v in table.items() if v is not None and not isinstance(v, dict)}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()]
    for key, inner in table.items():
        if isinstance(inner, dict) and inner:
            lines += ["", f"[{prefix}{key}]", *_toml_lines(inner, f"{prefix}{key}.")]
    return lines
