"""Token tagging: sentences of words with one tag each.

A sentence is tokenized as text, its words joined by spaces, as `pipeline()` would receive it. The
first sub-token of a word carries the word's tag; a word without a sub-token inside the maximum
length carries none.
"""

# B batch, L length, C tags, W words

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electrify.errors import needs
from electrify.finetuning.batches import Rows
from electrify.finetuning.encoder import Encoding
from electrify.finetuning.heads import Examples, OnNetwork
from electrify.finetuning.own.data import label_indices
from electrify.finetuning.own.sentences import OUTSIDE, Sentences, require_tags
from electrify.models.inputs import call

IGNORE_INDEX = -100


def tag_indices(sentences: Sentences, tags: Sequence[str]) -> list[NDArray[np.int64]]:
    """Return the tag index of every word."""
    indices = []
    for number, sentence in enumerate(require_tags(sentences)):
        labels = ((sentences.line(number, word), tag) for word, tag in enumerate(sentence))
        indices.append(np.array(label_indices(sentences.path, labels, tags)))
    return indices


def find_word_starts(encoding: Encoding, words: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of the first token of every word, or -1, for words joined by spaces.

    A token belongs to the word it ends in: in some vocabularies it starts with the space before.
    """
    ends = [*accumulate(len(word) + 1 for word in words)]  # past the space that follows
    starts_W = np.full(len(words), -1)
    for position, (start, end) in enumerate(encoding.offsets):
        if end <= start:  # special tokens such as [CLS]
            continue
        word = bisect_right(ends, end - 1)
        if word < len(words) and end < ends[word] and starts_W[word] < 0:
            starts_W[word] = position
    return starts_W


class TaggedBatch(NamedTuple):
    """A batch of sentences as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    types_BL: Tensor
    labels_BL: Tensor
    """The tag index at the first token of each word, -100 elsewhere."""


def collate_tagged(
    rows: Rows,
    word_starts: Sequence[NDArray[np.int64]],
    tags: Sequence[NDArray[np.int64]],
    numbers: NDArray[np.int64],
) -> TaggedBatch:
    """Return a batch of some sentences, padded to the longest, with the tag index of each word."""
    ids_BL, attention_BL, types_BL, *_ = rows.collate(numbers)
    labels_BL = torch.full_like(ids_BL, IGNORE_INDEX)
    for row, number in enumerate(numbers):
        starts_W = word_starts[number]
        visible_W = starts_W >= 0
        labels_BL[row, starts_W[visible_W]] = torch.from_numpy(tags[number][visible_W])
    return TaggedBatch(ids_BL, attention_BL, types_BL, labels_BL)


class Tagger(OnNetwork):
    """A transformers token-classification network with its own head."""

    def forward(self, batch: TaggedBatch, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean loss over the words of the batch, which `fit` never splits."""
        logits_BLC = self.logits(batch)
        words = (batch.labels_BL != IGNORE_INDEX).sum().clamp(min=1)
        summed = nn.functional.cross_entropy(
            logits_BLC.flatten(0, 1),
            batch.labels_BL.flatten(),
            ignore_index=IGNORE_INDEX,
            reduction="sum",
        )
        loss = summed / words
        return loss, {"loss": loss.detach()}

    def logits(self, batch: TaggedBatch) -> Tensor:
        """Return the logits of each token in float32."""
        logits_BLC: Tensor = call(self.network, batch.ids_BL, batch).logits
        return logits_BLC.float()


_ENTITY = re.compile(r"[BI]|[BIESLU]-.+")
_BILOU_TO_BIOES = {"L": "E", "U": "S"}  # seqeval reads BIOES


def has_entities(tags: Sequence[str]) -> bool:
    """Return whether tags mark parts of entities, such as B-PER, not words, such as NOUN.

    >>> has_entities(["O", "B-PER"]), has_entities(["NOUN", "VERB"])
    (True, False)
    """
    return any(_ENTITY.fullmatch(tag) for tag in tags)


def entity_scores(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, float]:
    """Return F1, precision and recall of complete entities over all types, computed by seqeval.

    Like conlleval, it accepts any mixture of schemes: an entity may start with I-. A tag that is
    not part of an entity counts as outside.
    """
    seqeval = import_seqeval()
    gold, predicted = _all_bioes(gold), _all_bioes(predicted)
    return {
        "f1": float(seqeval.f1_score(gold, predicted, zero_division=0)),
        "precision": float(seqeval.precision_score(gold, predicted, zero_division=0)),
        "recall": float(seqeval.recall_score(gold, predicted, zero_division=0)),
    }


def entity_spans(sentences: list[list[str]]) -> set[tuple[str, int, int]]:
    """Return the type, start and end of every entity, as `entity_scores` counts them."""
    return set(import_seqeval().sequence_labeling.get_entities(_all_bioes(sentences)))


def entity_type(tag: str) -> str:
    """Return the type of the entity that a word with this tag belongs to; O outside.

    >>> [entity_type(tag) for tag in ("I-PER", "O", "B", "X")]
    ['PER', 'O', '_', 'O']
    """
    return tag[2:] or "_" if _ENTITY.fullmatch(tag) else OUTSIDE


def _all_bioes(sentences: list[list[str]]) -> list[list[str]]:
    return [[_to_bioes(tag) for tag in sentence] for sentence in sentences]


def _to_bioes(tag: str) -> str:
    if not _ENTITY.fullmatch(tag):
        return OUTSIDE
    return _BILOU_TO_BIOES.get(tag[0], tag[0]) + tag[1:]


def import_seqeval() -> Any:
    """Import the metrics of seqeval, or raise an error that says how to install it."""
    return needs("seqeval.metrics", extra="finetune", why="scoring entities")
