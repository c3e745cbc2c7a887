"""Labelled texts as rows of tokens, and some of those rows as one padded batch."""

# B batch, L length

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from electrify.finetuning.encoder import Encoder, encode
from electrify.finetuning.head import Kind, Labelled


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
    return Rows(
        [np.array(one.ids) for one in made],
        [np.array(one.type_ids) for one in made],
        np.asarray(labels if len(labels) else np.zeros(len(made)), dtype=np.float64),
    )


def collating(
    rows: Rows, pad: int, kind: Kind, scale: float = 1.0
) -> Callable[[NDArray[np.int64]], Labelled]:
    """From numbers of rows to a batch that is as long as its longest row; scores over `scale`."""

    def collate(numbers: NDArray[np.int64]) -> Labelled:
        lengths = [len(rows.ids[number]) for number in numbers]
        ids_BL = np.full((len(numbers), max(lengths)), pad)
        types_BL, attention_BL = np.zeros_like(ids_BL), np.zeros_like(ids_BL)
        for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
            ids_BL[row, :length] = rows.ids[number]
            types_BL[row, :length] = rows.types[number]
            attention_BL[row, :length] = 1
        labels_B = torch.from_numpy(rows.labels[numbers])
        return Labelled(
            torch.from_numpy(ids_BL),
            torch.from_numpy(attention_BL),
            torch.from_numpy(types_BL),
            labels_B.long() if kind == "classes" else (labels_B / scale).float(),
            torch.ones(len(numbers)),
        )

    return collate
