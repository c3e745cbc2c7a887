"""Pairs of texts to train sentence vectors on: with scores, or pairs that belong together."""

# N pairs, B batch, L length

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder
from electrify.finetuning.own.data import (
    Columns,
    Texts,
    extract_texts,
    find_columns,
    nothing_to_learn,
    parse_scores,
)
from electrify.finetuning.own.files import first_names, line_error, read_table, read_text
from electrify.finetuning.own.target import Target, TrainingFile
from electrify.finetuning.vectors.model import TextRows, encode_texts, text_rows
from electrify.models.sentence_folder import SentenceModel

SCORED, POSITIVE = "pairs with scores", "pairs that belong together"


def read_pairs(path: Path, requested: Columns) -> TrainingFile:
    """Read a training file; without a column of scores, its pairs are those that belong together.

    Scores of any range will do, because only their order is learned.
    """
    table = read_table(path, read_text(path), requested)
    columns = find_columns(table, requested)
    if not columns.pair:
        raise line_error(
            path,
            1,
            "sentence vectors are learned from pairs of texts",
            got=f"columns: {first_names(table.header)}",
            fix="name the columns of both texts: --text A --pair B; by number without a header",
        )
    pairs = extract_texts(table, columns)
    _check_pairs(pairs)
    reason = f"column {columns.label!r} has scores" if columns.label else "there is no score column"
    target = Target("sentences", (SCORED if columns.label else POSITIVE,))
    return TrainingFile(target, pairs, columns, reason, not table.numbered)


def read_matching_pairs(path: Path, columns: Columns) -> Texts:
    """Read a development file with the columns of the training file."""
    table = read_table(path, read_text(path), columns)
    found = find_columns(table, columns)
    pairs = extract_texts(table, found if columns.label else found._replace(label=""))
    _check_pairs(pairs)
    return pairs


def _check_pairs(pairs: Texts) -> None:
    """Refuse invalid scores, and pairs that cannot be ranked."""
    if pairs.labels is not None:
        if np.ptp(scores_N := _scores(pairs)) == 0:
            value = f"{scores_N[0]:g}"
            raise nothing_to_learn(pairs.path, "row", "score", value, pairs.lines)
    elif len(set(second_texts(pairs))) < 2:
        raise UserError(
            f"{pairs.path}: every first text belongs to the same second text",
            got=repr(second_texts(pairs)[0][:60]),
            fix="provide pairs with different second texts",
        )


def _scores(pairs: Texts) -> NDArray[np.float64]:
    try:
        return parse_scores(pairs)
    except UserError as error:
        error.fix = (
            "use numbers such as 3.5, or remove the column (and all pairs that do not belong "
            "together) to learn from pairs without scores"
        )
        raise


def second_texts(pairs: Texts) -> list[str]:
    """Return the second text of every pair."""
    return pairs.second or []


class PairBatch(NamedTuple):
    """A batch of pairs as tensors: the first texts, then the second texts."""

    ids_BL: Tensor
    attention_BL: Tensor
    types_BL: Tensor
    scores_B: Tensor
    """One for each pair; zeros if the pairs have none."""


class PairRows(NamedTuple):
    """Tokenized pairs."""

    first: TextRows
    second: TextRows
    scores_N: NDArray[np.float64]
    distinct: bool
    """Whether a batch may have each text only once."""
    truncated: int
    """How many texts are too long."""

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of the longer text of each pair."""
        return [max(pair) for pair in zip(self.first.lengths, self.second.lengths, strict=True)]

    def collate(self, indices: NDArray[np.int64]) -> PairBatch:
        """Return the pairs at the given indices as a batch, padded to the longest text."""
        if self.distinct:
            indices = self._without_repeats(indices)
        ids = [side.ids[index] for side in (self.first, self.second) for index in indices]
        types = [side.types[index] for side in (self.first, self.second) for index in indices]
        both = TextRows(ids, types, self.first.pad).collate(np.arange(len(ids)))
        return PairBatch(*both, torch.from_numpy(self.scores_N[indices]).float())

    def _without_repeats(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Leave out pairs with a text of an earlier pair that the batch keeps.

        All other second texts of a batch count as wrong, and a repeated one would not be.
        """
        seen: set[bytes] = set()
        kept = []
        for index in indices:
            texts = {side.ids[index].tobytes() for side in (self.first, self.second)}
            if not texts & seen:
                kept.append(index)
                seen |= texts
        return np.array(kept)


def prepare_pairs(
    model: SentenceModel, encoder: Encoder, pairs: Texts, length: int, learn: bool
) -> PairRows:
    """Tokenize pairs, to learn from or to evaluate on."""
    encodings = [
        encode_texts(model, encoder, texts, length) for texts in (pairs.first, second_texts(pairs))
    ]
    first, second = (text_rows(side, encoder.pad) for side in encodings)
    scored = pairs.labels is not None
    scores_N = parse_scores(pairs) if scored else np.zeros(len(pairs.first))
    truncated = sum(bool(encoding.overflowing) for side in encodings for encoding in side)
    return PairRows(first, second, scores_N, learn and not scored, truncated)
