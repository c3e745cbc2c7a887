"""How well vectors find the second text of a pair among those of all pairs."""

# Q queries, C candidates, H width

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

QUERIES_AT_ONCE = 1_024
TIE = 1e-9
"""Cosines closer than this are equal; a text has the mean rank of those that are."""


def unit_rows(vectors_NH: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return vectors scaled to length 1; a vector of zeros stays as it is."""
    vectors = vectors_NH.astype(np.float64)
    norms: NDArray[np.float64] = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: NDArray[np.float64] = vectors / np.where(norms > 0, norms, 1)
    return unit


def retrieval_scores(
    first: Sequence[str],
    second: Sequence[str],
    first_QH: NDArray[np.floating],
    second_QH: NDArray[np.floating],
) -> dict[str, float]:
    """Return accuracy and mean reciprocal rank of each pair's second text, by cosine similarity.

    The candidates are all distinct second texts. If a first text occurs in several pairs, their
    other second texts are right, too, and do not count against it.

    >>> eye = np.eye(2)
    >>> retrieval_scores("ab", "xy", eye, eye[::-1])
    {'accuracy': 0.0, 'mrr': 0.5}
    >>> retrieval_scores("abc", "xyz", np.ones((3, 2)), np.ones((3, 2)))
    {'accuracy': 0.0, 'mrr': 0.5}
    """
    first_row: dict[str, int] = {}
    for row, text in enumerate(second):
        first_row.setdefault(text, row)
    candidates = {text: number for number, text in enumerate(first_row)}
    chosen = list(first_row.values())
    gold_Q = np.array([candidates[text] for text in second])
    right: dict[str, set[int]] = defaultdict(set)
    for query, answer in zip(first, gold_Q.tolist(), strict=True):
        right[query].add(answer)
    queries_QH, candidates_CH = unit_rows(first_QH), unit_rows(second_QH[chosen])
    ranks = []
    for start in range(0, len(first), QUERIES_AT_ONCE):
        similar_QC = queries_QH[start : start + QUERIES_AT_ONCE] @ candidates_CH.T
        for row, similar_C in enumerate(similar_QC, start=start):
            own = similar_C[gold_Q[row]]
            similar_C[list(right[first[row]])] = -np.inf
            ties = int((abs(similar_C - own) <= TIE).sum())
            ranks.append(1 + int((similar_C > own + TIE).sum()) + ties / 2)
    ranks_Q = np.array(ranks)
    return {"accuracy": float((ranks_Q == 1).mean()), "mrr": float((1 / ranks_Q).mean())}
