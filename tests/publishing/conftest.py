"""Tiny runs of three architectures, and a Hub on loopback."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import huggingface_hub
import pytest
from tests.models.tiny import tiny_recipe
from tests.publishing.fake_hub import FakeHub

import electrify

ARCHITECTURES = (
    "electra",
    pytest.param("albert", marks=pytest.mark.slow),
    pytest.param("modernbert", marks=pytest.mark.slow),
)
"""Every face is tested on three; on one by default."""


@pytest.fixture(scope="session")
def run_of(shards, tmp_path_factory) -> Callable[[str], Path]:
    """Return a function that returns a finished run of an architecture, with checkpoints."""

    @cache
    def run(architecture: str) -> Path:
        out = tmp_path_factory.mktemp(architecture) / "run"
        recipe = tiny_recipe(architecture)
        fields = {**recipe.discriminator.config, "max_position_embeddings": 512}
        recipe = replace(recipe, discriminator=replace(recipe.discriminator, config=fields))
        steps = {"run.steps": 4, "run.save_every": 2, "run.keep_percent": [50, 100]}
        sizes = {"run.batch_size": 4, "run.length": 32, "run.eval_every": 4, "optimizer.warmup": 1}
        electrify.pretrain(recipe, data=shards, out=out, device="cpu", **steps, **sizes)
        return out

    return run


@pytest.fixture(scope="session")
def sentences_of(run_of) -> Callable[[str], Path]:
    """Return a function that returns an export of an architecture with sentence vectors."""

    @cache
    def exported(architecture: str) -> Path:
        out = run_of(architecture).parent / "model"
        electrify.export(run=run_of(architecture), out=out, sentence_transformers=True)
        return out

    return exported


@pytest.fixture
def fake_hub(monkeypatch) -> Iterator[FakeHub]:
    """A Hub on loopback, which the client in this process uses with a token that may write."""
    hub = FakeHub()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_write")
    yield hub
    hub.close()
