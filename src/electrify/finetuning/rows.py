"""Labelled texts as rows of tokens, and some of those rows as one padded batch."""

# B batch, L length

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electrify.finetuning.encoder import Encoder, Encoding, encode
from electrify.finetuning.heads import Kind, Labelled


class Rows(NamedTuple):
    """Examples as tokens; those without labels have zeros."""

    ids: list[NDArray[np.int64]]
    types: list[NDArray[np.int64]]
    labels: NDArray[np.float64]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [len(ids) for ids in self.ids]


def rows_of(
    encoder: Encoder,
    first: Sequence[str],
    second: Sequence[str] | None,
    labels: Sequence[float],
    most: int,
) -> Rows:
    """Texts, or pairs of texts, as rows of at most `most` tokens."""
    made = encode(encoder, first, second, most)
    return as_rows(made, np.asarray(labels if len(labels) else np.zeros(len(made)), np.float64))


def as_rows(made: Sequence[Encoding], labels: NDArray[np.float64]) -> Rows:
    """Encodings as rows."""
    return Rows([np.array(e.ids) for e in made], [np.array(e.type_ids) for e in made], labels)


def padded(
    ids: Sequence[NDArray[np.int64]], types: Sequence[NDArray[np.int64]], pad: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Some rows as long as the longest of them: ids, which are real, and in which segment."""
    ids_BL = np.full((len(ids), max(map(len, ids))), pad)
    types_BL, attention_BL = np.zeros_like(ids_BL), np.zeros_like(ids_BL)
    for row, (some, kinds) in enumerate(zip(ids, types, strict=True)):
        ids_BL[row, : len(some)] = some
        types_BL[row, : len(some)] = kinds
        attention_BL[row, : len(some)] = 1
    return torch.from_numpy(ids_BL), torch.from_numpy(attention_BL), torch.from_numpy(types_BL)


def collating(
    rows: Rows, pad: int, kind: Kind, scale: float = 1.0
) -> Callable[[NDArray[np.int64]], Labelled]:
    """From numbers of rows to a batch that is as long as its longest row; scores over `scale`."""

    def collate(numbers: NDArray[np.int64]) -> Labelled:
        ids = [rows.ids[number] for number in numbers]
        types = [rows.types[number] for number in numbers]
        labels_B = torch.from_numpy(rows.labels[numbers])
        return Labelled(
            *padded(ids, types, pad),
            labels_B.long() if kind == "classes" else (labels_B / scale).float(),
            torch.ones(len(numbers)),
        )

    return collate
