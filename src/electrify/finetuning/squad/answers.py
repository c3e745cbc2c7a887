"""From the candidates of every window to the answers of every question.

After google-research/electra finetune/qa/qa_metrics.py: of all windows, spans of at most 30 tokens
that begin where the window is the one with the most context, the 20 best with different texts. The
text is cut from the context by the tokens' offsets, so nothing has to be aligned again.
"""

# N candidates, each (start, end, score of start, score of end); W windows, T tokens of a context

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.finetuning.squad.windows import Window, Windows

BEST = 20
LONGEST_ANSWER = 30


class SpanAnswer(NamedTuple):
    """A text and the scores of its ends."""

    text: str
    start: float
    end: float

    @property
    def score(self) -> float:
        """The higher the likelier."""
        return self.start + self.end


class Answered(NamedTuple):
    """What a question got."""

    answers: list[SpanAnswer]
    """The best first; never none."""
    null: float
    """The score of "no answer": the lowest of all windows."""

    @property
    def prediction(self) -> str:
        """The best answer that is one."""
        return self.answers[0].text


NO_ANSWER = SpanAnswer("", 0.0, 0.0)
"""Where no candidate is an answer."""


def decode(made: Windows, candidates: Sequence[NDArray[np.float32]]) -> list[Answered]:
    """The answers of every question, from the candidates of every window."""
    numbers: list[list[int]] = [[] for _ in made.questions]
    for number, window in enumerate(made.windows):
        numbers[window.question].append(number)
    return [
        _answered(made, question, [made.windows[n] for n in own], [candidates[n] for n in own])
        for question, own in enumerate(numbers)
    ]


def _answered(
    made: Windows, question: int, windows: list[Window], candidates: list[NDArray[np.float32]]
) -> Answered:
    owner_T = most_context([(window.start, window.tokens) for window in windows])
    found = []
    for place, (window, rows_N4) in enumerate(zip(windows, candidates, strict=True)):
        first_N, last_N = (rows_N4[1:, :2].astype(np.int64) - made.offset(window)).T
        fits_N = (first_N >= 0) & (last_N < window.tokens)
        fits_N &= (first_N <= last_N) & (last_N - first_N < LONGEST_ANSWER)
        rows = np.flatnonzero(fits_N)
        rows = rows[owner_T[first_N[rows] + window.start] == place]
        found += [
            (
                first_N[row] + window.start,
                last_N[row] + window.start,
                *rows_N4[1 + row, 2:].tolist(),
            )
            for row in rows
        ]
    answers: dict[str, SpanAnswer] = {}
    for first, last, start, end in sorted(found, key=lambda span: -(span[2] + span[3])):
        text = made.text(question, first, last)
        if text:
            answers.setdefault(text, SpanAnswer(text, start, end))
        if len(answers) == BEST:
            break
    null = min(float(rows_N4[0, 2] + rows_N4[0, 3]) for rows_N4 in candidates)
    return Answered(list(answers.values()) or [NO_ANSWER], null)


def most_context(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """For every token of a context, the window in which least is missing on its poorer side.

    Longer windows win by a hundredth a token, the earlier one on ties, as officially.

    >>> most_context([(0, 5), (2, 5)]).tolist()
    [0, 0, 0, 0, 1, 1, 1]
    """
    token_T = np.arange(max(start + count for start, count in spans))
    scores_WT = np.stack(
        [
            np.where(
                (token_T >= start) & (token_T < start + count),
                np.minimum(token_T - start, start + count - 1 - token_T) + 0.01 * count,
                -np.inf,
            )
            for start, count in spans
        ]
    )
    best_T: NDArray[np.int64] = scores_WT.argmax(axis=0)
    return best_T


def n_best(answered: Answered) -> list[dict[str, str | float]]:
    """The answers of a question as the official nbest_predictions.json has them."""
    scores = np.asarray([answer.score for answer in answered.answers])
    weights = np.exp(scores - scores.max())
    return [
        {
            "text": answer.text,
            "probability": float(weight),
            "start_logit": answer.start,
            "end_logit": answer.end,
        }
        for answer, weight in zip(answered.answers, weights / weights.sum(), strict=True)
    ]
