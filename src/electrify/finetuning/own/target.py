"""What your data asks a model to predict: classes, a score, or tags; and what each needs."""

# N examples, W words, L length, C outputs

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from electrify.errors import UserError
from electrify.finetuning.batches import to_rows
from electrify.finetuning.encoder import Encoder, encode
from electrify.finetuning.fit import Collate
from electrify.finetuning.heads import OwnHead
from electrify.finetuning.metrics import accuracy, f1, mcc, pearson, spearman
from electrify.finetuning.options import LabelKind
from electrify.finetuning.own.data import (
    Columns,
    Texts,
    class_indices,
    extract_texts,
    find_classes,
    find_columns,
    infer_kind,
    mean_and_std,
    parse_scores,
    require_labels,
)
from electrify.finetuning.own.files import read_table, read_text
from electrify.finetuning.own.sentences import (
    OUTSIDE,
    Sentences,
    find_tags,
    is_tagged,
    read_sentences,
    require_tags,
)
from electrify.finetuning.own.tagging import (
    Tagger,
    collate_tagged,
    entity_scores,
    find_word_starts,
    has_entities,
    tag_indices,
)

TargetKind = Literal["classes", "score", "tags", "sentences"]
Data = Texts | Sentences

AUTO_CLASSES: dict[TargetKind, Any] = {
    "classes": AutoModelForSequenceClassification,
    "score": AutoModelForSequenceClassification,
    "tags": AutoModelForTokenClassification,
}
MODEL_CLASSES: dict[TargetKind, Callable[[Any], nn.Module]] = {
    "classes": partial(OwnHead, kind="classes"),
    "score": partial(OwnHead, kind="score"),
    "tags": Tagger,
}


class Target(NamedTuple):
    """What a model learns to predict."""

    kind: TargetKind
    labels: tuple[str, ...]
    """Classes or tags by index; one name for a score, or for what vectors are learned from."""
    mean: float = 0.0
    """Scores are standardized for training: this mean is subtracted from them."""
    std: float = 1.0
    """The result is divided by this standard deviation."""


class TrainingFile(NamedTuple):
    """A training file and what was inferred from it."""

    target: Target
    data: Data
    columns: Columns
    reason: str
    """Why the labels are of this kind."""
    has_header: bool = True
    """Whether the columns of a table have names; otherwise they are numbered."""


def read_training(
    path: Path, kind: TargetKind | Literal["auto"], requested: Columns
) -> TrainingFile:
    """Read a training file, and infer the kind of its labels if it is not given."""
    text = read_text(path)
    if kind == "tags" or (kind == "auto" and is_tagged(path, text)):
        sentences = read_sentences(path, text, requested)
        reason = "every word has a tag" if kind == "auto" else "set by --kind"
        return TrainingFile(Target("tags", find_tags(sentences)), sentences, requested, reason)
    table = read_table(path, text, requested)
    columns = find_columns(table, requested)
    texts = extract_texts(table, columns)
    kind, reason = infer_kind(require_labels(texts)) if kind == "auto" else (kind, "set by --kind")
    if kind == "score":
        target = Target("score", ("score",), *mean_and_std(texts))
    else:
        target = Target("classes", find_classes(texts))
    return TrainingFile(target, texts, columns, reason, not table.numbered)


def read_matching(path: Path, target: Target, columns: Columns) -> Data:
    """Read another file with the same kind of labels and the same columns."""
    text = read_text(path)
    if target.kind == "tags":
        return read_sentences(path, text, columns, target.labels)
    table = read_table(path, text, columns)
    return extract_texts(table, find_columns(table, columns))


class OwnRows(NamedTuple):
    """Data as input of a model."""

    lengths: list[int]
    collate: Collate
    word_starts: list[NDArray[np.int64]]
    """For sentences: the position of the first token of every word, or -1."""
    truncated: int
    """How many texts are too long; for sentences, how many words have no token."""


def prepare_rows(
    target: Target, data: Data, encoder: Encoder, length: int, labelled: bool = True
) -> OwnRows:
    """Tokenize texts or sentences into rows of at most `length` tokens, with or without labels."""
    if isinstance(data, Sentences):
        encodings = encode(encoder, [" ".join(words) for words in data.words], None, length)
        word_starts = [find_word_starts(*pair) for pair in zip(encodings, data.words, strict=True)]
        tags = tag_indices(data, target.labels) if labelled else word_starts
        rows = to_rows(encodings, [], "classes", encoder.pad)
        collate = partial(collate_tagged, rows, word_starts, tags)
        truncated = sum(int((starts_W < 0).sum()) for starts_W in word_starts)
        return OwnRows(rows.lengths, collate, word_starts, truncated)
    encodings = encode(encoder, data.first, data.second, length)
    kind: LabelKind = "score" if target.kind == "score" else "classes"
    labels: NDArray[np.float64] = np.array([])
    if labelled and kind == "score":
        labels = (parse_scores(data) - target.mean) / target.std
    elif labelled:
        labels = class_indices(data, target.labels)
    rows = to_rows(encodings, labels, kind, encoder.pad)
    truncated = sum(bool(encoding.overflowing) for encoding in encodings)
    return OwnRows(rows.lengths, rows.collate, [], truncated)


class OwnAnswer(NamedTuple):
    """The prediction for a text or a sentence."""

    prediction: Any
    """A class, a score, or a list with one tag per word."""
    probabilities: dict[str, float]
    """The probability of each class."""


def answers(
    target: Target, prepared: OwnRows, outputs: Sequence[NDArray[np.float32]]
) -> list[OwnAnswer]:
    """Turn outputs, one per row or one per token of each row, into predictions."""
    if target.kind == "tags":
        return [
            OwnAnswer(_tags(target, logits_LC, starts_W), {})
            for logits_LC, starts_W in zip(outputs, prepared.word_starts, strict=True)
        ]
    if target.kind == "score":
        return [OwnAnswer(float(output_C[0]), {}) for output_C in outputs]
    predictions = []
    for logits_C in np.stack(outputs).astype(np.float64):
        odds_C = np.exp(logits_C - logits_C.max())
        probabilities = dict(zip(target.labels, (odds_C / odds_C.sum()).tolist(), strict=True))
        predictions.append(OwnAnswer(target.labels[int(logits_C.argmax())], probabilities))
    return predictions


def _tags(target: Target, logits_LC: NDArray[np.float32], starts_W: NDArray[np.int64]) -> list[str]:
    best_W = logits_LC[starts_W].argmax(axis=1)
    pairs = zip(starts_W, best_W, strict=True)
    return [target.labels[best] if start >= 0 else OUTSIDE for start, best in pairs]


def measure(target: Target, data: Data, predictions: Sequence[OwnAnswer]) -> dict[str, float]:
    """Return the scores against the labels of a file; models are selected by the first score."""
    predicted = [answer.prediction for answer in predictions]
    if isinstance(data, Sentences):
        gold = require_tags(data)
        scores = _measure_classes([*chain.from_iterable(gold)], [*chain.from_iterable(predicted)])
        if not has_entities(target.labels):
            return scores
        return {**entity_scores(gold, predicted), "accuracy": scores["accuracy"]}
    if target.kind == "score":
        gold_N, predicted_N = parse_scores(data), np.array(predicted)
        return {
            "pearson": pearson(predicted_N, gold_N),
            "spearman": spearman(predicted_N, gold_N),
            "mse": float(np.square(predicted_N - gold_N).mean()),
        }
    class_indices(data, target.labels)  # refuses unknown labels
    return _measure_classes(require_labels(data), predicted)


def _measure_classes(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    predicted_N, gold_N = np.array(predicted), np.array(gold)
    classes = np.union1d(predicted_N, gold_N)
    f1_scores = [f1(predicted_N == label, gold_N == label) for label in classes]
    return {
        "accuracy": accuracy(predicted_N, gold_N),
        "macro_f1": float(np.mean(f1_scores)),
        "mcc": mcc(predicted_N, gold_N),
    }


def constant_baseline(target: Target, train: Data, dev: Data) -> dict[str, Any]:
    """Return the score of the best constant answer: the most frequent class, or the mean score.

    Empty for entities, of which a constant answer finds none.
    """
    if isinstance(dev, Texts) and target.kind == "score":
        value = float(np.square(parse_scores(dev) - target.mean).mean())
        return {"metric": "mse", "value": value, "answer": f"the mean, {target.mean:.4g}"}
    if target.kind == "tags" and has_entities(target.labels):
        return {}
    known, gold = (
        [*chain.from_iterable(require_tags(data))]
        if isinstance(data, Sentences)
        else require_labels(data)
        for data in (train, dev)
    )
    answer = Counter(known).most_common(1)[0][0]
    return {"metric": "accuracy", "value": gold.count(answer) / len(gold), "answer": answer}


def config_fields(target: Target) -> dict[str, Any]:
    """Return the fields of a transformers configuration that describe the labels."""
    fields: dict[str, Any] = {
        "num_labels": len(target.labels),
        "id2label": dict(enumerate(target.labels)),
        "label2id": {label: index for index, label in enumerate(target.labels)},
    }
    if target.kind != "tags":
        score = target.kind == "score"
        fields["problem_type"] = "regression" if score else "single_label_classification"
    return fields


def target_from_config(config: Any, source: str) -> Target:
    """Return what a transformers model predicts, by its configuration."""
    architecture = next(iter(config.architectures or []), "")
    labels = tuple(str(config.id2label[index]) for index in range(config.num_labels))
    multi_label = getattr(config, "problem_type", None) == "multi_label_classification"
    if architecture.endswith("ForTokenClassification"):
        return Target("tags", labels)
    if architecture.endswith("ForSequenceClassification") and not multi_label:
        return Target("score" if len(labels) == 1 else "classes", labels)
    raise UserError(
        f"{source} does not predict classes, a score or tags",
        got="several labels per text" if multi_label else architecture or "no architecture",
        fix="use the --out of `electrify finetune`, or another transformers folder with a "
        "…ForSequenceClassification or …ForTokenClassification model",
    )


def undo_standardization(network: Any, target: Target) -> None:
    """Change the output layer so that a network trained on standardized scores predicts raw ones.

    >>> target = Target("score", ("score",), mean=3.0, std=2.0)
    >>> layer = nn.Linear(1, 1); _ = nn.init.constant_(layer.bias, 0.5)
    >>> undo_standardization(layer, target); layer.bias.item()
    4.0
    """
    backbone = getattr(network, "base_model_prefix", "") or "?"
    layers = [
        module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear)
        and module.out_features == 1
        and module.bias is not None
        and not name.startswith(f"{backbone}.")
    ]
    if not layers:
        raise UserError(
            f"the head of {type(network).__name__} does not end in a linear layer with a bias",
            got="scores cannot be converted back to their original scale",
            fix="use an encoder with another architecture",
        )
    layers[-1].weight.data.mul_(target.std)
    layers[-1].bias.data.mul_(target.std).add_(target.mean)
