"""The workflows run what `make` has, with pinned actions and the least permissions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def jobs() -> dict[str, dict]:
    loaded = [yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS]
    return {name: job for found in loaded for name, job in found.items()}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_permissions_are_the_least(path):
    text = path.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [action for action in used if not PINNED.match(action)] == []
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 350
        assert job.get("permissions") == ({"id-token": "write"} if name == "publish" else None)
    assert "secrets." not in text


def test_an_action_has_one_version():
    used = {use for path in WORKFLOWS for use in re.findall(r"uses: (.*)", path.read_text())}
    assert len(used) == len({use.partition("@")[0] for use in used})


def test_every_make_target_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    run = [step.get("run", "") for job in jobs().values() for step in job["steps"]]
    made = {target for line in run for target in re.findall(r"^make (\S+)", line)}
    assert made == {"test", "test-all", "docs"}
    assert made <= targets


def test_the_matrix_is_what_the_metadata_promises():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert jobs()["test"]["strategy"]["matrix"]["python"] == promised


def test_only_a_tag_publishes():
    publish = jobs()["publish"]
    assert publish["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert publish["needs"] == "build"
    assert not [step for step in publish["steps"] if "run" in step]


def test_the_hooks_use_the_ruff_of_the_constraints():
    config = (ROOT / ".pre-commit-config.yaml").read_text()
    (pinned,) = re.findall(r"^ruff==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert set(re.findall(r"ruff==[\d.]+", config)) == {pinned}


def test_a_bug_report_asks_for_the_doctor():
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text())
    (doctor,) = [part for part in form["body"] if part.get("id") == "doctor"]
    assert "electrify doctor" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"] is True
