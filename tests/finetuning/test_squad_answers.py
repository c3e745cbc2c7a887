"""Decoding: which spans count, in which window and order, compared with a plain search."""

import tracemalloc

import numpy as np
import pytest
from tests.finetuning.squad_files import question

from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.squad.answers import (
    MAX_ANSWER_TOKENS,
    QuestionAnswers,
    SpanAnswer,
    decode,
    max_context_windows,
    n_best,
)
from electrify.finetuning.squad.windows import build_windows, window_spans


def plain_most_context(windows, token):
    """Return the window whose smaller side plus 0.01 of its length is largest; the first wins."""
    scored = [
        (min(token - start, start + count - 1 - token) + 0.01 * count, -number)
        for number, (start, count) in enumerate(windows)
        if start <= token < start + count
    ]
    return -max(scored)[1]


@pytest.mark.parametrize(
    ("tokens", "room", "stride"), [(100, 30, 7), (41, 30, 10), (1000, 499, 128)]
)
def test_the_window_with_the_maximum_context(tokens, room, stride):
    windows = window_spans(tokens, room, stride)
    assert max_context_windows(windows).tolist() == [
        plain_most_context(windows, token) for token in range(tokens)
    ]


@pytest.fixture
def windows(encoder_folder):
    """Return a question over several windows in which every token is a word."""
    encoder = open_encoder(str(encoder_folder))
    result = build_windows(encoder, [question("kata " * 70, None)], 64, 20, learn=False)
    assert len(result.windows) > 1
    assert len(result.contexts[0].ids) == 70
    return result


def rows(windows, number, *candidates, null=(0.0, 0.0)):
    """Return candidates, given as context tokens, as a head gives them for a window."""
    window = windows.windows[number]
    shift = windows.offset(window) - window.start
    found = [(0, 0, *null)] + [(a + shift, b + shift, s, e) for a, b, s, e in candidates]
    return np.asarray(found, dtype=np.float32)


def decoded(windows, *per_window):
    candidates = [rows(windows, number) for number in range(len(windows.windows))]
    for number, given in per_window:
        candidates[number] = given
    return decode(windows, candidates)[0]


def length_of(answer):
    return len(answer.text.split())


def test_only_valid_spans_count(windows):
    found = decoded(
        windows,
        (0, rows(
            windows, 0,
            (5, 4, 9, 9),  # backwards
            (-4, 3, 9, 9),  # starts in the question
            (5, 5 + MAX_ANSWER_TOKENS, 9, 9),  # too long
            (3, windows.windows[0].tokens, 9, 9),  # ends at [SEP]
            (55, 56, 9, 9),  # another window has more context
            (5, 5 + MAX_ANSWER_TOKENS - 1, 2, 1),
            (5, 6, 1, 1),
        )),
    )  # fmt: skip
    assert [length_of(answer) for answer in found.answers] == [MAX_ANSWER_TOKENS, 2]
    assert [answer.score for answer in found.answers] == [3, 2]


def test_windows_compete_and_a_text_counts_once(windows):
    last = len(windows.windows) - 1
    found = decoded(
        windows,
        (0, rows(windows, 0, (1, 2, 1, 1), (1, 3, 0, 1), null=(3.0, 1.0))),
        (last, rows(windows, last, (68, 69, 4, 1), (69, 69, 5, 1), null=(1.0, 1.5))),
    )
    assert [(length_of(a), a.score) for a in found.answers] == [(1, 6), (2, 5), (3, 1)]
    assert found.null == 2.5  # the lowest over the windows


def test_twenty_answers_are_kept_and_an_empty_one_if_there_are_none(windows):
    many = [(0, n, 0, -n) for n in range(29)]
    assert len(decoded(windows, (0, rows(windows, 0, *many))).answers) == 20
    assert decoded(windows).answers == [SpanAnswer("", 0.0, 0.0)]


def test_probabilities_are_a_softmax_over_the_n_best():
    entries = n_best(
        QuestionAnswers([SpanAnswer("a", 900.0, 100.0), SpanAnswer("b", 999.0, 0.0)], 0.0)
    )
    assert [entry["text"] for entry in entries] == ["a", "b"]
    assert entries[0]["probability"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert sum(entry["probability"] for entry in entries) == pytest.approx(1)
    assert set(entries[0]) == {"text", "probability", "start_logit", "end_logit"}


def test_a_long_context_takes_little_memory():
    """The windows of a context times its tokens would be 12 GB."""
    tracemalloc.start()
    try:
        owners = max_context_windows(window_spans(460_000, 400, 128))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(owners) == 460_000
    assert peak < 50e6
