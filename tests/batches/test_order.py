"""The order of examples, and the random numbers behind it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.batches import order
from electrify.batches.keyed_random import key_of, uniforms
from electrify.batches.order import examples_at, permuted


@settings(max_examples=150)
@given(st.integers(1, 3000), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_visits_every_example_once(total, seed, epoch):
    visited = permuted(np.arange(total), total, seed, epoch)
    assert sorted(visited.tolist()) == list(range(total))


def test_seeking_gives_the_same_as_reading_in_order():
    total, seed = 777, 3
    in_order = examples_at(np.arange(5 * total), total, seed)
    for start in (0, 1, 776, 777, 2000, 3884):
        np.testing.assert_array_equal(
            examples_at(np.arange(start, start + 100), total, seed)[: len(in_order) - start],
            in_order[start : start + 100],
        )


def test_epochs_and_seeds_differ():
    total = 1000
    orders = {
        tuple(permuted(np.arange(total), total, seed, epoch))
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    }
    assert len(orders) == 6


def test_the_order_looks_random():
    total = 100_000
    order = permuted(np.arange(total), total, 0, 0)
    assert abs(np.corrcoef(order, np.arange(total))[0, 1]) < 0.02
    assert np.mean(np.abs(np.diff(order)) < 100) < 0.004
    # The first half of the order contains half of each quarter of the examples.
    quarters = np.bincount(order[: total // 2] * 4 // total)
    assert np.all(np.abs(quarters - total / 8) < 5 * np.sqrt(total / 8))


def test_any_batch_of_sixteen_billion_tokens_is_found_without_the_ones_before(monkeypatch):
    """128 positions take on average fewer than four applications of the network each."""
    drawn = []
    original = order.squares32
    monkeypatch.setattr(order, "squares32", lambda c, key: drawn.append(len(c)) or original(c, key))
    for start in (0, 10**12):
        drawn.clear()
        chosen = examples_at(np.arange(start, start + 128), 16_000_000_000 // 128, 0)
        assert len(set(chosen.tolist())) == 128
        assert 128 * order.FEISTEL_ROUNDS <= sum(drawn) < 4 * 128 * order.FEISTEL_ROUNDS


def test_uniform_numbers_are_uniform_and_independent():
    rows, count = 20_000, 50
    numbers = uniforms(key_of(0, "test", 1), np.arange(rows), count)
    assert numbers.min() > 0
    assert numbers.max() < 1
    observed = np.bincount((numbers.ravel() * 200).astype(int), minlength=200)
    expected = numbers.size / 200
    chi_square = np.sum((observed - expected) ** 2 / expected)
    assert 120 < chi_square < 300  # 199 degrees of freedom
    for first, second in [(numbers[:, 0], numbers[:, 1]), (numbers[0], numbers[1])]:
        assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(len(first))


@pytest.mark.parametrize("other", [(1, "a", 0), (0, "b", 0), (0, "a", 1)])
def test_every_part_of_a_key_matters(other):
    rows = np.arange(4)
    assert not np.any(uniforms(key_of(0, "a", 0), rows, 8) == uniforms(key_of(*other), rows, 8))


def test_the_numbers_of_a_row_do_not_depend_on_other_rows():
    key = key_of(0, "a", 0)
    np.testing.assert_array_equal(
        uniforms(key, np.array([7]), 5), uniforms(key, np.arange(10), 9)[7:8, :5]
    )
