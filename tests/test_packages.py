"""The versions that are promised, tested and locked agree with each other."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.lowest import main, ranges

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock.txt").read_text()
# Brought by the CUDA build of torch on PyPI, and what only some systems need: not in the constraints.
NOT_TESTED = re.compile(r"nvidia-|cuda-|triton|setuptools|pywin32|httpx2-jsfetch")


def constraints() -> dict[str, str]:
    pins = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def locked() -> dict[str, str]:
    pins = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
    assert len({name for name, _ in pins}) == len(pins)  # one version for all Pythons and systems
    return {canonicalize_name(name): version for name, version in pins}


def test_the_tested_versions_are_in_their_ranges():
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(one for extra in extras for one in extra)]:
        needed = Requirement(text)
        if needed.name != "electrify":
            assert constraints()[canonicalize_name(needed.name)] in needed.specifier, text


def test_the_lock_has_the_tested_versions_and_what_they_bring():
    pins, tested = locked(), constraints()
    assert {name: pins[name] for name in tested if name in pins} == {
        name: version for name, version in tested.items() if name in pins
    }
    untested = {name for name in pins if name not in tested}
    assert [name for name in untested if not NOT_TESTED.match(name)] == []
    assert {canonicalize_name(name) for name in ranges()} <= set(pins)


def test_the_lock_has_a_hash_for_every_version_and_names_no_server():
    entries = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    assert len(entries) == len(locked())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in LOCK
    assert "--index" not in LOCK


def test_the_lowest_versions_are_those_of_the_ranges(capsys):
    main()
    printed = dict(line.split("==") for line in capsys.readouterr().out.split())
    assert printed == ranges()
    assert printed["torch"] == "2.10"
    main("2.13.0")
    assert "\ntorch==2.13.0\n" in capsys.readouterr().out
    for name, version in ranges().items():
        assert Version(version) <= Version(constraints()[canonicalize_name(name)])


def test_a_requirement_without_a_lowest_version_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\ndependencies = ["numpy"]\noptional-dependencies = {}\n'
    )
    with pytest.raises(SystemExit, match="no lowest version: numpy"):
        ranges(tmp_path / "pyproject.toml")


def test_this_python_is_promised():
    here = f"Programming Language :: Python :: {sys.version_info[0]}.{sys.version_info[1]}"
    assert here in PROJECT["classifiers"]
