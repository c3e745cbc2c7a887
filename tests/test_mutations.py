"""No mutated manifest, tokenizer, model folder or fine-tuning file ends in a traceback or a hang.

Each case ends well or in an error with what, got and fix, in 20 seconds and 2 GB of memory. A few
cases run by default; the slow test runs thousands.
"""

import pytest

from tests.mutations import SUBJECTS

CASES = {"documents": 30, "shards": 40, "tokenizer": 80, "model": 15, "tables": 60, "squad": 60}
MORE = 25  # times as many in the slow test
RUN = """
from pathlib import Path
from tests.mutations import run
raise SystemExit(min(1, run({name!r}, Path({folder!r}), range({first}, {stop}))))
"""


def check(name, nursery, folder, first, stop):
    """Run the cases of some seeds in a process that has imported everything."""
    before = RUN.format(name=name, folder=str(folder), first=first, stop=stop)
    done = nursery.completed("--version", before=before, timeout=3_000)
    last = (folder / "seed").read_text() if (folder / "seed").exists() else "none"
    output = f"exit {done.returncode}, last seed {last}\n{done.stdout}\n{done.stderr[-1_000:]}"
    assert done.returncode == 0, output


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_mutation_is_harmless_or_refused(name, nursery, tmp_path):
    check(name, nursery, tmp_path, 0, CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_thousands_of_mutations_are_harmless_or_refused(name, nursery, tmp_path):
    check(name, nursery, tmp_path, CASES[name], MORE * CASES[name])
