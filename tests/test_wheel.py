"""What is published: the sdist has all of the source, the wheel has the package and nothing else."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import electrify

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOLDERS = (".github", "benchmarks", "docs", "examples", "notebooks", "src", "tests")
CACHES = re.compile(r"__pycache__|_cache$|\.hypothesis|\.egg-info$|\.ipynb_checkpoints")
DIST_INFO = f"electrify-{electrify.__version__}.dist-info"
USE = """
import sys
sys.path.insert(0, sys.argv[1])
import electrify
from electrify import cli
assert electrify.__file__.startswith(sys.argv[1]), electrify.__file__
sys.exit(cli.main(sys.argv[2:]))
"""


def files_of(folder: Path) -> set[str]:
    """The files below a folder of the source tree, without caches, relative to the folder."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {path.as_posix() for path in paths if not any(map(CACHES.search, path.parts))}


def build(target: str, source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", out]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder / "dist")) as archive:
        archive.extractall(folder, filter="data")
    return folder / f"electrify-{electrify.__version__}"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory) -> Path:
    """The wheel, made from the source distribution as `python -m build` does."""
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_the_wheel_is_the_package_and_its_metadata(installed):
    package = {f"electrify/{name}" for name in files_of(ROOT / "src/electrify")}
    metadata = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
    assert files_of(installed) == package | {f"{DIST_INFO}/{name}" for name in metadata}


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "recipes/tiny.toml",
        "reports/assets/page.html",
        "reports/assets/inspector.js",
        "demo/discriminator/model.safetensors",
        "demo/generator/model.safetensors",
        "demo/README.md",  # has the licence of the weights
    ],
)
def test_the_wheel_has_the_data_that_the_commands_read(installed, name):
    assert (installed / "electrify" / name).is_file()


def test_the_commands_run_from_the_wheel(installed, tmp_path):
    for words, expected in [
        (["--version"], f"electrify {electrify.__version__}"),
        (["recipes", "show", "tiny"], (ROOT / "src/electrify/recipes/tiny.toml").read_text()),
    ]:
        command = [sys.executable, "-c", USE, str(installed), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert expected.strip() in done.stdout


def test_the_metadata_says_what_the_project_is(installed):
    text = (installed / DIST_INFO / "METADATA").read_text()
    assert "Metadata-Version: 2.4\n" in text  # the newest that the action that publishes reads
    assert f"Version: {electrify.__version__}\n" in text
    assert "License-Expression: Apache-2.0\n" in text
    assert "Requires-Python: >=3.11\n" in text
    assert set(re.findall(r"^Provides-Extra: (\w+)$", text, re.MULTILINE)) == set(
        PROJECT["optional-dependencies"]
    )


def test_the_sdist_has_what_the_tests_need(sdist):
    for folder in FOLDERS:
        assert files_of(sdist / folder) == files_of(ROOT / folder)
    others = {path.name for path in sdist.iterdir() if path.is_file()}
    assert others >= {"LICENSE", "Makefile", "constraints.txt", "mkdocs.yml", "pyproject.toml"}
    assert others >= {"requirements.lock.txt"}
    assert others >= {page.name for page in ROOT.glob("*.md")}
    assert {path.name for path in sdist.iterdir() if path.is_dir()} == set(FOLDERS)


def test_the_sdist_has_no_caches(sdist):
    assert not [path for path in sdist.rglob("*") if CACHES.search(path.name)]


def test_the_version_is_written_once():
    assert PROJECT["dynamic"] == ["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert cited[1] == electrify.__version__
    assert re.search(
        rf"^## {re.escape(electrify.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
