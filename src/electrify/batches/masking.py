"""Which tokens of a batch are hidden: pure functions of the ids, the settings and a key.

The official rules (google-research/electra pretrain/pretrain_helpers.py): a fixed number of slots a
row, counted over all real tokens, special ones included; [CLS], [SEP] and [MASK] are never chosen,
[UNK] may be; a slot shows [MASK] with 85 % and its own token otherwise, never a random one.
"""

# B rows of the batch, L length, N slots a row

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.batches.keyed_random import key_of, uniforms

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Masking(NamedTuple):
    """How to choose what is hidden."""

    rate: float
    length: int
    """The length of a full example, from which the most slots a row can have follows."""
    shown_as_mask: float = 0.85
    with_replacement: bool = False
    """Draw positions with replacement, as the official code does."""
    whole_words: bool = False


class Slots(NamedTuple):
    """The chosen places. A slot that is not used has position 0 and weight 0."""

    positions_BN: Ids
    weights_BN: NDArray[np.float32]


def most_slots(rate: float, length: int) -> int:
    """The slots of a full row: room for the rate and half a percent more.

    >>> most_slots(0.15, 128), most_slots(0.15, 512), most_slots(0.25, 512)
    (19, 79, 130)
    """
    return int((rate + 0.005) * length)


def slots_to_use(real_tokens_B: Ids, rate: float, most: int) -> Ids:
    """How many slots each row uses: in float32 and half to even, as TensorFlow rounds.

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
    """Choose the slots of some rows of a batch; `key` is (seed, step), `rows_B` their numbers."""
    seed, step = key
    most = max(1, most_slots(masking.rate, masking.length))
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
        where = np.flatnonzero(candidates_BL[row])
        if nth_BN is not None:
            chosen = where[np.minimum(nth_BN[row, :use], available - 1)]
        elif begins_word_BL is not None and masking.whole_words:
            chosen = _whole_words(where, begins_word_BL[row], scores_BL[row], use)
        else:
            chosen = where[np.argsort(scores_BL[row, where], kind="stable")[:use]]
        use_B[row] = len(chosen)
        positions_BN[row, : len(chosen)] = chosen
    weights_BN = np.arange(positions_BN.shape[1]) < use_B[:, None]
    return Slots(positions_BN, weights_BN.astype(np.float32))


def _whole_words(where: Ids, begins_word_L: Flags, scores_L: NDArray[np.float64], use: int) -> Ids:
    """Whole words in random order, each if it still fits; at least one token is chosen."""
    if not len(where):
        return where
    # A word goes on while its pieces follow each other without a gap.
    starts = begins_word_L[where] | (np.diff(where, prepend=-2) != 1)
    words = np.split(where, np.flatnonzero(starts)[1:])
    chosen: list[int] = []
    for number in np.argsort([scores_L[word[0]] for word in words], kind="stable"):
        if len(chosen) + len(words[number]) <= use:
            chosen += words[number].tolist()
    return np.array(chosen or where[:1].tolist(), dtype=np.int64)


def mask_tokens(
    ids_BL: Ids, slots: Slots, mask_id: int, masking: Masking, key: tuple[int, int], rows_B: Ids
) -> Ids:
    """The ids with [MASK] in most of the slots; each slot decides for itself."""
    seed, step = key
    draws_BN = uniforms(key_of(seed, "hide", step), rows_B, slots.positions_BN.shape[1])
    hidden_BN = (draws_BN < masking.shown_as_mask) & (slots.weights_BN > 0)
    masked_BL = ids_BL.copy()
    row, slot = np.nonzero(hidden_BN)
    masked_BL[row, slots.positions_BN[row, slot]] = mask_id
    return masked_BL
