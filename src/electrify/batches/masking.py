"""Choose and mask tokens of a batch, as pure functions of the ids, the settings and a key.

The official rules (google-research/electra pretrain/pretrain_helpers.py): a fixed number of slots
per row, counted over all real tokens including special ones; [CLS], [SEP] and [MASK] are never
chosen, [UNK] may be; a chosen token is replaced by [MASK] with probability 0.85 and kept otherwise,
never replaced by a random token.
"""

# B rows of the batch, L length, N slots per row

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.batches.keyed_random import key_of, uniforms

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Masking(NamedTuple):
    """How to choose the tokens to mask."""

    rate: float
    length: int
    """The length of a full example, which decides the number of slots per row."""
    shown_as_mask: float = 0.85
    """The probability that a chosen token is replaced by [MASK]."""
    with_replacement: bool = False
    """Draw positions with replacement, as the official code does."""
    whole_words: bool = False


class Slots(NamedTuple):
    """The chosen positions. Unused slots have position 0 and weight 0."""

    positions_BN: Ids
    weights_BN: NDArray[np.float32]


def max_slots(rate: float, length: int) -> int:
    """Return the number of slots of a full row, with room for half a percent above the rate.

    >>> max_slots(0.15, 128), max_slots(0.15, 512), max_slots(0.25, 512)
    (19, 79, 130)
    """
    return int((rate + 0.005) * length)


def slots_to_use(real_tokens_B: Ids, rate: float, most: int) -> Ids:
    """Return how many slots each row uses, rounded in float32 and half to even like TensorFlow.

    >>> slots_to_use(np.array([3, 30, 70, 110, 128]), 0.15, 19)
    array([ 1,  4, 10, 16, 19])
    """
    wanted_B = np.round(real_tokens_B.astype(np.float32) * np.float32(rate)).astype(np.int64)
    return np.asarray(np.clip(wanted_B, 1, most))


def choose_slots(
    candidates_BL: Flags,
    real_tokens_B: Ids,
    masking: Masking,
    key: tuple[int, int],
    rows_B: Ids,
    begins_word_BL: Flags | None = None,
) -> Slots:
    """Choose the slots of rows of a batch; `key` is (seed, step), `rows_B` the row numbers."""
    seed, step = key
    most = max(1, max_slots(masking.rate, masking.length))
    use_B = slots_to_use(real_tokens_B, masking.rate, most)
    available_B = candidates_BL.sum(axis=1)
    if masking.with_replacement:
        draws_BN = uniforms(key_of(seed, "positions", step), rows_B, most)
        nth_BN = np.floor(draws_BN * available_B[:, None]).astype(np.int64)
        use_B = np.where(available_B > 0, use_B, 0)
    else:
        use_B = np.minimum(use_B, available_B)
        nth_BN = None
    scores_BL = uniforms(key_of(seed, "scores", step), rows_B, candidates_BL.shape[1])
    positions_BN = np.zeros((len(rows_B), most), dtype=np.int64)
    for row, (use, available) in enumerate(zip(use_B, available_B, strict=True)):
        positions = np.flatnonzero(candidates_BL[row])
        if nth_BN is not None:
            chosen = positions[np.minimum(nth_BN[row, :use], available - 1)]
        elif begins_word_BL is not None and masking.whole_words:
            chosen = _whole_words(positions, begins_word_BL[row], scores_BL[row], use)
        else:
            chosen = positions[np.argsort(scores_BL[row, positions], kind="stable")[:use]]
        use_B[row] = len(chosen)
        positions_BN[row, : len(chosen)] = chosen
    weights_BN = np.arange(positions_BN.shape[1]) < use_B[:, None]
    return Slots(positions_BN, weights_BN.astype(np.float32))


def _whole_words(
    positions: Ids, begins_word_L: Flags, scores_L: NDArray[np.float64], use: int
) -> Ids:
    """Choose whole words in random order, each if it still fits; at least one token is chosen."""
    if not len(positions):
        return positions
    # A word continues as long as its tokens follow each other without a gap.
    starts = begins_word_L[positions] | (np.diff(positions, prepend=-2) != 1)
    words = np.split(positions, np.flatnonzero(starts)[1:])
    chosen: list[int] = []
    for number in np.argsort([scores_L[word[0]] for word in words], kind="stable"):
        if len(chosen) + len(words[number]) <= use:
            chosen += words[number].tolist()
    return np.array(chosen or positions[:1].tolist(), dtype=np.int64)


def mask_tokens(
    ids_BL: Ids, slots: Slots, mask_id: int, masking: Masking, key: tuple[int, int], rows_B: Ids
) -> Ids:
    """Return the ids with [MASK] in most of the slots, drawn independently for each slot."""
    seed, step = key
    draws_BN = uniforms(key_of(seed, "hide", step), rows_B, slots.positions_BN.shape[1])
    replaced_BN = (draws_BN < masking.shown_as_mask) & (slots.weights_BN > 0)
    masked_BL = ids_BL.copy()
    row, slot = np.nonzero(replaced_BN)
    masked_BL[row, slots.positions_BN[row, slot]] = mask_id
    return masked_BL
