"""The `electrify recipes` command: list, show, copy, check."""

import subprocess
import sys
from pathlib import Path

import pytest

from electrify.cli import main
from electrify.pipeline.choices import Machine, choose_training
from electrify.pipeline.survey import DocumentText
from electrify.planning.cookbook import GROUPS, by_purpose
from electrify.planning.costs import costs
from electrify.planning.hardware import KNOWN
from electrify.recipes.schema import load, names, recipe_path


@pytest.fixture
def output(capsys, tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder and returns its output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        assert main(["recipes", *arguments]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def test_the_list_has_every_recipe_with_its_use_recommended_ones_first(output):
    listed = output()
    assert output("list") == listed
    lines = listed.splitlines()
    rows = {line.split()[0]: number for number, line in enumerate(lines) if line[2:3].strip()}
    assert [name for name in rows if name in names()] == list(by_purpose())
    for name, facts in by_purpose().items():
        row, use = lines[rows[name]], lines[rows[name] + 1].strip()
        assert recipe_path(name).read_text().startswith(f"# {use}\n")
        assert row.split()[-2:] == [f"{load(name).run.length}", facts.vocabulary]
    headings = [lines.index(heading) for heading in GROUPS.values()]
    for name, facts in by_purpose().items():
        heading = headings[list(GROUPS).index(facts.group)]
        assert max(number for number in headings if number < rows[name]) == heading


def test_the_recommended_recipes_are_those_that_training_on_text_chooses():
    text = DocumentText(1000, 30_000_000, "LATIN", 0.0)
    chosen = {
        next(s.value for s in choose_training(text, Machine(cuda, ""), t) if s.name == "recipe")
        for cuda in (False, True)
        for t in (60, 3_600, 100_000)
    }
    assert chosen == {n for n, facts in by_purpose().items() if facts.group == "Recommended"}


@pytest.mark.parametrize("name", names())
def test_parameters_and_times_are_those_of_the_plan(name):
    """The time is that of float32 on a V100 and of mixed precision on newer GPUs."""
    facts = by_purpose()[name]
    count, device = facts.hardware.split(maxsplit=1)
    hardware, devices = KNOWN.get(device, KNOWN["V100"]), int(count)
    found = costs(load(name), int(facts.vocabulary.replace(",", "")), hardware, devices, 0)
    assert facts.parameters == f"{found['parameters']['trained'] / 1e6:.1f} M"
    if device in KNOWN:
        number, unit = facts.time.split()
        seconds = found["seconds"]["float32" if device == "V100" else "mixed"]
        assert f"{seconds / {'h': 3_600, 'days': 86_400}[unit]:.0f}" == number


def test_the_docs_have_the_same_table():
    page = (Path(__file__).parents[2] / "docs/recipes.md").read_text()
    for group, heading in GROUPS.items():
        rows = [
            f"| `{name}` | {f.use} | {f.hardware} | {f.time} | {f.parameters} | {f.length} | {f.vocabulary} |"
            for name, f in by_purpose().items()
            if f.group == group
        ]
        assert "\n".join([f"| **{heading}** | | | | | | |", *rows]) in page


def test_the_list_and_a_bad_value_import_no_torch(tmp_path):
    bad = recipe_path("tiny").read_text().replace("steps = 2_000", "steps = 0")
    (tmp_path / "bad.toml").write_text(bad)
    program = (
        "import sys\nfrom electrify.cli import main\n"
        "codes = [main(['recipes']), main(['recipes', 'check', sys.argv[1]])]\n"
        "sys.exit(codes != [0, 2] or 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bad.toml")]
    subprocess.run(command, check=True, capture_output=True)


def test_show_prints_the_file(output):
    assert output("show", "tiny") == recipe_path("tiny").read_text(encoding="utf-8")


def test_a_copy_is_the_same_recipe_and_overwrites_nothing(output, tmp_path):
    assert "electrify recipes check tiny.toml" in output("copy", "tiny")
    output("copy", "tiny", "mine.toml")
    copy = tmp_path / "tiny.toml"
    assert (
        copy.read_bytes()
        == (tmp_path / "mine.toml").read_bytes()
        == recipe_path("tiny").read_bytes()
    )
    assert load(str(copy)) == load("tiny")
    copy.write_text("mine")
    assert "already exists" in output("copy", "tiny", code=2)
    assert copy.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "tiny.toml"]


def test_check_prints_ok_and_parameter_counts(output):
    assert output("check", "electra-small").splitlines() == [
        "electra-small: OK",
        "  parameters with a vocabulary of 30,522: discriminator 13,549,057, generator 4,620,026, "
        "trained in total 14,196,219",
    ]
    assert output("check", "bert-small").endswith("model 13,546,682\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("steps = 2_000", "steps = 0"), "run.steps must be between 1 and"),
        (("lr = 2e-3", 'lr = "high"'), "lr has a bad value"),
        (("hidden_size", "hiden_size"), "did you mean hidden_size?"),
        (('"modernbert"', '"modern"'), "is not a supported architecture"),
        (("hidden_size = 128", "hidden_size = 130"), "not a multiple"),
        (("[run]", "[runn]"), "did you mean run?"),  # codespell:ignore
        (("[run]", "[run"), "is not TOML"),
    ],
)
def test_check_finds_invalid_recipes(output, tmp_path, change, message):
    (tmp_path / "a.toml").write_text(recipe_path("tiny").read_text().replace(*change))
    assert message in output("check", "a.toml", code=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "`recipes show` needs the name of a recipe"),
        (["show", "tinny"], "did you mean tiny?"),
        (["show", "none.toml"], "cannot read none.toml"),
        (["list", "tiny"], "electrify recipes show tiny"),
        (["check", "tiny", "b.toml"], "takes one recipe"),
        (["copy", "tiny", "tiny.json"], "a recipe must be a .toml file"),
        (["copy", "tiny", "no/tiny.toml"], "there is no folder no"),
    ],
)
def test_bad_input_ends_in_an_error(output, arguments, message):
    error = output(*arguments, code=2)
    assert message in error
    assert "got:" in error
    assert "fix:" in error


def test_check_notes_networks_that_do_not_fit_in_memory(output, tmp_path):
    wide = recipe_path("electra-base").read_text().replace("= 3072", "= 1_000_000")
    (tmp_path / "wide.toml").write_text(wide)
    assert "note: the networks of this recipe do not fit in memory" in output("check", "wide.toml")
