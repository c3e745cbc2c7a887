"""Split text into training, validation and test sets.

A hash of its text decides the split of a document, so adding documents moves none of the others and
equal texts are always in the same split. If a split would get almost no documents, the ends of some
training documents are held out for it instead, so that no text is in two splits.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SPLITS = ("train", "validation", "test")
FEW = 20  # expected documents in a split, below which its text is measured
MOST_MEASURED = 10_000  # documents; hashing these takes a second
TOO_LITTLE = 0.25  # fraction of the text that a split should get
PART_CHARACTERS = 2_000  # minimum for the part of one document: a few examples


class DocumentEnds(NamedTuple):
    """Ends of documents that are held out if there are too few documents."""

    last: int
    """The largest hash of a training document whose end is held out."""
    documents: int
    validation: float
    """Fraction of the text of each of these documents."""
    test: float
    no_full_documents: bool
    """Whether only ends are held out, because training would otherwise get too little text."""


class DocumentSize(NamedTuple):
    """The split, the hash and the number of characters of a document."""

    split: str
    hash: int
    characters: int


class Splits(NamedTuple):
    """How the text of a corpus is split."""

    validation: float
    test: float
    parts: DocumentEnds | None = None

    def of(self, text: str) -> list[tuple[str, str]]:
        """Return the splits of a document and its text in each; usually one with all of it."""
        name, parts = split_of(text, self.validation, self.test), self.parts
        if parts is None or (name != "train" and not parts.no_full_documents):
            return [(name, text)]
        if hash_text(text, "parts") > parts.last:
            return [("train", text)]
        margin = int(len(text) * min(filter(None, (parts.validation, parts.test))) / 2)
        first = _cut(text, len(text) * (1 - parts.validation - parts.test), margin)
        second = _cut(text, len(text) * (1 - parts.test), margin)
        texts = zip(SPLITS, (text[:first], text[first:second], text[second:]), strict=True)
        return [(name, part) for name, part in texts if part.strip()]


def split_of(text: str, validation: float, test: float) -> str:
    """Return the split of a document, which depends only on its text."""
    position = hash_text(text, "split") / 2**64
    if position < test:
        return "test"
    return "validation" if position < test + validation else "train"


def hash_text(text: str, purpose: str) -> int:
    """Return a 64-bit hash of a text and a purpose."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(b"\0" + purpose.encode())
    return int.from_bytes(digest.digest(), "big")


def may_be_too_few(documents: int, validation: float, test: float) -> bool:
    """Return whether a split may get too few documents, so that its text should be measured."""
    smallest = min((fraction for fraction in (validation, test) if fraction > 0), default=1.0)
    return documents * smallest < FEW and documents <= MOST_MEASURED


def splits_for(texts: Iterable[str], validation: float, test: float) -> Splits:
    """Return how to split these texts."""
    documents = [
        DocumentSize(split_of(text, validation, test), hash_text(text, "parts"), len(text))
        for text in texts
    ]
    fractions = {"train": 1 - validation - test, "validation": validation, "test": test}
    return Splits(validation, test, ends_needed(documents, fractions))


def ends_needed(
    documents: Sequence[DocumentSize], fractions: Mapping[str, float]
) -> DocumentEnds | None:
    """Return the ends to hold out so that no split has too little text; None if none has."""
    total = sum(document.characters for document in documents)
    wanted = {name: fraction * total for name, fraction in fractions.items() if fraction > 0}
    missing = _missing(documents, wanted)
    no_full_documents = "train" in missing
    if no_full_documents:
        documents = [document._replace(split="train") for document in documents]
        missing = _missing(documents, wanted)
    if not missing:
        return None
    needed, donors = sum(missing.values()), list[DocumentSize]()
    enough = max(1, int(min(missing.values()) // PART_CHARACTERS))
    size = 0
    candidates = (document for document in documents if document.split == "train")
    for document in sorted(candidates, key=lambda candidate: candidate.hash):
        if len(donors) >= enough and size >= 2 * needed:
            break
        donors.append(document)
        size += document.characters
    scale = min(1 / size, (1.0 if no_full_documents else 0.5) / needed)
    ends = missing.get("validation", 0.0) * scale, missing.get("test", 0.0) * scale
    return DocumentEnds(donors[-1].hash, len(donors), *ends, no_full_documents)


def _missing(documents: Sequence[DocumentSize], wanted: Mapping[str, float]) -> dict[str, float]:
    """Return how many characters are missing in the splits that have too few."""
    sizes = dict.fromkeys(wanted, 0)
    for document in documents:
        if document.split in sizes:
            sizes[document.split] += document.characters
    return {
        name: wanted[name] - sizes[name]
        for name in wanted
        if sizes[name] < TOO_LITTLE * wanted[name]
    }


def _cut(text: str, position: float, margin: int) -> int:
    """Return the end of the line or else of the word at a position, if it is within the margin."""
    start = round(position)
    for separator in ("\n", " "):
        if (found := text.find(separator, start, start + margin)) >= 0:
            return found + 1
    return start
