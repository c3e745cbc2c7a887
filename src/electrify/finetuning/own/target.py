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
from electrify.finetuning.batches import as_rows
from electrify.finetuning.encoder import Encoder, encode
from electrify.finetuning.fit import Collate
from electrify.finetuning.heads import OwnHead
from electrify.finetuning.metrics import accuracy, f1, mcc, pearson, spearman
from electrify.finetuning.options import LabelKind
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
    TaggedRows,
    Tagger,
    entity_scores,
    first_tokens,
    has_entities,
    tag_numbers,
)

TargetKind = Literal["classes", "score", "tags"]
Data = Texts | Sentences

AUTO: dict[TargetKind, Any] = {
    "classes": AutoModelForSequenceClassification,
    "score": AutoModelForSequenceClassification,
    "tags": AutoModelForTokenClassification,
}
MODELS: dict[TargetKind, Callable[[Any], nn.Module]] = {
    "classes": partial(OwnHead, kind="classes"),
    "score": partial(OwnHead, kind="score"),
    "tags": Tagger,
}


class Target(NamedTuple):
    """What is to be answered."""

    kind: TargetKind
    labels: tuple[str, ...]
    """Classes or tags by number; one name for a score."""
    centre: float = 0.0
    """What is taken from scores before they are learned."""
    spread: float = 1.0
    """What they are then divided by."""


class TrainingFile(NamedTuple):
    """A training file, and what was found out about it."""

    target: Target
    data: Data
    columns: Columns
    why: str
    """How one can tell the kind."""
    has_header: bool = True
    """Whether the columns of a table have names; otherwise they have numbers."""


def read_training(path: Path, kind: TargetKind | Literal["auto"], named: Columns) -> TrainingFile:
    """A training file; its kind is found if it is not given."""
    text = read_text(path)
    if kind == "tags" or (kind == "auto" and is_tagged(path, text)):
        sentences = read_sentences(path, text, named)
        why = "words have a tag each" if kind == "auto" else "as asked for"
        return TrainingFile(Target("tags", tags_of(sentences)), sentences, named, why)
    table = read_table(path, text, named)
    columns = find_columns(table, named)
    texts = texts_of(table, columns)
    found, why = kind_of(need_labels(texts)) if kind == "auto" else (kind, "as asked for")
    if found == "score":
        target = Target("score", ("score",), *centre_and_spread(texts))
    else:
        target = Target("classes", classes_of(texts))
    return TrainingFile(target, texts, columns, why, not table.numbered)


def read_like(path: Path, target: Target, columns: Columns) -> Data:
    """Another file of the same kind and columns."""
    text = read_text(path)
    if target.kind == "tags":
        return read_sentences(path, text, columns)
    table = read_table(path, text, columns)
    return texts_of(table, find_columns(table, columns))


class OwnRows(NamedTuple):
    """Data as a model takes it."""

    lengths: list[int]
    collate: Collate
    firsts: list[NDArray[np.int64]]
    """Of tagged sentences: the first token of every word, -1 for none."""
    cut: int
    """Texts that are longer than the length; of sentences, words that no token stands for."""


def prepare_rows(
    target: Target, data: Data, encoder: Encoder, most: int, labelled: bool = True
) -> OwnRows:
    """Texts or sentences as rows of at most `most` tokens, with their labels or without."""
    if isinstance(data, Sentences):
        made = encode(encoder, [" ".join(words) for words in data.words], None, most)
        firsts = [first_tokens(*pair) for pair in zip(made, data.words, strict=True)]
        tags = tag_numbers(data, target.labels) if labelled else firsts
        tagged = TaggedRows(as_rows(made, [], "classes", encoder.pad), firsts, tags)
        cut = sum(int((first_W < 0).sum()) for first_W in firsts)
        return OwnRows(tagged.lengths, tagged.collate, firsts, cut)
    made = encode(encoder, data.first, data.second, most)
    kind: LabelKind = "score" if target.kind == "score" else "classes"
    rows = as_rows(made, _targets(target, data) if labelled else [], kind, encoder.pad)
    return OwnRows(rows.lengths, rows.collate, [], sum(bool(one.overflowing) for one in made))


def _targets(target: Target, texts: Texts) -> NDArray[np.float64]:
    if target.kind == "classes":
        return class_numbers(texts, target.labels)
    return (scores_of(texts) - target.centre) / target.spread


class OwnAnswer(NamedTuple):
    """What a model says of a text or a sentence."""

    prediction: Any
    """A class, a score, or a tag for every word."""
    probabilities: dict[str, float]
    """Of the classes."""


def answers(
    target: Target, prepared: OwnRows, outputs: Sequence[NDArray[np.float32]]
) -> list[OwnAnswer]:
    """What outputs mean; they are of each row, or of each token of each row."""
    if target.kind == "tags":
        return [
            OwnAnswer(_tags(target, logits_LC, first_W), {})
            for logits_LC, first_W in zip(outputs, prepared.firsts, strict=True)
        ]
    if target.kind == "score":
        return [OwnAnswer(float(output_C[0]), {}) for output_C in outputs]
    found = []
    for logits_C in np.stack(outputs).astype(np.float64):
        odds_C = np.exp(logits_C - logits_C.max())
        share = dict(zip(target.labels, (odds_C / odds_C.sum()).tolist(), strict=True))
        found.append(OwnAnswer(target.labels[int(logits_C.argmax())], share))
    return found


def _tags(target: Target, logits_LC: NDArray[np.float32], first_W: NDArray[np.int64]) -> list[str]:
    best_W = logits_LC[first_W].argmax(axis=1)
    pairs = zip(first_W, best_W, strict=True)
    return [target.labels[best] if first >= 0 else OUTSIDE for first, best in pairs]


def measure(target: Target, data: Data, said: Sequence[OwnAnswer]) -> dict[str, float]:
    """Scores of answers against the labels of a file; the first is the one models are chosen by."""
    predicted = [one.prediction for one in said]
    if isinstance(data, Sentences):
        return _measure_tags(target.labels, need_tags(data), predicted)
    if target.kind == "score":
        return _measure_scores(scores_of(data), np.array(predicted))
    class_numbers(data, target.labels)
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


def fields_of(target: Target) -> dict[str, Any]:
    """What a configuration of transformers is told about the answers."""
    types = {"classes": "single_label_classification", "score": "regression"}
    fields: dict[str, Any] = {
        "num_labels": len(target.labels),
        "id2label": dict(enumerate(target.labels)),
        "label2id": {label: number for number, label in enumerate(target.labels)},
    }
    return {**fields, **({"problem_type": types[target.kind]} if target.kind in types else {})}


def target_of(config: Any, source: str) -> Target:
    """What a model of transformers answers, by its configuration."""
    architecture = next(iter(config.architectures or []), "")
    labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    several = getattr(config, "problem_type", None) == "multi_label_classification"
    if architecture.endswith("ForTokenClassification"):
        return Target("tags", labels)
    if architecture.endswith("ForSequenceClassification") and not several:
        return Target("score" if len(labels) == 1 else "classes", labels)
    raise UserError(
        f"{source} is no model for classes, a score or tags",
        got="several labels a text" if several else architecture or "no architecture",
        fix="give the --out of `electrify finetune`, or another folder of transformers' "
        "…ForSequenceClassification or …ForTokenClassification",
    )


def unscale(network: Any, target: Target) -> None:
    """Put scores back on their own scale, by the last layer of a network that learned them scaled.

    >>> target = Target("score", ("score",), centre=3.0, spread=2.0)
    >>> layer = nn.Linear(1, 1); _ = nn.init.constant_(layer.bias, 0.5)
    >>> unscale(layer, target); layer.bias.item()
    4.0
    """
    layer = _last_layer(network)
    layer.weight.data.mul_(target.spread)
    layer.bias.data.mul_(target.spread).add_(target.centre)


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
