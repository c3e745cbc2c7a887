"""Turn the candidates of every window into the answers of every question.

After google-research/electra finetune/qa/qa_metrics.py: the 20 best spans with distinct texts over
all windows; a span has at most 30 tokens and starts where its window has the maximum context. The
text is sliced from the context by the tokens' offsets, so no realignment is needed.
"""

# N candidates, each (start, end, score of start, score of end)
# T tokens of a context, C of them in a window

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.finetuning.squad.windows import Window, Windows

N_BEST = 20
MAX_ANSWER_TOKENS = 30


class SpanAnswer(NamedTuple):
    """A text and the scores of its start and end."""

    text: str
    start: float
    end: float

    @property
    def score(self) -> float:
        """Return the score of the span."""
        return self.start + self.end


class QuestionAnswers(NamedTuple):
    """The answers of a question."""

    answers: list[SpanAnswer]
    """The best first; never empty."""
    null: float
    """The score of "no answer": the lowest over all windows."""

    @property
    def prediction(self) -> str:
        """Return the text of the best answer."""
        return self.answers[0].text


NO_ANSWER = SpanAnswer("", 0.0, 0.0)
"""The answer of a question without a valid candidate."""


def decode(windows: Windows, candidates: Sequence[NDArray[np.float32]]) -> list[QuestionAnswers]:
    """Return the answers of every question, given the candidates of every window."""
    by_question: list[list[tuple[Window, NDArray[np.float32]]]] = [[] for _ in windows.questions]
    for window, rows_N4 in zip(windows.windows, candidates, strict=True):
        by_question[window.question].append((window, rows_N4))
    return [_decode_question(windows, *entry) for entry in enumerate(by_question)]


def _decode_question(
    windows: Windows, question: int, candidates: list[tuple[Window, NDArray[np.float32]]]
) -> QuestionAnswers:
    owner_T = max_context_windows([(window.start, window.tokens) for window, _ in candidates])
    spans: list[tuple[int, int, float, float]] = []
    for index, (window, rows_N4) in enumerate(candidates):
        first_N, last_N = (rows_N4[1:, :2].astype(np.int64) - windows.offset(window)).T
        valid_N = (first_N >= 0) & (last_N < window.tokens)
        valid_N &= (first_N <= last_N) & (last_N - first_N < MAX_ANSWER_TOKENS)
        rows = np.flatnonzero(valid_N)
        rows = rows[owner_T[first_N[rows] + window.start] == index]
        tokens = first_N[rows] + window.start, last_N[rows] + window.start
        spans += zip(*tokens, *rows_N4[1 + rows, 2:].T.tolist(), strict=True)
    answers: dict[str, SpanAnswer] = {}
    for first, last, start, end in sorted(spans, key=lambda span: -(span[2] + span[3])):
        text = windows.text(question, first, last)
        if text:
            answers.setdefault(text, SpanAnswer(text, start, end))
        if len(answers) == N_BEST:
            break
    null = min(float(rows_N4[0, 2] + rows_N4[0, 3]) for _, rows_N4 in candidates)
    return QuestionAnswers(list(answers.values()) or [NO_ANSWER], null)


def max_context_windows(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return, for every token of a context, the window in which it has the maximum context.

    As in the official code, the context of a token is the smaller of the numbers of tokens on its
    two sides, plus 0.01 per token of the window; the earlier window wins ties.

    >>> max_context_windows([(0, 5), (2, 5)]).tolist()
    [0, 0, 0, 0, 1, 1, 1]
    """
    tokens = max(start + count for start, count in spans)
    highest_T, best_T = np.full(tokens, -np.inf), np.zeros(tokens, np.int64)
    for number, (start, count) in enumerate(spans):
        inside = slice(start, start + count)
        token_C = np.arange(count)
        score_C = np.minimum(token_C, token_C[::-1]) + 0.01 * count
        better_C = score_C > highest_T[inside]
        highest_T[inside][better_C] = score_C[better_C]
        best_T[inside][better_C] = number
    return best_T


def n_best(answers: QuestionAnswers) -> list[dict[str, str | float]]:
    """Return the answers of a question in the format of the official nbest_predictions.json."""
    scores = np.asarray([answer.score for answer in answers.answers])
    weights = np.exp(scores - scores.max())
    return [
        {
            "text": answer.text,
            "probability": float(weight),
            "start_logit": answer.start,
            "end_logit": answer.end,
        }
        for answer, weight in zip(answers.answers, weights / weights.sum(), strict=True)
    ]
