"""Split questions and contexts into windows of tokens, with the position of the answer in each.

A window is [CLS] question [SEP] part of the context [SEP]. After google-research/electra
finetune/qa: a question has at most 64 tokens, the next window starts `stride` tokens later, and a
window that does not contain the complete answer is kept and points at [CLS].
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
from electrify.finetuning.squad.data import AnswerSpan, Question, locate_answer
from electrify.finetuning.squad.metrics import normalize_answer

MAX_QUESTION_TOKENS = 64
MAX_MISMATCHES = 0.5
"""A few percent of answers start or end inside a token; misaligned tokens miss nearly all."""


class WindowBatch(NamedTuple):
    """A batch of windows as tensors."""

    ids_BL: Tensor
    attention_BL: Tensor
    """1 for real tokens, 0 for padding."""
    types_BL: Tensor
    """0 in the question, 1 in the context, if the tokenizer distinguishes them."""
    allowed_BL: Tensor
    """1 where an answer may start or end: [CLS], the context and its final [SEP], as officially."""
    starts_B: Tensor
    """The first token of the answer; 0 if there is none."""
    ends_B: Tensor
    """The last token of the answer."""
    impossible_B: Tensor
    """1 if the question has no answer; 0 if only this window has none."""


class TokenizedText(NamedTuple):
    """The tokens of a text without special ones, and the characters of each."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class WindowFrame(NamedTuple):
    """The ids and types of the special tokens before, between and after two texts."""

    ids: list[list[int]]
    types: list[list[int]]
    text_types: tuple[int, int]

    @property
    def size(self) -> int:
        """Return the number of special tokens in a window."""
        return sum(map(len, self.ids))


class Window(NamedTuple):
    """A question with `tokens` tokens of its context, from token `start`."""

    question: int
    start: int
    tokens: int
    answer: tuple[int, int] | None = None
    """First and last token of the answer in the context, if the window contains all of it."""


@dataclass
class Windows:
    """All windows of a list of questions."""

    questions: list[Question]
    question_tokens: list[TokenizedText]
    contexts: list[TokenizedText]
    """The context of every question; questions of one paragraph share one."""
    frame: WindowFrame
    pad_id: int
    windows: list[Window] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of every window."""
        return [
            self.offset(window) + window.tokens + len(self.frame.ids[2]) for window in self.windows
        ]

    def offset(self, window: Window) -> int:
        """Return the position of the first context token in a window."""
        before, between, _ = self.frame.ids
        return len(before) + len(self.question_tokens[window.question].ids) + len(between)

    def row(self, window: Window) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids and types of a window."""
        question = self.question_tokens[window.question].ids
        context = self.contexts[window.question].ids[window.start : window.start + window.tokens]
        (a, b, c), (x, y, z), (first, second) = self.frame
        types = [*x, *[first] * len(question), *y, *[second] * len(context), *z]
        return np.concatenate([a, question, b, context, c]).astype(np.int64), np.asarray(types)

    def target(self, window: Window) -> tuple[int, int]:
        """Return the first and last position of the answer in a window."""
        if window.answer is None:
            return 0, 0
        shift = self.offset(window) - window.start
        return window.answer[0] + shift, window.answer[1] + shift

    def text(self, question: int, first: int, last: int) -> str:
        """Return the text of a span of context tokens."""
        context = self.contexts[question]
        return self.questions[question].context[context.starts[first] : context.ends[last]].strip()

    def collate(self, numbers: NDArray[np.int64]) -> WindowBatch:
        """Return a batch of windows, padded to the longest of them."""
        batch = [self.windows[number] for number in numbers]
        ids, types = zip(*map(self.row, batch), strict=True)
        tensors = padded(ids, types, self.pad_id)
        allowed = np.zeros(tensors[0].shape, np.float32)
        for i, window in enumerate(batch):
            allowed[i, self.offset(window) : len(ids[i])] = allowed[i, 0] = 1
        targets = torch.tensor([self.target(window) for window in batch])
        impossible = [float(self.questions[window.question].impossible) for window in batch]
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
    """Return windows of at most `length` tokens, with answers if they are to learn from."""
    if stride < 1:
        raise UserError("--stride must be at least 1", got=f"{stride}", fix="use 128")
    pairs = [(q, locate_answer(q) if learn and not q.impossible else None) for q in questions]
    counts: dict[str, int] = {}
    if learn:
        pairs = [(question, span) for question, span in pairs if span or question.impossible]
        repaired = sum(bool(span and span.moved) for _, span in pairs)
        counts = {"repaired": repaired, "dropped": len(questions) - len(pairs)}
    kept = [question for question, _ in pairs]
    asked = [
        TokenizedText(*(part[:MAX_QUESTION_TOKENS] for part in tokens))
        for tokens in tokens_with_offsets(encoder, [question.text for question in kept])
    ]
    paragraphs = list(dict.fromkeys(q.context for q in kept))
    tokens = dict(zip(paragraphs, tokens_with_offsets(encoder, paragraphs), strict=True))
    contexts = [tokens[q.context] for q in kept]
    windows = Windows(kept, asked, contexts, find_frame(encoder), encoder.pad)
    for number, (context, (_, span)) in enumerate(zip(contexts, pairs, strict=True)):
        room = length - windows.frame.size - len(asked[number].ids)
        if room < 1:
            raise UserError(
                "--length leaves no room for the context next to a question",
                got=f"{length} tokens",
                fix=f"use --length {MAX_QUESTION_TOKENS + windows.frame.size + stride} or more",
            )
        answer = _token_span(context, span) if span else None
        if span and not answer:
            counts["dropped"] += 1  # no token contains its characters
            continue
        for start, count in window_spans(len(context.ids), room, stride):
            inside = answer and start <= answer[0] and answer[1] < start + count
            windows.windows.append(Window(number, start, count, answer if inside else None))
    if not windows.windows:
        got = f"{len(questions):,} questions, none with an answer in its context"
        raise UserError("there is nothing to learn", got=got, fix="use SQuAD's original file")
    if learn:
        counts["inexact"] = check_alignment(encoder, windows)
    learned = len({window.question for window in windows.windows})
    windows.counts = {"questions": learned, "windows": len(windows.windows), **counts}
    return windows


def window_spans(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return the first token and the number of tokens of each window over a context.

    A window has room for `room` tokens.

    >>> window_spans(500, 499, 128)
    [(0, 499), (128, 372)]
    """
    spans = [(0, min(tokens, room))]
    while sum(spans[-1]) < tokens:
        start = spans[-1][0] + min(room, stride)
        spans.append((start, min(tokens - start, room)))
    return spans


def tokens_with_offsets(encoder: Encoder, texts: Sequence[str]) -> list[TokenizedText]:
    """Tokenize texts, with offsets that exclude whitespace at the start and end of a token."""
    backend = encoder.tokenizer.backend_tokenizer
    encodings = backend.encode_batch(list(texts), add_special_tokens=False)
    return [_trim(*pair) for pair in zip(texts, encodings, strict=True)]


def _trim(text: str, encoding: Any) -> TokenizedText:
    starts, ends = [], []
    for start, end in encoding.offsets:
        token = text[start:end].lstrip()
        starts.append(end - len(token))
        ends.append(end - len(token) + len(token.rstrip()))
    return TokenizedText(*(np.asarray(part, np.int64) for part in (encoding.ids, starts, ends)))


def find_frame(encoder: Encoder) -> WindowFrame:
    """Return the special tokens a tokenizer adds to a pair of texts, found by tokenizing one."""
    pair = encoder.tokenizer.backend_tokenizer.encode("a", "a")
    sides = pair.sequence_ids
    first, second = sides.index(0), sides.index(1)
    cuts = (0, first), (first + sides.count(0), second), (second + sides.count(1), len(sides))
    ids, types = ([part[a:b] for a, b in cuts] for part in (pair.ids, pair.type_ids))
    return WindowFrame(ids, types, (pair.type_ids[first], pair.type_ids[second]))


def _token_span(context: TokenizedText, span: AnswerSpan) -> tuple[int, int] | None:
    """Return the first and the last token that contain characters of an answer."""
    first = int(np.searchsorted(context.ends, span.start, side="right"))
    last = int(np.searchsorted(context.starts, span.end, side="left")) - 1
    return (first, last) if first <= last else None


def check_alignment(encoder: Encoder, windows: Windows) -> int:
    """Return how many windows' answers differ from the file's, because they end inside a token.

    The answer of a window is read in two ways: by the offsets of its tokens, and by decoding their
    ids. If either is wrong for most windows, offsets or windows are wrong, which is an error.
    """
    pointing = [window for window in windows.windows if window.answer]
    if not pointing:
        return 0
    texts = [windows.text(window.question, *window.answer) for window in pointing if window.answer]
    targets = [windows.target(window) for window in pointing]
    ids = [
        windows.row(window)[0][first : last + 1].tolist()
        for window, (first, last) in zip(pointing, targets, strict=True)
    ]
    decoded = encoder.tokenizer.backend_tokenizer.decode_batch(ids, skip_special_tokens=False)
    golds = [windows.questions[window.question].answers[0].text for window in pointing]
    wrong_text = [
        normalize_answer(a) != normalize_answer(b) for a, b in zip(texts, golds, strict=True)
    ]
    wrong_ids = [_letters(a) != _letters(b) for a, b in zip(texts, decoded, strict=True)]
    for wrong, what in (
        (wrong_text, "the tokenizer's offsets do not lead back to the answers"),
        (wrong_ids, "the tokens of the answers do not decode to them"),
    ):
        if sum(wrong) > MAX_MISMATCHES * len(pointing):
            row = [a or b for a, b in zip(wrong_text, wrong_ids, strict=True)].index(True)
            example = f"{texts[row]!r}, decoded {decoded[row]!r}, for {golds[row]!r}"
            got = f"{sum(wrong):,} of {len(pointing):,} wrong, such as {example}"
            fix = "use an encoder whose tokenizer.json supports this language and has offsets"
            raise UserError(what, got=got, fix=fix)
    return sum(wrong_text)


def _letters(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(filter(str.isalnum, decomposed))
