"""The loss of masked language models on the same words of the same passages.

The words of a passage are masked together, all of their tokens. The loss of a word is minus the
log-probability of its tokens, from left to right: each is predicted with the tokens of its word
before it visible, and those after it and all other words masked (Kauf & Ivanova 2023). So the
probabilities of a word's tokens multiply to that of the word, however many tokens it has. The sum
over words, divided by the sum of their characters, is the loss per character, in nats.
"""

# B rows, L length, S scored positions, P pages, V vocabulary

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electrify.errors import UserError
from electrify.finetuning.adaptation.passages import Passage, positions_of
from electrify.finetuning.blimp.scoring import unpadded
from electrify.finetuning.encoder import Encoder, Encoding, encode
from electrify.models.gather import gather_head_rows
from electrify.models.inputs import call

SLOTS_PER_BATCH = 512
"""Scored tokens in a batch, whose logits take 4 bytes for each entry of the vocabulary."""
FEWEST_PAGES = 5
"""With fewer pages, the standard error of a difference is not known."""
LossArray = NDArray[np.float64]


class MaskedRow(NamedTuple):
    """The input of a model: a passage with masked words, and the tokens to predict in it."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    words: tuple[int, ...]
    """For each token, the number of its word among the words of all passages."""


class WordLosses(NamedTuple):
    """What a model gives the masked words of passages: an entry for each."""

    losses: LossArray
    tokens: NDArray[np.int64]
    """The number of tokens of each word."""


def masked_rows(passage: Passage, encoding: Encoding, mask: int, first: int) -> list[MaskedRow]:
    """Return the rows that score the words of a passage, which are numbered from `first`.

    One row predicts the first token of every word. A word of several tokens has a row for each of
    the others.
    """
    places = [positions_of(word, encoding) for word in passage.words]
    hidden = list(encoding.ids)
    for position in (position for word in places for position in word):
        hidden[position] = mask
    types = tuple(encoding.type_ids)

    def row(ids: Sequence[int], positions: Sequence[int], words: Sequence[int]) -> MaskedRow:
        tokens = tuple(encoding.ids[position] for position in positions)
        return MaskedRow(tuple(ids), types, tuple(positions), tokens, tuple(words))

    numbers = range(first, first + len(places))
    rows = [row(hidden, [word[0] for word in places], numbers)]
    for number, word in zip(numbers, places, strict=True):
        shown = list(hidden)
        for before, position in pairwise(word):
            shown[before] = encoding.ids[before]
            rows.append(row(shown, [position], [number]))
    return rows


@torch.inference_mode()
def word_losses(
    network: Any,
    encoder: Encoder,
    passages: Sequence[Passage],
    on_scored: Callable[[float], None] = lambda fraction: None,
) -> WordLosses:
    """Return the loss of a masked language model on every masked word of the passages."""
    encodings = encode(encoder, [passage.text for passage in passages], None, encoder.longest)
    rows, count = list[MaskedRow](), 0
    for passage, encoding in zip(passages, encodings, strict=True):
        rows += masked_rows(passage, encoding, encoder.tokenizer.mask_token_id, count)
        count += len(passage.words)
    losses, tokens, done = np.zeros(count), np.zeros(count, np.int64), 0
    groups: dict[tuple[int, ...], list[MaskedRow]] = defaultdict(list)
    for row in rows:
        groups[row.types].append(row)
    for types in sorted(groups):  # rows of the same length, so that there is no padding
        for batch in _batches(groups[types]):
            numbers = [number for row in batch for number in row.words]
            np.add.at(losses, numbers, _losses(network, batch).cpu().double().numpy())
            np.add.at(tokens, numbers, 1)
            done += len(batch)
            on_scored(done / len(rows))
    if not np.isfinite(losses).all():
        raise UserError(
            "the model's probabilities are not finite",
            got="NaN or infinity among the losses of masked words",
            fix="use a model from before training diverged",
        )
    return WordLosses(losses, tokens)


def _batches(rows: Sequence[MaskedRow]) -> list[list[MaskedRow]]:
    batches: list[list[MaskedRow]] = [[]]
    slots = 0
    for row in rows:
        if slots + len(row.positions) > SLOTS_PER_BATCH and batches[-1]:
            batches.append([])
            slots = 0
        batches[-1].append(row)
        slots += len(row.positions)
    return batches


def _losses(network: Any, rows: Sequence[MaskedRow]) -> Tensor:
    """Return the losses of the tokens of some rows of the same length."""
    device = next(network.parameters()).device
    ids_BL = torch.tensor([row.ids for row in rows], device=device)
    types_BL = torch.tensor(rows[0].types, device=device).expand_as(ids_BL)
    starts = [number * ids_BL.shape[1] for number in range(len(rows))]
    slots = [s + at for s, row in zip(starts, rows, strict=True) for at in row.positions]
    tokens_S1 = torch.tensor([[t] for row in rows for t in row.tokens], device=device)
    with gather_head_rows(network, torch.tensor(slots, device=device)):
        logits_SV: Tensor = call(network, ids_BL, unpadded(types_BL)).logits.squeeze(0).float()
    return (logits_SV.logsumexp(1, keepdim=True) - logits_SV.gather(1, tokens_S1)).squeeze(1)


def per_character(losses: LossArray, passages: Sequence[Passage]) -> float:
    """Return the sum of the losses of words divided by the sum of their characters."""
    return float(losses.sum() / sum(word.end - word.start for p in passages for word in p.words))


def difference_error(before: LossArray, after: LossArray, passages: Sequence[Passage]) -> float:
    """Return the standard error of the difference of two losses per character.

    Pages are the independent cases, because words of a page have much in common.
    """
    pages: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    number = 0
    for passage in passages:
        end = number + len(passage.words)
        pages[passage.page][0] += float((after[number:end] - before[number:end]).sum())
        pages[passage.page][1] += sum(word.end - word.start for word in passage.words)
        number = end
    changes_P, characters_P = np.array(list(pages.values())).T
    count, total = len(pages), characters_P.sum()
    if count < FEWEST_PAGES:
        return math.nan
    residuals_P = changes_P - changes_P.sum() / total * characters_P
    return float(np.sqrt(count / (count - 1) * (residuals_P**2).sum()) / total)
