"""What README and docs say exists: commands, flags, links, files, tests; and the site builds."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache, wraps
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

import pytest

from electrify import cli, config
from electrify.finetuning.suite.file import read_suite
from electrify.recipes import schema
from electrify.training.options import ResumeRun

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(electrify [^`]+)`")
PLACEHOLDERS = {"RECIPE": "tiny", "NAME": "tiny"}
# examples/pytorch is a folder of transformers, examples/s is a speed.
PATH = re.compile(
    r"(?:src|tests|docs|benchmarks|notebooks|examples(?!/pytorch|/s\b))/[\w./-]*\w(?:::\w+)?"
)
TEST_FILE = re.compile(r"`((?:\w+/)*test_\w+\.py)")
WALKED = re.compile(r"^\| `([\w/]+\.py)`: `(\w+)` \|", re.MULTILINE)
TEST_NAME = re.compile(r"`(test_\w+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for kind, body in FENCED.findall(page.read_text()) if kind in languages]


def lines_of(page: Path) -> list[str]:
    """The lines that are typed: with a prompt if the block has any, else all of them."""
    typed = []
    for block in blocks(page, "", "console", "sh"):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        typed += prompted or lines
    return typed


def commands(page: Path) -> list[tuple[str, bool]]:
    """Every `electrify …` of a page, and whether it claims to be complete."""
    found = []
    for line in lines_of(page):
        for part in re.split(r"&& | \| ", line):
            if match := re.match(r"\s*(?:(?:torchrun|accelerate) .*-m )?(electrify .*)", part):
                found.append((match[1], "…" not in part))
    prose = FENCED.sub("", page.read_text())
    return found + [(" ".join(text.split()), False) for text in INLINE.findall(prose)]


def example_commands(file: Path) -> list[str]:
    """Every `electrify …` that a file for a cluster runs or offers, with its settings' values."""
    text = re.sub(r"\\\n\s*", "", file.read_text())
    settings = dict(re.findall(r"\b([A-Z]+)(?:=|: |, value: )([^\s}]+)", text))
    typed = re.findall(r"(?:^(?:# )?|-m )(electrify .*?)(?: (?:&|\|\|).*)?$", text, re.MULTILINE)
    typed += [
        " ".join(re.findall(r'"(.*?)"', line))
        for line in re.findall(r"^(?:# )?COMMAND = \[(.*)\]", text, re.MULTILINE)
    ]
    known = [line.replace(' "${FLAGS[@]}"', "") for line in typed]
    return [re.sub(r'"\$(\w+)"', lambda name: settings[name[1]], one) for one in known]


EXAMPLES = sorted(p for p in (ROOT / "examples").rglob("*.*") if p.suffix != ".toml")
COMMANDS = sorted(
    {(text, whole) for page in PAGES for text, whole in commands(page)}
    | {(text, True) for file in EXAMPLES for text in example_commands(file)}
)


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 50
    assert {text.split()[1] for text, _ in COMMANDS} >= {name.split()[0] for name in cli.COMMANDS}
    assert [len(example_commands(file)) for file in EXAMPLES] == [3, 3, 1, 1, 1]


@pytest.fixture
def parse(monkeypatch):
    """The command line as it is, but for the functions of the commands, which do nothing."""
    functions = {command.function for command in cli.COMMANDS.values()}
    original = config.named

    def named(path):
        if path == cli.COMMANDS["pretrain"].resume:
            return lambda run, data: ResumeRun(recipe="tiny", data="shards", out=run)
        thing = original(path)
        return wraps(thing)(lambda settings: None) if path in functions else thing

    monkeypatch.setattr(config, "named", named)
    recipe_path, known = schema.recipe_path, schema.names()
    monkeypatch.setattr(schema, "recipe_path", lambda n: recipe_path(n if n in known else "tiny"))
    return cli.main


@pytest.mark.parametrize(("text", "whole"), COMMANDS)
def test_every_command_parses(text, whole, parse, capsys):
    words = [word for word in shlex.split(text, comments=True)[1:] if word not in ("…", "\\")]
    words = [PLACEHOLDERS.get(word, word) for word in words]
    if any(any(sign in word.replace("{label}", "") for sign in "…[{|") for word in words):
        words = words[:1]  # a pattern, not a command
    try:
        code = parse(words)
    except SystemExit as end:  # of the parser
        code = end.code
    said = capsys.readouterr().err
    missing = "Required options" in said and "Unrecognized" not in said
    assert code == 0 or (missing and not whole), said


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", page.read_text())):
        if not re.match(r"\w+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_walks_through_the_code_name_what_exists():
    rows = WALKED.findall((ROOT / "docs/design.md").read_text())
    assert len(rows) > 40
    for file, name in rows:
        tree = ast.parse((ROOT / "src/electrify" / file).read_text())
        functions = {getattr(node, "name", "") for node in tree.body}
        constants = {ast.unparse(t) for node in tree.body for t in getattr(node, "targets", [])}
        annotated = {ast.unparse(n.target) for n in tree.body if isinstance(n, ast.AnnAssign)}
        assert name in functions | constants | annotated, f"{file}: {name}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_and_test_exists(page):
    text = page.read_text()
    for mention in PATH.findall(text):
        path, _, name = mention.partition("::")
        assert (ROOT / path).exists(), mention
        assert not name or name in functions_of(ROOT / path), mention
    for path in TEST_FILE.findall(text):
        assert (ROOT / path).exists() or (ROOT / "tests" / path).exists(), path
    everywhere = set().union(*map(functions_of, (ROOT / "tests").rglob("test_*.py")))
    assert set(TEST_NAME.findall(text)) <= everywhere


def test_every_import_of_the_examples_works():
    sources = [body for page in PAGES for body in blocks(page, "python")]
    assert sources
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = import_module(node.module)
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{node.module}.{alias.name}"


def test_every_recipe_and_suite_of_the_examples_is_one(tmp_path):
    sources = [body for page in PAGES for body in blocks(page, "toml")]
    suites = [source for source in sources if "task" in tomllib.loads(source)]
    recipes = [source for source in sources if source not in suites]
    assert recipes
    assert suites
    for source in recipes:
        schema.check(config.fill(schema.Recipe, tomllib.loads(source), "docs", None))
    for source in suites:
        (tmp_path / "suite.toml").write_text(source)
        read_suite(tmp_path / "suite.toml")


LOADS_CODE = re.compile(
    r"torch\.load\(|pickle\.loads?\(|trust_remote_code=(?!False)|(?<![.\w])(?:eval|exec)\(|yaml\."
)


def test_nothing_in_the_source_loads_code():
    """docs/reliability.md, P6."""
    for path in (ROOT / "src").rglob("*.py"):
        assert not LOADS_CODE.search(path.read_text()), path


# --- the site


class Requests(HTMLParser):
    """What a browser fetches by itself when it opens a page."""

    FETCHED = ("link", "script", "img", "iframe", "source", "video", "audio", "object", "embed")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.FETCHED:
            self.urls += [value or "" for name, value in attrs if name in ("href", "src", "data")]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # Not --quiet, under which --strict counts no warning.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return out


def test_the_site_builds_without_a_warning_and_has_every_page(site):
    expected = {
        page.relative_to(ROOT / "docs").with_suffix(".html")
        for page in PAGES
        if ROOT / "docs" in page.parents
    }
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert expected <= built
    assert not list(site.rglob("*.py"))


def test_no_page_of_the_site_asks_another_server(site):
    pages = list(site.rglob("*.html"))
    assert pages
    for page in pages:
        assert [url for url in Requests(page.read_text()).urls if "//" in url] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", sheet.read_text()), sheet
