"""What a person reads uses the field's words: help of every command, README, docs, recipes."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from electrify import cli, commands, config
from electrify.completion import WITH_RECIPE
from electrify.recipes import schema

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CODE = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
INSTEAD = {
    r"chances": "probabilities",
    r"bod(?:y|ies)": "encoder, backbone",
    r"processors?": "CPU",
    r"coins?": "dropout mask",
    r"go(?:es|ing|ne)? on|went on": "resume, continue",
    r"begun": "started",
    r"held[- ]out": "validation",
    r"(?:are|is|be) told|told apart": "reported, distinguished",
    r"one's own": "your",
    r"from nothing": "from scratch",
    r"mend(?:s|ed|ing)?": "fix",
    r"deal(?:s|t|ing)? out": "shard",
    r"whole or not there|whole, or not there": "complete or absent",
    r"is no (?:share|number|model|list|name|file|folder|URL)": "is not a, must be",
    r"pieces (?:a|per) word|of pieces|(?:\d|,\d{3}) pieces": "tokens",
    r"matrix products|products of matrices": "matmuls",
    r"settings that cannot be": "invalid settings",
}
OLD_WORDS = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)


def old_words(text: str) -> list[str]:
    """Return the old words of a text, each with its line and what to write instead."""
    found = []
    for match in OLD_WORDS.finditer(text):
        line = text[: match.start()].count("\n") + 1
        better = next(to for word, to in INSTEAD.items() if re.fullmatch(word, match[0], re.I))
        found.append(f"line {line}: {match[0]!r}, better: {better}")
    return found


def helps() -> Iterator[str]:
    """Yield the command of every help page."""
    yield ""
    for name, command in commands.COMMANDS.items():
        yield name
        if command.kinds:
            yield from (f"{name} {kind}" for kind in config.named(command.kinds))
        if name in WITH_RECIPE:
            yield f"{name} tiny"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_use_the_words_of_the_field(page):
    text = CODE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
    assert not old_words(text)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_use_the_words_of_the_field(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert texts
    assert not old_words("\n".join(texts))


@pytest.mark.parametrize("name", schema.names())
def test_recipes_use_the_words_of_the_field(name):
    assert not old_words(schema.recipe_path(name).read_text())


@pytest.mark.parametrize("command", helps())
def test_help_uses_the_words_of_the_field(command, capsys):
    with suppress(SystemExit):
        cli.main([*command.split(), "--help"])
    shown = capsys.readouterr().out
    assert "electrify" in shown
    assert not old_words(" ".join(shown.replace("│", " ").split()))


def test_old_words_are_found():
    assert old_words("The run goes on.\nOn processors") == [
        "line 1: 'goes on', better: resume, continue",
        "line 2: 'processors', better: CPU",
    ]
