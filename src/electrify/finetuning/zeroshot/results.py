"""What zero-shot classification found: labels, scores, and the accuracy beside that of guessing."""

# N texts, C labels

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from electrify.finetuning.own.files import JSON_LINES
from electrify.finetuning.stats import wilson


class ZeroShotResult(TypedDict, total=False):
    """The result of `electrify classify`; the scores are those of files with labels."""

    rows: int
    predictions: list[str]
    """The label of every text."""
    scores: list[dict[str, float]]
    """The mean log-probability of the tokens of each label, for every text; with --calibrate,
    minus that without text."""
    accuracy: float
    interval: tuple[float, float]
    """95 % Wilson interval of the accuracy."""
    chance: float
    """The accuracy of guessing: one divided by the number of labels."""
    majority: float
    """The accuracy of always predicting the most frequent label of the file."""
    majority_label: str


def zero_shot_result(
    labels: Sequence[str], scores_NC: NDArray[np.float64], gold: list[str] | None
) -> ZeroShotResult:
    """Return the best label of every text and, with gold labels, the accuracy."""
    predictions = [labels[best] for best in scores_NC.argmax(axis=1)]
    result = ZeroShotResult(
        rows=len(predictions),
        predictions=predictions,
        scores=[dict(zip(labels, scores_C, strict=True)) for scores_C in scores_NC.tolist()],
    )
    if gold is None:
        return result
    accuracy = float(np.mean([p == g for p, g in zip(predictions, gold, strict=True)]))
    label, count = Counter(gold).most_common(1)[0]
    return ZeroShotResult(
        **result,
        accuracy=accuracy,
        interval=wilson(accuracy, len(gold)),
        chance=1 / len(labels),
        majority=count / len(gold),
        majority_label=label,
    )


def added_cells(result: ZeroShotResult, suffix: str) -> list[dict[str, Any]]:
    """Return the columns that are added to each row."""
    pairs = zip(result["predictions"], result["scores"], strict=True)
    if suffix in JSON_LINES:
        return [{"prediction": label, "scores": scores} for label, scores in pairs]
    return [
        {"prediction": label, **{f"score_{name}": score for name, score in scores.items()}}
        for label, scores in pairs
    ]


def describe_text(result: ZeroShotResult) -> str:
    """Return the score of each label for a single text, the best first."""
    scores = sorted(result["scores"][0].items(), key=lambda pair: -pair[1])
    width = max(len(label) for label, _ in scores)
    return "\n".join(f"{label:<{width}}  {score:8.4f}" for label, score in scores)


def describe_rows(result: ZeroShotResult, labels: Sequence[str]) -> str:
    """Return how often each label was predicted and, with gold labels, the accuracy."""
    counts = Counter(result["predictions"])
    predicted = ", ".join(f"{label} {counts[label]:,}" for label in labels)
    lines = [f"{result['rows']:,} rows; predicted: {predicted}"]
    if "accuracy" in result:
        low, high = result["interval"]
        lines += [
            f"accuracy {result['accuracy']:.1%} [{low:.1%} {high:.1%}]",
            f"guessing: {result['chance']:.1%}; always {result['majority_label']!r}: "
            f"{result['majority']:.1%}",
        ]
        if low <= max(result["chance"], result["majority"]):
            lines.append("the model does no better than guessing or a constant answer")
    return "\n".join(lines)
