"""Token tagging: sentences of words that have a tag each.

A sentence is given to the tokenizer as text, its words joined by blanks, as `pipeline()` would get
it. The first sub-token of a word carries the word's tag; a word of which no sub-token is left
within the length has none.
"""

# B batch, L length, C tags

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
from electrify.finetuning.own.data import unknown_label
from electrify.finetuning.own.sentences import OUTSIDE, Sentences, need_tags
from electrify.models.inputs import call

UNTAGGED = -100


def tag_numbers(sentences: Sentences, tags: Sequence[str]) -> list[NDArray[np.int64]]:
    """The number of every word's tag."""
    number = {tag: place for place, tag in enumerate(tags)}
    for place, some in enumerate(need_tags(sentences)):
        for word, tag in enumerate(some):
            if tag not in number:
                raise unknown_label(sentences.path, sentences.line(place, word), tag, tags)
    return [np.array([number[tag] for tag in some]) for some in need_tags(sentences)]


def first_tokens(encoding: Encoding, words: Sequence[str]) -> NDArray[np.int64]:
    """For every word of a text that is its words joined by blanks, the first token; -1 for none.

    A token belongs to the word it ends in, as in some vocabularies it begins with the blank before.
    """
    stops = [*accumulate(len(word) + 1 for word in words)]  # past the blank that follows
    found_W = np.full(len(words), -1)
    for place, (start, stop) in enumerate(encoding.offsets):
        if stop <= start:  # [CLS] and the like
            continue
        word = bisect_right(stops, stop - 1)
        if word < len(words) and stop < stops[word] and found_W[word] < 0:
            found_W[word] = place
    return found_W


class Tagged(NamedTuple):
    """A batch of sentences, as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    types_BL: Tensor
    labels_BL: Tensor
    """The number of a tag where a word begins, -100 elsewhere."""


class TaggedRows(NamedTuple):
    """Sentences as tokens."""

    rows: Rows
    firsts: list[NDArray[np.int64]]
    """The first token of every word, -1 for none."""
    tags: list[NDArray[np.int64]]
    """The number of every word's tag."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sentence."""
        return self.rows.lengths

    def collate(self, numbers: NDArray[np.int64]) -> Tagged:
        """Some sentences as a batch that is as long as the longest of them."""
        ids_BL, attention_BL, types_BL, *_ = self.rows.collate(numbers)
        labels_BL = torch.full_like(ids_BL, UNTAGGED)
        for row, number in enumerate(numbers):
            seen_W = self.firsts[number] >= 0
            labels_BL[row, self.firsts[number][seen_W]] = torch.from_numpy(
                self.tags[number][seen_W]
            )
        return Tagged(ids_BL, attention_BL, types_BL, labels_BL)


class Tagger(OnNetwork):
    """A network of transformers' token-classification classes, with the head it comes with."""

    def forward(self, batch: Tagged, totals: Examples) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over the words of the batch, which `fit` never splits."""
        logits_BLC = self.logits(batch)
        words = (batch.labels_BL != UNTAGGED).sum().clamp(min=1)
        summed = nn.functional.cross_entropy(
            logits_BLC.flatten(0, 1),
            batch.labels_BL.flatten(),
            ignore_index=UNTAGGED,
            reduction="sum",
        )
        loss = summed / words
        return loss, {"loss": loss.detach()}

    def logits(self, batch: Tagged) -> Tensor:
        """What the head says of each token, in float32."""
        logits_BLC: Tensor = call(self.network, batch.ids_BL, batch).logits
        return logits_BLC.float()


_ENTITY = re.compile(r"[BI]|[BIESLU]-.+")
_OTHER_NAMES = {"L": "E", "U": "S"}  # BILOU as BIOES, which seqeval reads


def has_entities(tags: Sequence[str]) -> bool:
    """Whether tags are of parts of entities, such as B-PER, and not of single words, such as NOUN.

    >>> has_entities(["O", "B-PER"]), has_entities(["NOUN", "VERB"])
    (True, False)
    """
    return any(_ENTITY.fullmatch(tag) for tag in tags)


def entity_scores(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, float]:
    """F1, precision and recall of whole entities over all types, by seqeval.

    As conlleval does, it takes any mixture of schemes: an entity may begin with I-. What is no part
    of an entity counts as outside.
    """
    seqeval = import_seqeval()
    gold, predicted = (
        [[_scheme(tag) for tag in some] for some in one] for one in (gold, predicted)
    )
    return {
        "f1": float(seqeval.f1_score(gold, predicted, zero_division=0)),
        "precision": float(seqeval.precision_score(gold, predicted, zero_division=0)),
        "recall": float(seqeval.recall_score(gold, predicted, zero_division=0)),
    }


def _scheme(tag: str) -> str:
    if not _ENTITY.fullmatch(tag):
        return OUTSIDE
    return _OTHER_NAMES.get(tag[0], tag[0]) + tag[1:]


def import_seqeval() -> Any:
    """The metrics of seqeval, or how to get them."""
    return needs("seqeval.metrics", extra="finetune", why="scoring entities")
