"""Pairs, shards and runs to inspect."""

from pathlib import Path

import pytest
from tests.reports.pairs import KINDS, export_pair, make_run


@pytest.fixture(scope="session")
def exports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    return {name: export_pair(name, folder / name) for name in KINDS}


@pytest.fixture(scope="session")
def run(shards) -> Path:
    return make_run(shards, shards.parent / "run")


@pytest.fixture(scope="session")
def masked_lm_run(shards) -> Path:
    return make_run(shards, shards.parent / "mlm", "mlm")
