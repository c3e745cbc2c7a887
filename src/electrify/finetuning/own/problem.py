"""What one's own data asks for: classes, a score, or tags; and what each of them needs."""

# N examples, W words, L length, C outputs

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from electrify.errors import UserError
from electrify.finetuning.encoder import Encoder, encode
from electrify.finetuning.fit import Collate
from electrify.finetuning.heads import OwnHead
from electrify.finetuning.metrics import accuracy, f1, mcc, pearson, spearman
from electrify.finetuning.own.data import (
    Columns,
    Texts,
    centre_and_spread,
    class_numbers,
    classes_of,
    find_columns,
    kind_of,
    need_labels,
    scores_of,
    texts_of,
)
from electrify.finetuning.own.files import read_table, read_text
from electrify.finetuning.own.sentences import (
    OUTSIDE,
    Sentences,
    is_tagged,
    need_tags,
    read_sentences,
    tags_of,
)
from electrify.finetuning.own.tagging import (
    Tagger,
    entity_scores,
    first_tokens,
    has_entities,
    tag_collating,
    tag_numbers,
)
from electrify.finetuning.rows import as_rows, collating

Kind = Literal["classes", "score", "tags"]
Data = Texts | Sentences

AUTO: dict[Kind, Any] = {
    "classes": AutoModelForSequenceClassification,
    "score": AutoModelForSequenceClassification,
    "tags": AutoModelForTokenClassification,
}
MODELS: dict[Kind, Callable[[Any], nn.Module]] = {
    "classes": partial(OwnHead, kind="classes", reduction="mean"),
    "score": partial(OwnHead, kind="score", reduction="mean"),
    "tags": Tagger,
}


class Problem(NamedTuple):
    """What is to be answered."""

    kind: Kind
    labels: tuple[str, ...]
    """Classes or tags by number; one name for a score."""
    centre: float = 0.0
    """What is taken from scores before they are learned."""
    spread: float = 1.0
    """What they are then divided by."""


class Training(NamedTuple):
    """A training file, and what was found out about it."""

    problem: Problem
    data: Data
    columns: Columns
    why: str
    """How one can tell the kind."""
    has_header: bool = True
    """Whether the columns of a table have names; otherwise they have numbers."""


def read_training(path: Path, kind: Kind | Literal["auto"], named: Columns) -> Training:
    """A training file; its kind is found if it is not given."""
    text = read_text(path)
    if kind == "tags" or (kind == "auto" and is_tagged(path, text)):
        sentences = read_sentences(path, text, named)
        why = "words have a tag each" if kind == "auto" else "as asked for"
        return Training(Problem("tags", tags_of(sentences)), sentences, named, why)
    table = read_table(path, text, named)
    columns = find_columns(table, named)
    texts = texts_of(table, columns)
    found, why = kind_of(need_labels(texts)) if kind == "auto" else (kind, "as asked for")
    if found == "score":
        problem = Problem("score", ("score",), *centre_and_spread(texts))
    else:
        problem = Problem("classes", classes_of(texts))
    return Training(problem, texts, columns, why, not table.numbered)


def read_like(path: Path, problem: Problem, columns: Columns) -> Data:
    """Another file of the same kind and columns."""
    text = read_text(path)
    if problem.kind == "tags":
        return read_sentences(path, text, columns)
    table = read_table(path, text, columns)
    return texts_of(table, find_columns(table, columns))


class Prepared(NamedTuple):
    """Data as a model takes it."""

    lengths: list[int]
    collate: Collate
    firsts: list[NDArray[np.int64]]
    """Of tagged sentences: the first token of every word, -1 for none."""
    cut: int
    """Texts that are longer than the length; of sentences, words that no token stands for."""


def prepare(
    problem: Problem, data: Data, encoder: Encoder, most: int, labelled: bool = True
) -> Prepared:
    """Texts or sentences as rows of at most `most` tokens, with their labels or without."""
    if isinstance(data, Sentences):
        made = encode(encoder, [" ".join(words) for words in data.words], None, most)
        firsts = [first_tokens(*pair) for pair in zip(made, data.words, strict=True)]
        tags = tag_numbers(data, problem.labels) if labelled else firsts
        rows = as_rows(made, np.zeros(len(made)))
        collate = tag_collating(rows, firsts, tags, encoder.pad)
        return Prepared(rows.lengths, collate, firsts, sum(int((f < 0).sum()) for f in firsts))
    made = encode(encoder, data.first, data.second, most)
    rows = as_rows(made, _targets(problem, data) if labelled else np.zeros(len(made)))
    kind: Literal["classes", "score"] = "score" if problem.kind == "score" else "classes"
    cut = sum(bool(one.overflowing) for one in made)
    return Prepared(rows.lengths, collating(rows, encoder.pad, kind), [], cut)


def _targets(problem: Problem, texts: Texts) -> NDArray[np.float64]:
    if problem.kind == "classes":
        return class_numbers(texts, problem.labels)
    return (scores_of(texts) - problem.centre) / problem.spread


class Answer(NamedTuple):
    """What a model says of a text or a sentence."""

    prediction: Any
    """A class, a score, or a tag for every word."""
    probabilities: dict[str, float]
    """Of the classes."""


def answers(
    problem: Problem, prepared: Prepared, outputs: Sequence[NDArray[np.float32]]
) -> list[Answer]:
    """What outputs mean; they are of each row, or of each token of each row."""
    if problem.kind == "tags":
        return [
            Answer(_tags(problem, logits_LC, first_W), {})
            for logits_LC, first_W in zip(outputs, prepared.firsts, strict=True)
        ]
    if problem.kind == "score":
        return [Answer(float(output_C[0]), {}) for output_C in outputs]
    found = []
    for logits_C in np.stack(outputs).astype(np.float64):
        odds_C = np.exp(logits_C - logits_C.max())
        share = dict(zip(problem.labels, (odds_C / odds_C.sum()).tolist(), strict=True))
        found.append(Answer(problem.labels[int(logits_C.argmax())], share))
    return found


def _tags(
    problem: Problem, logits_LC: NDArray[np.float32], first_W: NDArray[np.int64]
) -> list[str]:
    best_W = logits_LC[first_W].argmax(axis=1)
    pairs = zip(first_W, best_W, strict=True)
    return [problem.labels[best] if first >= 0 else OUTSIDE for first, best in pairs]


def measure(problem: Problem, data: Data, said: Sequence[Answer]) -> dict[str, float]:
    """Scores of answers against the labels of a file; the first is the one models are chosen by."""
    predicted = [one.prediction for one in said]
    if isinstance(data, Sentences):
        return _measure_tags(problem.labels, need_tags(data), predicted)
    if problem.kind == "score":
        return _measure_scores(scores_of(data), np.array(predicted))
    class_numbers(data, problem.labels)
    return _measure_classes(need_labels(data), predicted)


def _measure_classes(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    found_N, true_N = np.array(predicted), np.array(gold)
    each = [f1(found_N == one, true_N == one) for one in np.union1d(found_N, true_N)]
    return {
        "accuracy": accuracy(found_N, true_N),
        "macro_f1": float(np.mean(each)),
        "mcc": mcc(found_N, true_N),
    }


def _measure_scores(
    gold_N: NDArray[np.float64], predicted_N: NDArray[np.float64]
) -> dict[str, float]:
    return {
        "pearson": pearson(predicted_N, gold_N),
        "spearman": spearman(predicted_N, gold_N),
        "mse": float(np.square(predicted_N - gold_N).mean()),
    }


def _measure_tags(
    labels: Sequence[str], gold: list[list[str]], predicted: list[list[str]]
) -> dict[str, float]:
    words = _measure_classes(*([tag for some in one for tag in some] for one in (gold, predicted)))
    if has_entities(labels):
        return {**entity_scores(gold, predicted), "accuracy": words["accuracy"]}
    return words


def fields_of(problem: Problem) -> dict[str, Any]:
    """What a configuration of transformers is told about the answers."""
    types = {"classes": "single_label_classification", "score": "regression"}
    fields: dict[str, Any] = {
        "num_labels": len(problem.labels),
        "id2label": dict(enumerate(problem.labels)),
        "label2id": {label: number for number, label in enumerate(problem.labels)},
    }
    return {**fields, **({"problem_type": types[problem.kind]} if problem.kind in types else {})}


def problem_of(config: Any, source: str) -> Problem:
    """What a model of transformers answers, by its configuration."""
    architecture = next(iter(config.architectures or []), "")
    labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    if architecture.endswith("ForTokenClassification"):
        return Problem("tags", labels)
    if architecture.endswith("ForSequenceClassification") and not several:
        return Problem("score" if len(labels) == 1 else "classes", labels)
    raise UserError(
        f"{source} is no model for classes, a score or tags",
        got="several labels a text" if several else architecture or "no architecture",
        fix="give the --out of `electrify finetune`, or another folder of transformers' "
        "…ForSequenceClassification or …ForTokenClassification",
    )


def unscale(network: Any, problem: Problem) -> None:
    """Put scores back on their own scale, by the last layer of a network that learned them scaled.

    >>> problem = Problem("score", ("score",), centre=3.0, spread=2.0)
    >>> layer = nn.Linear(1, 1); _ = nn.init.constant_(layer.bias, 0.5)
    >>> unscale(layer, problem); layer.bias.item()
    4.0
    """
    layer = _last_layer(network)
    layer.weight.data.mul_(problem.spread)
    layer.bias.data.mul_(problem.spread).add_(problem.centre)


def _last_layer(network: Any) -> Any:
    body = getattr(network, "base_model_prefix", "") or "?"
    layers = [
        module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear)
        and module.out_features == 1
        and module.bias is not None
        and not name.startswith(f"{body}.")
    ]
    if not layers:
        raise UserError(
            f"the head of {type(network).__name__} ends in no linear layer with a bias",
            got="scores cannot be put on their own scale",
            fix="take an encoder of another architecture",
        )
    return layers[-1]
