"""Read and write settings as TOML, and refuse invalid ones."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, get_type_hints

import pytest

from electrify import config
from electrify.cli import COMMANDS, _settings_kind
from electrify.corpora.corpus import KINDS, settings_type
from electrify.errors import UserError


@dataclass(frozen=True)
class Inner:
    lr: float = 5e-4
    kind: Literal["adam", "lamb"] = "adam"


@dataclass(frozen=True)
class Outer:
    name: str
    steps: int = 10
    folder: Path | None = None
    names: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)


def test_missing_fields_have_their_defaults(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('name = "x"\nnames = ["a", "b"]\n[inner]\nlr = 1e-3\n')
    assert config.read_settings(Outer, path) == Outer("x", names=("a", "b"), inner=Inner(lr=1e-3))


def test_settings_round_trip(tmp_path):
    settings = Outer('quote " and ü', 3, Path("a/b"), ("c",), Inner(1e-5, "lamb"))
    path = tmp_path / "a.toml"
    path.write_text(config.to_toml(settings), encoding="utf-8")
    assert config.read_settings(Outer, path) == settings


@pytest.mark.parametrize(
    ("toml", "what", "fix"),
    [
        ('name = "x"\nstepps = 1', "a.toml: stepps is not a setting", "did you mean steps?"),
        ('name = "x"\n[inner]\nlrr = 1', "a.toml: inner: lrr", "did you mean lr?"),
        ('name = "x"\nsteps = "many"', "a.toml: steps has a bad value", "integer"),
        ('name = "x"\n[inner]\nkind = "sgd"', "kind has a bad value", "adam"),
        ("steps = 1", "a.toml: name is missing", "add name"),
        ("steps = = 1", "is not TOML", "fix that line"),
    ],
)
def test_errors_in_files_say_what_is_wrong_and_how_to_fix_it(tmp_path, toml, what, fix):
    path = tmp_path / "a.toml"
    path.write_text(toml)
    with pytest.raises(UserError) as error:
        config.read_settings(Outer, path)
    assert what in error.value.what
    assert fix in error.value.fix


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        config.read_settings(Outer, tmp_path / "no.toml")


SETTINGS = [
    *(_settings_kind(command) for command in COMMANDS.values() if not command.kinds),
    *map(settings_type, KINDS),
]
REQUIRED = {"recipe": "tiny"}


@pytest.mark.parametrize("kind", SETTINGS, ids=lambda kind: kind.__name__)
def test_from_python_every_path_may_be_text(kind):
    hints = get_type_hints(kind)
    single = [name for name, hint in hints.items() if hint in (Path, Path | None)]
    multiple = [name for name, hint in hints.items() if hint == tuple[Path, ...]]
    required = [field.name for field in fields(kind) if not config._has_default(field)]
    values = {name: REQUIRED.get(name, "x") for name in required}
    values |= dict.fromkeys(single, "a/b") | {name: ["a", Path("b")] for name in multiple}
    settings = kind(**values)
    assert [getattr(settings, n) for n in single] == [Path("a/b")] * len(single)
    assert [getattr(settings, n) for n in multiple] == [(Path("a"), Path("b"))] * len(multiple)
    again = replace(settings, **dict.fromkeys(multiple, "docs"))
    assert [getattr(again, n) for n in multiple] == [(Path("docs"),)] * len(multiple)
