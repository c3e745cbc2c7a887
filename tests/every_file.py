"""Run all tests, resuming by file: `python -m tests.every_file [PYTEST OPTIONS]`, `make test-all`.

A file whose tests all passed is recorded in .cache/test-all under the hash of the source tree, so
a run that was stopped, or failed, continues with the files that are left. Any change starts again.
Files that took longest in an earlier run come first, so that the last one does not run alone.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECORD = ROOT / ".cache" / "test-all"
FOLDERS = (".github", "benchmarks", "docs", "examples", "notebooks", "src", "tests")


def test_files() -> list[str]:
    """Return the files with tests or doctests, relative to the root."""
    tests = list((ROOT / "tests").rglob("test_*.py"))
    doctests = [path for path in (ROOT / "src").rglob("*.py") if ">>>" in path.read_text()]
    return sorted(path.relative_to(ROOT).as_posix() for path in (*tests, *doctests))


def tree_hash(root: Path = ROOT) -> str:
    """Return a hash of the names and the content of all source files, and of the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    inside = (path for folder in FOLDERS for path in (root / folder).rglob("*"))
    for path in sorted(path for path in (*root.iterdir(), *inside) if path.is_file()):
        if "__pycache__" not in path.parts and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


class Recorder:
    """A pytest plugin that records the files whose tests have all ended without a failure."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self._left: Counter[str] = Counter()
        self._spent: Counter[str] = Counter()
        self._failed: set[str] = set()

    def collected(self, ids: Iterable[str]) -> None:
        """Remember how many tests each file has."""
        self._left = Counter(name.partition("::")[0] for name in ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of a run without xdist."""
        if session.items:
            self.collected(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Count the tests that the workers found; all find the same."""
        if not self._left:
            self.collected(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a file after the teardown of its last test."""
        name = report.nodeid.partition("::")[0]
        self._spent[name] += report.duration  # type: ignore[assignment]
        if report.failed:
            self._failed.add(name)
        if report.when != "teardown":
            return
        self._left[name] -= 1
        if self._left[name] == 0 and name not in self._failed:
            self.seconds[name] = round(float(self._spent[name]), 2)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.seconds, indent=1))
            temporary.replace(self.path)


def earlier_seconds(folder: Path = RECORD) -> dict[str, float]:
    """Return how long each file took in earlier runs, of any tree."""
    records = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return {name: took for path in records for name, took in json.loads(path.read_text()).items()}


def main(options: list[str]) -> int:
    """Run the files that have not passed yet; returns pytest's exit code."""
    recorder = Recorder(RECORD / f"{tree_hash()}.json")
    took, files = earlier_seconds(), test_files()
    left = [name for name in files if name not in recorder.seconds]
    left.sort(key=lambda name: -took.get(name, 1e9))
    print(f"{len(files) - len(left)} of {len(files)} files have passed", flush=True)
    if not left:
        return 0
    return int(pytest.main([*options, *left], plugins=[recorder]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
