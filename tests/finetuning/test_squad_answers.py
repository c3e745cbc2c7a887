"""Decoding: which spans count, by which window, and in which order, against a plain search."""

import numpy as np
import pytest
from tests.finetuning.squad_files import question

from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.squad.answers import (
    LONGEST_ANSWER,
    Answered,
    SpanAnswer,
    decode,
    most_context,
    n_best,
)
from electrify.finetuning.squad.windows import build_windows, spans


def plain_most_context(windows, token):
    """The window whose smaller side is largest, plus a hundredth of its length; the first wins."""
    scored = [
        (min(token - start, start + count - 1 - token) + 0.01 * count, -number)
        for number, (start, count) in enumerate(windows)
        if start <= token < start + count
    ]
    return -max(scored)[1]


@pytest.mark.parametrize(
    ("tokens", "room", "stride"), [(100, 30, 7), (41, 30, 10), (1000, 499, 128)]
)
def test_the_window_with_most_context(tokens, room, stride):
    windows = spans(tokens, room, stride)
    assert most_context(windows).tolist() == [
        plain_most_context(windows, token) for token in range(tokens)
    ]


@pytest.fixture
def windows(encoder_folder):
    """A question over several windows, every token a word."""
    encoder = open_encoder(str(encoder_folder))
    made = build_windows(encoder, [question("kata " * 70, None)], 64, 20, learn=False)
    assert len(made.windows) > 1
    assert len(made.contexts[0].ids) == 70
    return made


def rows(made, number, *candidates, null=(0.0, 0.0)):
    """Candidates by tokens of the context, as a head gives them for a window."""
    window = made.windows[number]
    shift = made.offset(window) - window.start
    found = [(0, 0, *null)] + [(a + shift, b + shift, s, e) for a, b, s, e in candidates]
    return np.asarray(found, dtype=np.float32)


def decoded(made, *per_window):
    blank = [rows(made, number) for number in range(len(made.windows))]
    for number, some in per_window:
        blank[number] = some
    return decode(made, blank)[0]


def length_of(answer):
    return len(answer.text.split())


def test_only_spans_that_can_be_answers_count(windows):
    found = decoded(
        windows,
        (0, rows(
            windows, 0,
            (5, 4, 9, 9),  # backwards
            (-4, 3, 9, 9),  # begins in the question
            (5, 5 + LONGEST_ANSWER, 9, 9),  # too long
            (3, windows.windows[0].tokens, 9, 9),  # ends at [SEP]
            (55, 56, 9, 9),  # another window has more context
            (5, 5 + LONGEST_ANSWER - 1, 2, 1),
            (5, 6, 1, 1),
        )),
    )  # fmt: skip
    assert [length_of(answer) for answer in found.answers] == [LONGEST_ANSWER, 2]
    assert [answer.score for answer in found.answers] == [3, 2]


def test_windows_compete_and_a_text_counts_once(windows):
    last = len(windows.windows) - 1
    found = decoded(
        windows,
        (0, rows(windows, 0, (1, 2, 1, 1), (1, 3, 0, 1), null=(3.0, 1.0))),
        (last, rows(windows, last, (68, 69, 4, 1), (69, 69, 5, 1), null=(1.0, 1.5))),
    )
    assert [(length_of(a), a.score) for a in found.answers] == [(1, 6), (2, 5), (3, 1)]
    assert found.null == 2.5  # the lowest of the windows


def test_twenty_are_kept_and_nothing_is_an_answer_too(windows):
    many = [(0, n, 0, -n) for n in range(29)]
    assert len(decoded(windows, (0, rows(windows, 0, *many))).answers) == 20
    assert decoded(windows).answers == [SpanAnswer("", 0.0, 0.0)]


def test_probabilities_are_a_softmax_over_the_n_best():
    made = n_best(Answered([SpanAnswer("a", 900.0, 100.0), SpanAnswer("b", 999.0, 0.0)], 0.0))
    assert [entry["text"] for entry in made] == ["a", "b"]
    assert made[0]["probability"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert sum(entry["probability"] for entry in made) == pytest.approx(1)
    assert set(made[0]) == {"text", "probability", "start_logit", "end_logit"}
