"""Token tagging: sentences of words that have a tag each.

CoNLL-style files have a word a line, columns apart by a tab or blanks, and a blank line between
sentences; JSON lines have lists "tokens" and "tags". A sentence is given to the tokenizer as text,
its words joined by blanks, as `pipeline()` would get it. The first sub-token of a word carries the
word's tag; a word of which no sub-token is left within the length has none.
"""

# B batch, L length, C tags

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoding
from electrify.finetuning.head import Examples
from electrify.finetuning.own_data import Columns, in_order, unknown_label
from electrify.finetuning.own_files import (
    READERS,
    Table,
    as_text,
    check_length,
    fault,
    lines_of,
    read_table,
    suffix_of,
)
from electrify.finetuning.rows import Rows, collating
from electrify.models.inputs import call

CONLL = (".conll", ".conll2003", ".txt", ".bio", ".iob", ".iob2", ".bioes", ".ner", ".pos")
WORDS, TAGS = ("tokens", "words"), ("tags", "ner_tags", "labels", "pos_tags", "tag", "label")
BETWEEN_DOCUMENTS = "-DOCSTART-"
OUTSIDE = "O"
UNTAGGED = -100


class Sentences(NamedTuple):
    """Sentences of words, and a tag for every word."""

    path: Path
    words: list[list[str]]
    tags: list[list[str]] | None
    lines: list[int]
    """Where each sentence begins."""
    a_word_a_line: bool

    def line(self, sentence: int, word: int) -> int:
        """Where a word is."""
        return self.lines[sentence] + (word if self.a_word_a_line else 0)


def is_tagged(path: Path, text: str) -> bool:
    """Whether a file holds words with tags, by its name and what it looks like."""
    suffix = suffix_of(path)
    if suffix in CONLL:
        return True
    if suffix == ".tsv":  # no table has a blank line within
        return bool(re.search(r"\n[ \t]*\r?\n[ \t]*[^\s]", text))
    if suffix in READERS and suffix != ".csv":
        table = read_table(path, text)
        name = _usual(table, WORDS)
        return bool(name) and isinstance(table.column(name)[0], list)
    return False


def read_sentences(path: Path, text: str, named: Columns) -> Sentences:
    """The sentences of a file: JSON lines by their suffix, anything else CoNLL-style."""
    if suffix_of(path) in READERS and suffix_of(path) not in (".csv", ".tsv"):
        return _from_objects(read_table(path, text), named)
    return _from_lines(path, text, named)


def _from_lines(path: Path, text: str, named: Columns) -> Sentences:
    lines = lines_of(text)
    filled = [line for line in lines if line.strip()]
    apart = "\t" if "\t" in filled[0] else " "
    width = len(_cells(filled[0], apart))
    word_place = _place(path, named.text, "--text", width, default=0)
    tag_place = _place(path, named.label, "--label", width, default=width - 1)
    words: list[list[str]] = []
    tags: list[list[str]] = []
    starts: list[int] = []
    inside = False
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith(BETWEEN_DOCUMENTS):
            inside = False
            continue
        cells = _cells(line, apart)
        if len(cells) != width or not cells[word_place] or not cells[tag_place]:
            raise fault(
                path,
                number,
                f"not the {width} columns that the first line has",
                got=repr(line[:60]),
                fix="give a word and its tag in every line, a blank line between sentences",
            )
        if not inside:
            words.append([])
            tags.append([])
            starts.append(number)
            inside = True
        check_length(path, number, "word", cells[word_place])
        words[-1].append(cells[word_place])
        tags[-1].append(cells[tag_place])
    if not words:
        raise UserError(f"{path} has no sentences", got="blank lines", fix="give words and tags")
    return Sentences(path, words, tags if tag_place != word_place else None, starts, True)


def _cells(line: str, apart: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"\t" if apart == "\t" else " +", line.strip(" \r"))]


def _place(path: Path, named: str, flag: str, width: int, default: int) -> int:
    if not named:
        return default
    if not named.isdecimal() or not 1 <= int(named) <= width:
        raise fault(
            path,
            1,
            "columns of CoNLL-style files have numbers, not names",
            got=f"{flag} {named}",
            fix=f"give a number from 1 to {width}",
        )
    return int(named) - 1


def _from_objects(table: Table, named: Columns) -> Sentences:
    words_name = named.text or _usual(table, WORDS)
    tags_name = named.label or _usual(table, TAGS)
    for name in (words_name or WORDS[0], tags_name or words_name):
        if name not in table.header:
            raise fault(
                table.path,
                1,
                f"no key {name!r}",
                got=f"keys: {', '.join(table.header)}",
                fix='give objects such as {"tokens": ["…"], "tags": ["O"]}, or name the keys: '
                "--text A --label L",
            )
    words = [_list(table, line, words_name, cell) for line, cell in _column(table, words_name)]
    if not tags_name or all(cell is None for cell in table.column(tags_name)):
        return Sentences(table.path, words, None, table.lines, False)
    tags = [_list(table, line, tags_name, cell) for line, cell in _column(table, tags_name)]
    for line, some, their in zip(table.lines, words, tags, strict=True):
        if len(some) != len(their):
            raise fault(
                table.path,
                line,
                "not as many tags as words",
                got=f"{len(some)} words, {len(their)} tags",
                fix="give every word one tag",
            )
    return Sentences(table.path, words, tags, table.lines, False)


def _column(table: Table, name: str) -> list[tuple[int, Any]]:
    return list(zip(table.lines, table.column(name), strict=True))


def _usual(table: Table, names: Sequence[str]) -> str:
    by_case = {name.lower(): name for name in table.header}
    return next((by_case[name] for name in names if name in by_case), "")


def _list(table: Table, line: int, name: str, cell: Any) -> list[str]:
    plain = isinstance(cell, list) and not any(
        isinstance(one, list | dict | None.__class__) for one in cell
    )
    if not plain or not cell:
        raise fault(
            table.path,
            line,
            f"{name!r} is no list of words",
            got=as_text(cell)[:60] or "nothing",
            fix='give a list, such as ["New", "York"]',
        )
    for one in cell:
        check_length(table.path, line, name, one)
    return [one if isinstance(one, str) else as_text(one) for one in cell]


def need_tags(sentences: Sentences) -> list[list[str]]:
    """The tags of a file where every word must have one."""
    if sentences.tags is None:
        raise fault(
            sentences.path,
            sentences.lines[0],
            "words without tags",
            got=" ".join(sentences.words[0])[:60],
            fix="give a second column with tags, or a list of them; --label names it",
        )
    return sentences.tags


def tags_of(sentences: Sentences) -> tuple[str, ...]:
    """The different tags of a training file."""
    tags = in_order([tag for some in need_tags(sentences) for tag in some])
    if len(tags) < 2:
        raise UserError(
            f"{sentences.path}: every word has the same tag, so there is nothing to learn",
            got=f"{tags[0]!r} from line {sentences.lines[0]} on",
            fix="give words of two tags at least, or name another column with --label",
        )
    return tags


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


def tag_collating(
    rows: Rows, firsts: Sequence[NDArray[np.int64]], tags: Sequence[NDArray[np.int64]], pad: int
) -> Callable[[NDArray[np.int64]], Tagged]:
    """From numbers of sentences to a batch that is as long as its longest."""
    plain = collating(rows, pad, "classes")

    def collate(numbers: NDArray[np.int64]) -> Tagged:
        batch = plain(numbers)
        labels_BL = torch.full_like(batch.ids_BL, UNTAGGED)
        for row, number in enumerate(numbers):
            seen_W = firsts[number] >= 0
            labels_BL[row, firsts[number][seen_W]] = torch.from_numpy(tags[number][seen_W])
        return Tagged(batch.ids_BL, batch.attention_BL, batch.types_BL, labels_BL)

    return collate


class Tagger(nn.Module):
    """A network of transformers' token-classification classes, with the head it comes with."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.base_model_prefix = f"network.{network.base_model_prefix}"

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
    try:
        from seqeval import metrics
    except ImportError as error:
        raise UserError(
            "entities are scored by seqeval, which is not installed",
            got=str(error),
            fix='pip install "electrify[finetune]"',
        ) from error
    return metrics
