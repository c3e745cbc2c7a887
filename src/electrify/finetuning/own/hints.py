"""Hints on a fine-tuning result: what may hold the model back, and what to try.

They are derived from `result.json` alone. Folders of earlier versions lack some of its fields; what
cannot be checked gives no hint.
"""

from collections.abc import Callable
from typing import Any

MANY_TRUNCATED = 0.05
UNBALANCED = 10
"""Classes are unbalanced if the most frequent has this many times the rows of the rarest."""
MOST_NAMED = 5


def hints(result: dict[str, Any]) -> list[str]:
    """Return the hints that apply to a result."""
    return [hint for check in _CHECKS if (hint := check(result))]


def _train(result: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about the training file."""
    return result.get("train") or {}


def _longer_than_pretrained(result: dict[str, Any]) -> str:
    known, longest = result.get("pretrained_length", 0), _train(result).get("longest", 0)
    if not known or longest <= known:
        return ""
    return (
        f"the training texts have up to {longest} tokens, but the encoder was pre-trained with at "
        f"most {known}: compare with --length {known}"
    )


def _truncated(result: dict[str, Any]) -> str:
    train = _train(result)
    total = train.get("words", train.get("rows", 0))
    if not train.get("cut") or train["cut"] < MANY_TRUNCATED * total:
        return ""
    unit = "words" if "words" in train else "texts"
    limit = result.get("max_length", 0)
    fix = "use a larger --length" if result["length"] < limit else "split long texts"
    share = f"{train['cut'] / max(1, total):.0%} of the training {unit}"
    return f"{share} do not fit into {result['length']} tokens: {fix}"


def _unbalanced(result: dict[str, Any]) -> str:
    counts = _train(result).get("labels")
    if not counts:
        return ""
    most, least = max(counts, key=counts.get), min(counts, key=counts.get)
    if counts[most] < UNBALANCED * counts[least]:
        return ""
    return (
        f"the classes are unbalanced ({most}: {counts[most]:,} training rows, {least}: "
        f"{counts[least]:,}): judge by macro F1 and the F1 of each class, not by accuracy alone"
    )


def _never_predicted(result: dict[str, Any]) -> str:
    labels = result.get("by_label", {}).get("labels", {})
    missing = [name for name, row in labels.items() if row["count"] and not row["predicted"]]
    if not missing or _only_prediction(result):
        return ""
    rest = len(missing) - MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return f"never predicted: {', '.join(missing[:MOST_NAMED])}{more}; {_MORE}"


def _one_prediction(result: dict[str, Any]) -> str:
    only = _only_prediction(result)
    return only and f"the model predicts {only}: {_MORE}"


def _only_prediction(result: dict[str, Any]) -> str:
    """Return what a model that always predicts the same predicts; empty for other models."""
    guesses = {
        guess
        for counts in result.get("by_label", {}).get("confusion", {}).values()
        for guess in counts
    }
    if len(guesses) != 1:
        return ""
    entities = result["by_label"]["unit"] == "entity type"
    return "no entity at all" if entities else f"only {guesses.pop()}"


def _no_better_than_constant(result: dict[str, Any]) -> str:
    baseline = result.get("baseline")
    if not baseline or _only_prediction(result):
        return ""
    (scores,) = (s["scores"] for s in result["seeds"] if s["seed"] == result["best_seed"])
    metric, value, constant = baseline["metric"], baseline["value"], baseline["answer"]
    better = scores[metric] > value if metric == "accuracy" else scores[metric] < value
    if better:
        return ""
    is_no_better = f"{metric} {scores[metric]:.4g} is no better than always predicting {constant}"
    return f"{is_no_better} ({value:.4g}): {_MORE}"


def _no_better_than_untrained(result: dict[str, Any]) -> str:
    untrained = result.get("untrained")
    if not untrained:
        return ""
    (scores,) = (s["scores"] for s in result["seeds"] if s["seed"] == result["best_seed"])
    metric, before = next(iter(untrained.items()))
    if scores[metric] > before:
        return ""
    return (
        f"{metric} {scores[metric]:.4g} is no better than without training ({before:.4g}): {_MORE}"
    )


_MORE = "train longer (--epochs), try another --lr, or add and check training data"
_CHECKS: tuple[Callable[[dict[str, Any]], str], ...] = (
    _one_prediction,
    _no_better_than_constant,
    _no_better_than_untrained,
    _never_predicted,
    _unbalanced,
    _longer_than_pretrained,
    _truncated,
)
