"""`electrify recipes`: list, show, copy, check."""

import subprocess
import sys

import pytest

from electrify.cli import main
from electrify.recipes.schema import load, names, path_of


@pytest.fixture
def said(capsys, tmp_path, monkeypatch):
    """What the command prints, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["recipes", *arguments]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def test_the_list_has_every_recipe_and_what_it_is(said):
    listed = said()
    assert said("list") == listed
    for name in names():
        line = next(line for line in listed.splitlines() if line.split()[:1] == [name])
        assert path_of(name).read_text().startswith(f"# {line.removeprefix(f'  {name}').strip()}\n")


def test_the_list_and_a_bad_value_import_no_torch(tmp_path):
    bad = path_of("tiny").read_text().replace("steps = 2_000", "steps = 0")
    (tmp_path / "bad.toml").write_text(bad)
    program = (
        "import sys\nfrom electrify.cli import main\n"
        "codes = [main(['recipes']), main(['recipes', 'check', sys.argv[1]])]\n"
        "sys.exit(codes != [0, 2] or 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bad.toml")]
    subprocess.run(command, check=True, capture_output=True)


def test_show_prints_the_file(said):
    assert said("show", "tiny") == path_of("tiny").read_text(encoding="utf-8")


def test_a_copy_is_the_same_recipe_and_nothing_is_overwritten(said, tmp_path):
    assert "electrify recipes check tiny.toml" in said("copy", "tiny")
    said("copy", "tiny", "mine.toml")
    copy = tmp_path / "tiny.toml"
    assert (
        copy.read_bytes() == (tmp_path / "mine.toml").read_bytes() == path_of("tiny").read_bytes()
    )
    assert load(str(copy)) == load("tiny")
    copy.write_text("mine")
    assert "is there already" in said("copy", "tiny", code=2)
    assert copy.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "tiny.toml"]


def test_check_says_ok_with_sizes(said):
    assert said("check", "electra-small").splitlines() == [
        "electra-small: OK",
        "  parameters with 30,522 tokens: discriminator 13,549,057, generator 4,620,026, "
        "trained in all 14,196,219",
    ]
    assert said("check", "bert-small").endswith("model 13,546,682\n")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("steps = 2_000", "steps = 0"), "run.steps is out of range"),
        (("lr = 2e-3", 'lr = "high"'), "lr has a bad value"),
        (("hidden_size", "hiden_size"), "did you mean hidden_size?"),
        (('"modernbert"', '"modern"'), "is not a pairable architecture"),
        (("hidden_size = 128", "hidden_size = 130"), "not a multiple"),
        (("[run]", "[runn]"), "did you mean run?"),
        (("[run]", "[run"), "is not TOML"),
    ],
)
def test_check_finds_what_is_wrong(said, tmp_path, change, says):
    (tmp_path / "a.toml").write_text(path_of("tiny").read_text().replace(*change))
    assert says in said("check", "a.toml", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show"], "which recipe to show?"),
        (["show", "tinny"], "did you mean tiny?"),
        (["show", "none.toml"], "cannot read none.toml"),
        (["list", "tiny"], "electrify recipes show tiny"),
        (["check", "tiny", "b.toml"], "takes one recipe"),
        (["copy", "tiny", "tiny.json"], "a recipe is a .toml file"),
        (["copy", "tiny", "no/tiny.toml"], "no folder no"),
    ],
)
def test_bad_input_ends_in_an_error(said, arguments, says):
    error = said(*arguments, code=2)
    assert says in error
    assert "got:" in error
    assert "fix:" in error


def test_check_notes_what_this_machine_cannot_hold(said, tmp_path):
    wide = path_of("electra-base").read_text().replace("= 3072", "= 1_000_000")
    (tmp_path / "wide.toml").write_text(wide)
    assert "note: the networks of this recipe do not fit in memory" in said("check", "wide.toml")
