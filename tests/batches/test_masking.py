"""Masking against golden numbers of the official code."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from electrify.batches.masking import Masking, choose_slots, mask_tokens, max_slots, slots_to_use

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/formulas.json").read_text())


def parsed(name: str) -> tuple[int, float]:
    """Return length and rate from a key such as len128_mask0.15 or mask0.15_len128."""
    parts = {part.rstrip("0123456789."): part.lstrip("lenmask") for part in name.split("_")}
    return int(parts["len"]), float(parts["mask"])


@pytest.mark.parametrize("name", GOLDEN["max_predictions_per_seq"])
def test_most_slots(name):
    length, rate = parsed(name)
    assert max_slots(rate, length) == GOLDEN["max_predictions_per_seq"][name]


@pytest.mark.parametrize("table", ["num_to_predict", "used_slots_by_length"])
def test_slots_to_use_for_every_length(table):
    for name, counts in GOLDEN[table].items():
        length, rate = parsed(name)
        if "used_slots" in counts:
            counts = dict(enumerate(counts["used_slots"], start=counts["first_length"]))
        tokens = np.array([int(count) for count in counts])
        wanted = np.array(list(counts.values()))
        np.testing.assert_array_equal(slots_to_use(tokens, rate, max_slots(rate, length)), wanted)


def full(rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    candidates = np.ones((rows, length), dtype=bool)
    candidates[:, [0, length // 2, length - 1]] = False
    return candidates, np.full(rows, length)


def agree(ours: np.ndarray, official: dict[str, int]) -> bool:
    """Return whether counts by value are consistent with the distribution of the official counts."""
    values = range(max(len(ours), 1 + max(map(int, official))))
    table = np.array(
        [
            [ours[v] if v < len(ours) else 0 for v in values],
            [official.get(str(v), 0) for v in values],
        ]
    )
    frequent = table.sum(axis=0) >= 30  # rarer values are pooled
    pooled = np.column_stack([table[:, frequent], table[:, ~frequent].sum(axis=1)])
    return chi2_contingency(pooled[:, pooled.sum(axis=0) > 0]).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("golden", GOLDEN["full_sequences"], ids=lambda g: g["max_seq_length"])
def test_with_replacement_100_000_sequences_are_as_the_official_ones(golden):
    """The distributions of distinct positions, draws per position and [MASK] tokens, not only means."""
    length, rows = golden["max_seq_length"], 100_000
    candidates, tokens = full(rows, length)
    masking = Masking(0.15, length, with_replacement=True)
    slots = choose_slots(candidates, tokens, masking, (0, 0), np.arange(rows))
    masked = (
        mask_tokens(np.ones((rows, length), np.int64), slots, 4, masking, (0, 0), np.arange(rows))
        == 4
    )
    draws = np.zeros((rows, length), dtype=np.int64)
    np.add.at(draws, (np.arange(rows)[:, None], slots.positions_BN), 1)
    distinct, masks = (draws > 0).sum(axis=1), masked.sum(axis=1)
    assert not np.any(masked & (draws == 0))
    assert agree(np.bincount(distinct), golden["histogram_distinct_positions"])
    assert agree(np.bincount(masks), golden["histogram_mask_tokens"])
    per_position = np.bincount(draws.ravel())
    per_position[0] = 0
    assert agree(per_position, golden["histogram_draws_per_position"])
    assert distinct.mean() == pytest.approx(golden["mean_distinct_positions"], abs=0.02)
    assert masks.mean() == pytest.approx(golden["mean_mask_tokens_shown"], abs=0.05)
    for times, share in golden["share_shown_as_mask_by_multiplicity"].items():
        if (drawn := draws == int(times)).sum() > 1000:
            assert masked[drawn].mean() == pytest.approx(share, abs=0.01)


def test_without_replacement_the_distributions_differ_from_the_official_ones():
    """Shows that the test above can fail."""
    golden, rows = GOLDEN["full_sequences"][0], 10_000
    candidates, tokens = full(rows, 128)
    masking = Masking(0.15, 128)
    slots = choose_slots(candidates, tokens, masking, (0, 0), np.arange(rows))
    masked = (
        mask_tokens(np.ones((rows, 128), np.int64), slots, 4, masking, (0, 0), np.arange(rows)) == 4
    )
    assert not agree(np.bincount(masked.sum(axis=1)), golden["histogram_mask_tokens"])
    assert not agree(np.bincount(np.full(rows, 19)), golden["histogram_distinct_positions"])


def test_without_replacement_over_100_000_sequences():
    """Exactly 19 distinct positions, 85 % of them [MASK], and all positions equally often."""
    rows, length = 100_000, 128
    candidates, tokens = full(rows, length)
    masking = Masking(0.15, length)
    slots = choose_slots(candidates, tokens, masking, (0, 7), np.arange(rows))
    assert slots.positions_BN.shape == (rows, 19)
    assert slots.weights_BN.min() == 1
    ordered = np.sort(slots.positions_BN, axis=1)
    assert np.all(np.diff(ordered, axis=1) > 0)
    counts = np.bincount(slots.positions_BN.ravel(), minlength=length)
    assert counts[[0, 64, 127]].sum() == 0
    expected = rows * 19 / 125
    chosen = np.delete(counts, [0, 64, 127])
    assert 60 < np.sum((chosen - expected) ** 2 / expected) < 200  # 124 degrees, less for the ties
    ids = np.random.default_rng(0).integers(5, 1000, (rows, length))
    masked = mask_tokens(ids, slots, 4, masking, (0, 7), np.arange(rows))
    assert np.mean(masked == 4) * length / 19 == pytest.approx(0.85, abs=0.002)
    assert np.all((masked == ids) | (masked == 4)), "no random tokens"


rows_of_candidates = st.lists(
    st.lists(st.booleans(), min_size=20, max_size=20), min_size=1, max_size=6
)


@settings(max_examples=200)
@given(rows_of_candidates, st.floats(0.01, 1.0), st.booleans(), st.booleans(), st.integers(0, 99))
def test_only_candidates_are_chosen_and_never_too_many(rows, rate, replacement, words, step):
    candidates = np.array(rows)
    tokens = np.full(len(rows), candidates.shape[1])
    masking = Masking(rate, 20, with_replacement=replacement, whole_words=words and not replacement)
    begins = np.arange(20) % 3 == 0
    slots = choose_slots(
        candidates,
        tokens,
        masking,
        (1, step),
        np.arange(len(rows)),
        np.tile(begins, (len(rows), 1)),
    )
    for row, (positions, weights) in enumerate(zip(*slots, strict=True)):
        used = positions[weights > 0]
        assert np.all(candidates[row, used])
        assert np.all(positions[weights == 0] == 0)
        assert len(used) <= max(1, max_slots(rate, 20))
        assert (len(used) > 0) == candidates[row].any()
        if not replacement:
            assert len(set(used.tolist())) == len(used)


def test_whole_words_are_masked_together():
    begins = np.array([[True, True, False, False, True, True, False, True] * 8])
    candidates = np.ones((1, 64), dtype=bool)
    masking = Masking(0.3, 64, whole_words=True)
    for step in range(50):
        slots = choose_slots(candidates, np.array([64]), masking, (0, step), np.arange(1), begins)
        chosen = set(slots.positions_BN[0, slots.weights_BN[0] > 0].tolist())
        words = np.split(np.arange(64), np.flatnonzero(begins[0])[1:])
        assert all(set(w.tolist()) <= chosen or not set(w.tolist()) & chosen for w in words)
        assert 17 <= len(chosen) <= 19


def test_rows_of_a_batch_do_not_depend_on_each_other():
    candidates, tokens = full(10, 128)
    masking = Masking(0.15, 128)
    full_batch = choose_slots(candidates, tokens, masking, (0, 3), np.arange(10))
    part = choose_slots(candidates[4:7], tokens[4:7], masking, (0, 3), np.arange(4, 7))
    np.testing.assert_array_equal(full_batch.positions_BN[4:7], part.positions_BN)
