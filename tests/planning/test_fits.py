"""Networks and batches that do not fit in memory are refused before allocation."""

import pytest
import torch

from electrify.errors import UserError
from electrify.models.pair import Vocabulary
from electrify.planning import fits, hardware
from electrify.planning.hardware import memory_of
from electrify.planning.sketch import sketch, trained
from electrify.recipes.schema import Discriminator, Recipe, Run

VOCABULARY = Vocabulary(30_522, 0, 1, 2)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _machine_with_24_gb(monkeypatch):
    monkeypatch.setattr(fits, "memory_of", lambda device: 24e9)


@pytest.mark.parametrize("field", ["intermediate_size", "embedding_size"])
def test_sizes_of_a_million_are_refused_with_both_numbers(field):
    with pytest.raises(UserError, match="do not fit in memory") as error:
        fits.check_fits(Recipe(Discriminator(config={field: 1_000_000})), VOCABULARY, CPU, 1)
    assert "this machine has 24.0 GB" in error.value.got
    needed = float(error.value.got.split("about ")[1].split(" GB")[0].replace(",", ""))
    assert needed > 100


def test_sharded_weights_need_less_memory_per_device():
    recipe = Recipe(Discriminator(config={"intermediate_size": 300_000}))
    with pytest.raises(UserError, match="do not fit"):
        fits.check_fits(recipe, VOCABULARY, CPU, 0)
    fits.check_fits(recipe, VOCABULARY, CPU, 0, sharded_by=64)


def test_a_batch_that_is_too_large_is_refused_with_a_micro_batch_that_fits():
    recipe = Recipe(run=Run(batch_size=2**20))
    with pytest.raises(UserError, match="batch") as error:
        fits.check_fits(recipe, VOCABULARY, CPU, 2**20)
    rows = int(error.value.fix.split("--micro-batch ")[1].split(" ")[0])
    assert rows > 100
    fits.check_fits(recipe, VOCABULARY, CPU, rows)
    fits.check_fits(recipe, VOCABULARY, CPU, 0)


def test_networks_are_refused_only_if_they_are_far_too_large(monkeypatch):
    """The estimate counts two moments for every optimizer; Muon keeps one for matrices."""
    parameters = trained(sketch(Recipe(), VOCABULARY).networks.values())
    needed = 16 * parameters  # weights, gradients and two moments in float32
    monkeypatch.setattr(fits, "memory_of", lambda device: needed / 1.4)
    fits.check_fits(Recipe(), VOCABULARY, CPU, 0)
    with pytest.raises(UserError, match="a batch of this recipe") as error:
        fits.check_fits(Recipe(), VOCABULARY, CPU, 10_000)
    assert error.value.fix == "use a shorter run.length or smaller networks"
    monkeypatch.setattr(fits, "memory_of", lambda device: needed / 1.6)
    with pytest.raises(UserError, match="the networks of this recipe"):
        fits.check_fits(Recipe(), VOCABULARY, CPU, 0)


def test_this_machine_has_memory():
    assert memory_of("cpu") > 1e8


@pytest.mark.parametrize("version", [0, 1])
def test_a_container_limit_below_the_physical_memory_is_used(version, monkeypatch, tmp_path):
    limits = (tmp_path / "memory.max", tmp_path / "limit_in_bytes")
    monkeypatch.setattr(hardware, "CGROUP_LIMITS", limits)
    physical = memory_of("cpu")
    for content, expected in (("64000000\n", 64e6), ("max\n", physical), (f"{2**63}", physical)):
        limits[version].write_text(content)
        assert memory_of("cpu") == expected
