"""Questions and contexts as windows of tokens, with the answer's place in each.

A window is [CLS] question [SEP] part of the context [SEP]. After google-research/electra
finetune/qa: a question has at most 64 tokens, the next window begins `stride` tokens later, and a
window that does not hold the whole answer is kept and points at [CLS].
"""

# B batch, L length

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electrify.errors import UserError
from electrify.finetuning.batches import padded
from electrify.finetuning.encoder import Encoder
from electrify.finetuning.squad.data import Placed, Question, placed
from electrify.finetuning.squad.metrics import normalised

LONGEST_QUESTION = 64
MOST_MISSES = 0.5
"""Answers may begin or end inside a token, a few in a hundred; misplaced tokens miss nearly all."""


class WindowBatch(NamedTuple):
    """Some windows as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor
    """0 in the question, 1 in the context, where the tokenizer tells them apart."""
    allowed_BL: Tensor
    """1 where an answer may begin or end: [CLS], the context, and what ends it, as officially."""
    starts_B: Tensor
    """The token where the answer begins; 0 where there is none."""
    ends_B: Tensor
    """The last token of the answer."""
    impossible_B: Tensor
    """1 if the question has no answer; 0 if merely this window has not."""


class Tokens(NamedTuple):
    """A text's tokens without special ones, and which characters each stands for."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class WindowFrame(NamedTuple):
    """The special tokens round two texts, as ids and types: before, between and after them."""

    ids: tuple[list[int], list[int], list[int]]
    types: tuple[list[int], list[int], list[int]]
    text_types: tuple[int, int]

    @property
    def size(self) -> int:
        """How many special tokens a window has."""
        return sum(map(len, self.ids))


class Window(NamedTuple):
    """`tokens` tokens of the context of a question, from token `start`."""

    question: int
    start: int
    tokens: int
    answer: tuple[int, int] | None = None
    """First and last token of the answer in the context, if the window has all of it."""


@dataclass
class Windows:
    """All windows of some questions."""

    questions: list[Question]
    asked: list[Tokens]
    contexts: list[Tokens]
    """Of every question; questions of one paragraph share one."""
    frame: WindowFrame
    padding: int
    windows: list[Window] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def lengths(self) -> list[int]:
        """Tokens of every window."""
        return [
            self.offset(window) + window.tokens + len(self.frame.ids[2]) for window in self.windows
        ]

    def offset(self, window: Window) -> int:
        """The place of the context's first token in a window."""
        before, between, _ = self.frame.ids
        return len(before) + len(self.asked[window.question].ids) + len(between)

    def row(self, window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A window's ids and types."""
        question = self.asked[window.question].ids
        context = self.contexts[window.question].ids[window.start : window.start + window.tokens]
        (a, b, c), (x, y, z), (first, second) = self.frame
        types = [*x, *[first] * len(question), *y, *[second] * len(context), *z]
        return np.concatenate([a, question, b, context, c]).astype(np.int64), np.asarray(types)

    def target(self, window: Window) -> tuple[int, int]:
        """Where in a window the answer begins and ends."""
        if window.answer is None:
            return 0, 0
        shift = self.offset(window) - window.start
        return window.answer[0] + shift, window.answer[1] + shift

    def text(self, question: int, first: int, last: int) -> str:
        """The characters of some tokens of a question's context."""
        context = self.contexts[question]
        return self.questions[question].context[context.starts[first] : context.ends[last]].strip()

    def collate(self, numbers: NDArray[np.int64]) -> WindowBatch:
        """Some windows as tensors, padded to the longest of them."""
        chosen = [self.windows[number] for number in numbers]
        rows = [self.row(window) for window in chosen]
        ids = [np.asarray(ids) for ids, _ in rows]
        tensors = padded(ids, [np.asarray(types) for _, types in rows], self.padding)
        allowed = np.zeros(tensors[0].shape, np.float32)
        for i, window in enumerate(chosen):
            allowed[i, self.offset(window) : len(ids[i])] = allowed[i, 0] = 1
        targets = torch.tensor([self.target(window) for window in chosen])
        impossible = [float(self.questions[window.question].impossible) for window in chosen]
        return WindowBatch(
            *tensors,
            torch.from_numpy(allowed),
            targets[:, 0],
            targets[:, 1],
            torch.tensor(impossible),
        )


def build_windows(
    encoder: Encoder, questions: list[Question], length: int, stride: int, learn: bool
) -> Windows:
    """Windows of at most `length` tokens; to learn from, with answers, or else to be answered."""
    unplaced: list[Placed | None] = [None] * len(questions)
    kept, places, counts = _answered(questions) if learn else (questions, unplaced, {})
    asked = [_cut(tokens) for tokens in tokens_with_offsets(encoder, [q.text for q in kept])]
    paragraphs = list(dict.fromkeys(q.context for q in kept))
    tokens = dict(zip(paragraphs, tokens_with_offsets(encoder, paragraphs), strict=True))
    made = Windows(kept, asked, [tokens[q.context] for q in kept], frame_of(encoder), encoder.pad)
    if stride < 1:
        raise UserError("--stride is out of range", got=f"{stride}", fix="give 128")
    for number, (context, place) in enumerate(zip(made.contexts, places, strict=True)):
        room = length - made.frame.size - len(asked[number].ids)
        if room < 1:
            raise UserError(
                "no room for the context beside a question",
                got=f"{length} tokens",
                fix=f"--length {LONGEST_QUESTION + made.frame.size + stride} or more",
            )
        answer = _tokens_at(context, place) if place else None
        if place and not answer:
            counts["dropped"] += 1  # its characters are in no token
            continue
        for start, count in spans(len(context.ids), room, stride):
            inside = answer and start <= answer[0] and answer[1] < start + count
            made.windows.append(Window(number, start, count, answer if inside else None))
    if not made.windows:
        got = f"{len(questions):,} questions, none with an answer that is in its context"
        raise UserError("there is nothing to learn", got=got, fix="give SQuAD's own file")
    if learn:
        counts["inexact"] = check_answers(encoder, made)
    learned = len({window.question for window in made.windows})
    made.counts = {"questions": learned, "windows": len(made.windows), **counts}
    return made


def spans(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """First token and number of tokens of the windows over a context, where `room` fit.

    >>> spans(500, 499, 128)
    [(0, 499), (128, 372)]
    """
    found = [(0, min(tokens, room))]
    while sum(found[-1]) < tokens:
        start = found[-1][0] + min(room, stride)
        found.append((start, min(tokens - start, room)))
    return found


def _answered(
    questions: list[Question],
) -> tuple[list[Question], list[Placed | None], dict[str, int]]:
    """Questions to learn from, where their answers are, and how many the file misplaced."""
    found = [None if question.impossible else placed(question) for question in questions]
    kept = [
        (question, place)
        for question, place in zip(questions, found, strict=True)
        if place or question.impossible
    ]
    counts = {
        "repaired": sum(bool(place and place.moved) for _, place in kept),
        "dropped": len(questions) - len(kept),
    }
    return [question for question, _ in kept], [place for _, place in kept], counts


def tokens_with_offsets(encoder: Encoder, texts: Sequence[str]) -> list[Tokens]:
    """The tokens of every text, whose characters never include white space at their ends."""
    backend = encoder.tokenizer.backend_tokenizer
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    return [_trimmed(text, one) for text, one in zip(texts, encodings, strict=True)]


def _trimmed(text: str, encoding: Any) -> Tokens:
    starts, ends = [], []
    for start, end in encoding.offsets:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        starts.append(start)
        ends.append(end)
    return Tokens(*(np.asarray(part, np.int64) for part in (encoding.ids, starts, ends)))


def _cut(tokens: Tokens) -> Tokens:
    return Tokens(*(part[:LONGEST_QUESTION] for part in tokens))


def frame_of(encoder: Encoder) -> WindowFrame:
    """What a tokenizer puts round two texts, found by giving it two."""
    both = encoder.tokenizer.backend_tokenizer.encode("a", "a")
    sides = both.sequence_ids
    first, second = sides.index(0), sides.index(1)
    cuts = (0, first), (first + sides.count(0), second), (second + sides.count(1), len(sides))
    ids, types = ([part[a:b] for a, b in cuts] for part in (both.ids, both.type_ids))
    return WindowFrame(
        (ids[0], ids[1], ids[2]),
        (types[0], types[1], types[2]),
        (both.type_ids[first], both.type_ids[second]),
    )


def _tokens_at(context: Tokens, place: Placed) -> tuple[int, int] | None:
    """The first and the last token that have characters of an answer."""
    first = int(np.searchsorted(context.ends, place.start, side="right"))
    last = int(np.searchsorted(context.starts, place.end, side="left")) - 1
    return (first, last) if first <= last else None


def check_answers(encoder: Encoder, made: Windows) -> int:
    """How many windows' answers are not those of the file, as their ends are inside tokens.

    Two ways lead from a window to an answer: the characters of the tokens it points at, and what
    these tokens spell. If either goes wrong for most, offsets or windows are wrong: an error.
    """
    pointing = [window for window in made.windows if window.answer]
    if not pointing:
        return 0
    texts = [made.text(window.question, *window.answer) for window in pointing if window.answer]
    targets = [made.target(window) for window in pointing]
    ids = [
        made.row(window)[0][first : last + 1].tolist()
        for window, (first, last) in zip(pointing, targets, strict=True)
    ]
    spelled = encoder.tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=False)
    golds = [made.questions[window.question].answers[0].text for window in pointing]
    inexact = sum(normalised(a) != normalised(b) for a, b in zip(texts, golds, strict=True))
    misspelled = sum(_letters(a) != _letters(b) for a, b in zip(texts, spelled, strict=True))
    for misses, what in (
        (inexact, "the tokenizer's offsets do not lead back to the answers"),
        (misspelled, "the tokens of the answers do not spell them"),
    ):
        if misses > MOST_MISSES * len(pointing):
            worst = next(
                f"{text!r}, spelled {said!r}, for {gold!r}"
                for text, said, gold in zip(texts, spelled, golds, strict=True)
                if normalised(text) != normalised(gold) or _letters(text) != _letters(said)
            )
            got = f"{misses:,} of {len(pointing):,} wrong, such as {worst}"
            fix = "take an encoder whose tokenizer.json knows this language and has offsets"
            raise UserError(what, got=got, fix=fix)
    return inexact


def _letters(text: str) -> str:
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(filter(str.isalnum, apart))
