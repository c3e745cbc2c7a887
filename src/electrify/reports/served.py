"""What the inspector's page shows besides predictions: sentences to try, and the error rates.

The rates at any threshold come from validation text if the model's run and shards are found, else
from the page's example sentences, and the page says which.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.errors import UserError
from electrify.reports.examples import corrupted_example, validation_batches
from electrify.reports.heat import detect
from electrify.reports.pair import LoadedPair
from electrify.reports.threshold import Threshold
from electrify.tokens.tokenizer import LoadedTokenizer
from electrify.training.trained import load_trained

EXAMPLE_COUNT = 5
RATE_TOKENS = 8_192  # a rate of 5 % is then accurate to half a percentage point
SENTENCE_LENGTHS = range(40, 161)  # in characters
SENTENCE_END = re.compile(r"(?<=[.!?؟।])\s+|(?<=[。！？])")
CLUTTER = re.compile(r"[\d()\[\]{}\"':;/|=*<>–-]")
MOST_PER_WORD = 1.7  # tokens; a vocabulary of another language needs more for English

ENGLISH = (
    ("The doctor examined the {} and wrote a report.", "patient", "guitar"),
    ("She opened the window because the room was too {}.", "hot", "seven"),
    ("The river flows through the city and into the {}.", "sea", "sentence"),
    ("He was born in a small {} in the north of England.", "town", "because"),
    ("The president signed the new {} in the spring of that year.", "law", "potato"),
    ("Water boils at a lower {} in the mountains.", "temperature", "music"),
    ("The children played in the {} until it was dark.", "garden", "theory"),
    ("Most of the people in the country work on {}.", "farms", "into"),
)
"""Plain sentences, a word that belongs in them, and one that does not."""


class Sentence(NamedTuple):
    """A text to try."""

    text: str
    note: str = ""


class Measured(NamedTuple):
    """Probabilities of tokens of which it is known whether they were replaced."""

    original: NDArray[np.float32]
    replaced: NDArray[np.float32]
    """Empty if they are not of validation text."""


class ServedModel(NamedTuple):
    """A model with what is known about it from text."""

    pair: LoadedPair
    measured: Measured
    examples: tuple[str, ...]
    """Sentences of its validation text, or English ones that its vocabulary covers."""

    @property
    def validated(self) -> bool:
        """Whether validation text was found."""
        return len(self.measured.replaced) > 0


def served_model(pair: LoadedPair) -> ServedModel:
    """Measure a model on validation text if it is found, else on English that it can read."""
    validated = _validated(pair)
    if validated is not None:
        return validated
    texts = [sentence.format(right) for sentence, right, _ in ENGLISH]
    examples = tuple(text for text in texts if _covers(pair.tokenizer, text))
    probs = [token.probability for text in examples for token in detect(pair, text)]
    return ServedModel(pair, Measured(np.array(probs, np.float32), np.array([])), examples)


def examples_for(models: Sequence[ServedModel]) -> list[Sentence]:
    """Return texts to try: validation text of one of the models, else English all can read."""
    for model in models:
        if model.validated:
            return [Sentence(text) for text in model.examples]
    readable = set.intersection(*(set(model.examples) for model in models))
    examples: list[Sentence] = []
    for sentence, right, wrong in ENGLISH:
        if sentence.format(right) not in readable:
            continue
        swapped = len(examples) % 2 == 0
        note = "one word was swapped" if swapped else ""
        examples.append(Sentence(sentence.format(wrong if swapped else right), note))
    return examples[:EXAMPLE_COUNT]


def rates_at(model: ServedModel, threshold: Threshold, value: float) -> dict[str, str]:
    """Return the false-alarm rate at a threshold, and what it was measured on."""
    original, replaced = model.measured
    alarms = (original >= value).sum() / max(1, len(original))
    if model.validated:
        caught, count = (replaced >= value).mean(), len(original) + len(replaced)
        return {
            "rate": f"{100 * alarms:.1f} %",
            "source": f"with {100 * caught:.0f} % of replaced tokens caught, measured on {count:,} "
            "tokens of validation text",
        }
    if threshold.false_alarm_rate is not None:
        rate = f"{100 * threshold.false_alarm_rate:.1f} %"
        return {"rate": rate, "source": "measured on the validation text of its run"}
    if not len(original):
        return {"rate": "unknown", "source": "because no validation text was found"}
    return {
        "rate": f"about {100 * alarms:.0f} %",
        "source": f"estimated from {len(original)} tokens of plain English sentences, because no "
        "validation text was found",
    }


def _validated(pair: LoadedPair) -> ServedModel | None:
    """Return the model measured on its validation text; None if that is not found."""
    if pair.run is None:
        return None
    try:
        loaded = load_trained(*pair.run)
        task = validation_batches(pair.run[0], loaded)
    except UserError:  # the shards or the checkpoint are gone, which inspecting does not need
        return None
    total, wanted = len(task.batches.examples), RATE_TOKENS // loaded.recipe.run.length + 1
    numbers = range(0, total, max(1, total // wanted))[:wanted]  # from all of the documents
    found = [corrupted_example(loaded, task, number) for number in numbers]
    probs = np.concatenate([example.probs_L for example in found if example.probs_L is not None])
    replaced = np.concatenate([example.replaced_L for example in found])
    special = loaded.tokenizer.special
    texts = [
        loaded.tokenizer.backend.decode(example.ids_L.tolist())
        for example in found
        if special.unk not in example.ids_L
    ]
    return ServedModel(pair, Measured(probs[~replaced], probs[replaced]), _sentences(texts))


def _sentences(texts: Sequence[str]) -> tuple[str, ...]:
    """Return prose: complete sentences, one of each text; if too few, beginnings of texts."""
    complete = []
    for text in texts:
        inner = SENTENCE_END.split(text)[1:-1]  # the first and the last may be cut
        complete += [part for part in inner if len(part) in SENTENCE_LENGTHS][:1]
    beginnings = [text[: SENTENCE_LENGTHS.stop].rpartition(" ")[0] for text in texts]
    complete.sort(key=lambda part: len(CLUTTER.findall(part)))  # lists and references come last
    chosen = complete if len(complete) >= EXAMPLE_COUNT else [*complete, *filter(None, beginnings)]
    return tuple(dict.fromkeys(chosen))[:EXAMPLE_COUNT]


def _covers(tokenizer: LoadedTokenizer, text: str) -> bool:
    ids = tokenizer.backend.encode(text, add_special_tokens=False).ids
    return tokenizer.special.unk not in ids and len(ids) <= MOST_PER_WORD * len(text.split())
