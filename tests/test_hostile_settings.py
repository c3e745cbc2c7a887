"""Malformed settings, recipes, run.json and result.json end in an error with what, got and fix."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from electrify.cli import main
from electrify.errors import DamagedError, UserError
from electrify.recipes.schema import recipe_path
from electrify.training.remote import open_remote
from electrify.training.signals import parse_duration

LONG, DEEP = "9" * 5000, "[" * 1000 + "]" * 1000
TINY = recipe_path("tiny").read_text(encoding="utf-8")


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """Run a command in this process that must fail with a proper error, and return the error."""

    def run(*arguments: object, codes: tuple[int, ...] = (2,)) -> str:
        assert main([str(argument) for argument in arguments]) in codes
        error = capsys.readouterr().err
        assert error.index("error: ") < error.index("\n  got: ") < error.index("\n  fix: "), error
        assert len(error) < 3000
        return error

    return run


RECIPES = {
    "a long integer": TINY.replace("steps = 2_000", f"steps = {LONG}"),
    "a long integer in a configuration": TINY.replace("hidden_size = 128", f"hidden_size = {LONG}"),
    "a number beyond 64 bits": TINY.replace("steps = 2_000", f"steps = {'9' * 400}"),
    "nested arrays": TINY.replace("steps = 2_000", f"steps = {DEEP}"),
    "nested tables": TINY + "x = " + "{a=" * 1000 + "1" + "}" * 1000,
    "a section that is a number": "run = 3\n",
    "a section that is text": 'run = "steps"\n',
    "a section that is an array of tables": TINY.replace("[run]", "[[run]]"),
    "a section that is an array": "run = [1, 2]\n",
    "a configuration that is a number": "[discriminator]\nconfig = 3\n",
    "bytes that are not text": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("command", ["check", "plan", "pretrain"])
def test_a_recipe(tmp_path, refused, command, content):
    path = tmp_path / "a.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    out = ("--data", tmp_path / "none", "--out", tmp_path / "run")
    arguments = {"check": ("recipes", "check", path), "plan": ("plan", path)}
    refused(*arguments.get(command, ("pretrain", path, *out)))
    assert [file.name for file in tmp_path.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    "content",
    [f"workers = {LONG}", f"workers = {DEEP}", "filters = 5", "[[filters]]\ndedup = true"],
)
def test_a_settings_file(tmp_path, refused, content):
    (tmp_path / "a.toml").write_text(content)
    config = ("--config", tmp_path / "a.toml")
    refused("corpus", "text", tmp_path, "--out", tmp_path / "docs", *config)


@pytest.mark.parametrize("time", ["infh", "nanh", "1e400h", "1e300d", "-5m", "0s", "h", LONG + "h"])
def test_a_budget_that_is_not_a_time(time):
    with pytest.raises(UserError, match="--budget is not a valid duration"):
        parse_duration(time, "--budget")


@pytest.mark.parametrize("url", ["zip://a.zip", "zip::a.zip", "tar://a", "dir://x", "nope://x"])
def test_an_upload_to_an_unsupported_url(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError):
        open_remote(url)


@pytest.mark.parametrize("command", [["plan", "tiny"], ["corpus", "text", "a", "--out", "b"]])
def test_a_deleted_working_directory(tmp_path, command):
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    program = f"import os, sys; os.rmdir({str(deleted)!r}); from electrify.cli import main; "
    program += f"sys.exit(main({command!r}))"
    source = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=deleted,
        env={**os.environ, **source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: the working directory no longer exists\n  got: ")


SMALL = """
[discriminator.config]
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 16
embedding_size = 16
max_position_embeddings = 32
[run]
steps = 2
batch_size = 4
length = 32
"""


@pytest.fixture(scope="module")
def trained(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "small.toml").write_text(SMALL)
    command = ["pretrain", f"{folder / 'small.toml'}", "--data", f"{shards}", "--device", "cpu"]
    assert main([*command, "--out", f"{folder / 'run'}"]) == 0
    return folder / "run"


def _set(content: dict, name: str, value: object) -> object:
    """Change the value with a dotted name; the empty name replaces the whole content."""
    *tables, key = name.split(".")
    inner = content
    for table in tables:
        inner = inner[table]
    inner[key] = value
    return content if name else value


@pytest.mark.parametrize("value", [None, 5, [[]]], ids=repr)
@pytest.mark.parametrize(
    "name",
    [
        "",
        "identity",
        "identity.recipe",
        "identity.recipe.run",
        "shards",
        "shards.splits",
        "made_with",
    ],
)
def test_a_damaged_run_json(trained, tmp_path, refused, name, value):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(_set(content, name, value)))
    before = sorted(tmp_path.rglob("*"))
    refused("report", run, "--out", tmp_path / "page.html", codes=(2, 3))
    refused("export", run, "--out", tmp_path / "model", codes=(2, 3))
    again = ("--data", tmp_path / "none", "--out", run, "--device", "cpu")
    refused("pretrain", trained.parent / "small.toml", *again, codes=(2, 3))
    assert sorted(tmp_path.rglob("*")) == before


RESULT = {
    "model": "m",
    "train": {"rows": 3},
    "mean": {"accuracy": 0.5},
    "std": {"accuracy": 0.1},
    "seeds": [{"scores": {"accuracy": 0.5}, "degenerate": False}],
}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """The files of a fine-tuned model that a report reads."""
    folder = tmp_path / "tuned"
    folder.mkdir()
    identity = {"train": "a", "dev": "b"}
    manifest = {"kind": "fine-tuned model", "identity": identity, "files": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "result.json").write_text(json.dumps(RESULT))
    return folder


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [5]], ids=repr)
@pytest.mark.parametrize("name", ["", "train", "mean", "std", "seeds", "train.rows"])
def test_a_damaged_result_of_fine_tuning(tuned, tmp_path, refused, name, value):
    if (name, value) == ("train.rows", 5):
        pytest.skip("a valid number")
    content = _set(json.loads(json.dumps(RESULT)), name, value)
    (tuned / "result.json").write_text(json.dumps(content))
    refused("report", tuned, "--out", tmp_path / "page.html", codes=(3,))
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("manifest", [[], 5, {"kind": 5}, {"kind": "fine-tuned model"}])
def test_a_damaged_manifest_of_fine_tuning(tuned, tmp_path, refused, manifest):
    (tuned / "manifest.json").write_text(json.dumps(manifest))
    refused("report", tuned, "--out", tmp_path / "page.html", codes=(3,))


@pytest.mark.parametrize("columns", [None, 5, "x", [1], {"text": 5}, {"text": None}])
def test_damaged_columns_of_a_fine_tuned_model(tmp_path, columns):
    from electrify.finetuning.options import Predict
    from electrify.finetuning.own.data import Columns
    from electrify.finetuning.own.predict import _training_columns

    (tmp_path / "result.json").write_text(json.dumps({"columns": columns}))
    with pytest.raises(DamagedError):
        _training_columns(Predict(tmp_path, tmp_path / "a.tsv"), Columns())
