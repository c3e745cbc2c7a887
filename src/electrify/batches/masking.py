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
    slots: int = 0
    """Slots per row, if there should be more than the rate needs: the others stay unused."""


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
    usable = max(1, max_slots(masking.rate, masking.length))
    use_B = slots_to_use(real_tokens_B, masking.rate, usable)
    most = max(usable, masking.slots)
    available_B = candidates_BL.sum(axis=1)
    scores_BL = uniforms(key_of(seed, "scores", step), rows_B, candidates_BL.shape[1])
    if masking.with_replacement:
        draws_BN = uniforms(key_of(seed, "positions", step), rows_B, most)
        nth_BN = np.floor(draws_BN * available_B[:, None]).astype(np.int64)
        in_text_BL = np.argsort(~candidates_BL, axis=1, kind="stable")  # candidates first
        last_B1 = np.maximum(available_B - 1, 0)[:, None]
        positions_BN = np.take_along_axis(in_text_BL, np.minimum(nth_BN, last_B1), axis=1)
        use_B = np.where(available_B > 0, use_B, 0)
    elif begins_word_BL is not None and masking.whole_words:
        positions_BN, use_B = _whole_words(candidates_BL, begins_word_BL, scores_BL, use_B, most)
    else:
        positions_BN = _lowest_scores(scores_BL, candidates_BL, most)
        use_B = np.minimum(use_B, available_B)
    used_BN = np.arange(most) < use_B[:, None]
    return Slots(np.where(used_BN, positions_BN, 0), used_BN.astype(np.float32))


def _lowest_scores(scores_BL: NDArray[np.float64], among_BL: Flags, most: int) -> Ids:
    """Return the positions with the lowest scores among some, in order; ties by position.

    Each score has 32 bits, so score and position fit into one integer, and only the lowest ones
    have to be sorted.
    """
    rows, length = scores_BL.shape
    bits = np.uint64(length.bit_length())
    keys_BL = ((scores_BL * 2**32).astype(np.uint64) << bits) | np.arange(length, dtype=np.uint64)
    keys_BL[~among_BL] |= ~(np.uint64(2**64 - 1) >> np.uint64(1))  # after all others
    if most < length:
        keys_BL = np.partition(keys_BL, most - 1, axis=1)[:, :most]
    sorted_BN = np.sort(keys_BL, axis=1) & ((np.uint64(1) << bits) - np.uint64(1))
    positions_BN = np.zeros((rows, most), dtype=np.int64)
    positions_BN[:, : sorted_BN.shape[1]] = sorted_BN
    return positions_BN


def _whole_words(
    candidates_BL: Flags,
    begins_word_BL: Flags,
    scores_BL: NDArray[np.float64],
    use_B: Ids,
    most: int,
) -> tuple[Ids, Ids]:
    """Choose whole words in random order, each if it still fits; at least one token is chosen.

    A word continues as long as its tokens follow each other without a gap. Returns the positions
    and how many of them each row uses.
    """
    length = candidates_BL.shape[1]
    after_gap_BL = np.ones_like(candidates_BL)
    after_gap_BL[:, 1:] = ~candidates_BL[:, :-1]
    starts_BL = candidates_BL & (begins_word_BL | after_gap_BL)
    words_B = starts_BL.sum(axis=1).tolist()
    # The end of a word is the next position that does not continue it.
    ends_BL = np.where(candidates_BL & ~starts_BL, length, np.arange(length))
    ends_BL = np.minimum.accumulate(ends_BL[:, ::-1], axis=1)[:, ::-1]
    ends_BL = np.concatenate([ends_BL[:, 1:], np.full((len(ends_BL), 1), length)], axis=1)
    order_BL = _lowest_scores(scores_BL, starts_BL, length)
    sizes_BL = np.take_along_axis(ends_BL, order_BL, axis=1) - order_BL
    positions_BN = np.zeros((len(use_B), most), dtype=np.int64)
    used_B = np.zeros_like(use_B)
    for row, (room, words) in enumerate(zip(use_B.tolist(), words_B, strict=True)):
        chosen: list[int] = []
        starts, sizes = order_BL[row, :words].tolist(), sizes_BL[row, :words].tolist()
        for start, size in zip(starts, sizes, strict=True):
            if size <= room:
                chosen += range(start, start + size)
                room -= size
                if not room:
                    break
        if words and not chosen:
            chosen = [int(np.argmax(candidates_BL[row]))]
        positions_BN[row, : len(chosen)], used_B[row] = chosen, len(chosen)
    return positions_BN, used_B


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
