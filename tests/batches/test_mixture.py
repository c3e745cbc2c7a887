"""A mixture takes a fixed share of its examples from general text, each source in its order."""

import numpy as np
import pytest

from electrify.batches.mixture import Mixture
from electrify.tokens.store import Shards


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_is_exact_and_every_source_has_its_own_epochs(share, shards):
    main = Shards(shards, "train")
    mixture = Mixture(main, Shards(shards, "validation"), share)
    numbers = np.arange(len(mixture), dtype=np.int64)
    chosen = mixture.chosen(numbers, seed=3)
    general = chosen >= len(main)
    assert abs(general.sum() - share * len(mixture)) <= 1
    ours = chosen[~general]
    assert abs(len(ours) - len(main)) <= 1
    assert len(set(ours)) >= len(main) - 1  # one epoch is a permutation
    some = np.array([5, 17, 2])
    assert (mixture.chosen(some, seed=3) == chosen[some]).all()
    assert (mixture[int(chosen[0])].ids > 0).any()
