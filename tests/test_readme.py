"""Every block of the README, run in order in an empty folder, with shorter trainings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import make_documents
from tests.test_docs import ROOT, blocks

SHORTER = {
    "make quickstart": "electrify quickstart --budget 10s --seeds 2",  # after its set-up
    "make test": "true",  # which runs this
    "--budget 1h": "--budget 10s",
    "--vocab-size 16000": "--vocab-size 100",
}


def typed(block: str) -> list[str]:
    """The commands of a block, without what they print."""
    prompted = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return prompted or block.splitlines()


@pytest.mark.slow
def test_every_block_of_the_readme_runs(tmp_path):
    assert not re.search(r"^[A-Z_]+$", (ROOT / "README.md").read_text(), re.MULTILINE)
    texts = tmp_path / "my_texts"
    texts.mkdir()
    for number, document in enumerate(make_documents(300)):
        (texts / f"{number}.txt").write_text(document.text * 3 + "\n")
    lines = [line for block in blocks(ROOT / "README.md", "console", "sh") for line in typed(block)]
    assert any("quickstart" in line for line in lines)
    for line in lines:
        if line.startswith("pip install "):
            continue  # tests/test_install.py
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert (tmp_path / "quickstart/report.html").is_file()
    assert (tmp_path / "model/discriminator/model.safetensors").is_file()
