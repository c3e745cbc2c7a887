"""Which text is for training, which for validation and test.

A document belongs where a hash of its text says, so that adding documents moves none and equal
texts are never on two sides. Where documents are so few that a split gets hardly any, the ends of
some training documents are held out for it instead: text is then never on two sides, either.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SPLITS = ("train", "validation", "test")
FEW = 20  # documents that a split should get; below that, see how much text it really gets
MOST_LOOKED_AT = 10_000  # documents; hashing these takes a second
TOO_LITTLE = 0.25  # of the text that a split should get
PART_CHARACTERS = 2_000  # that a document should give at least: a few examples


class DocumentEnds(NamedTuple):
    """Ends of documents that are held out where whole documents are too few."""

    last: int
    """A training document gives parts if its number is not above this one."""
    documents: int
    validation: float
    """Share of the text of each of these documents."""
    test: float
    none_whole: bool
    """Whether no document is held out as a whole: training would be left with too little."""


class Found(NamedTuple):
    """What is to be known of a document: where it belongs, its number and its characters."""

    split: str
    number: int
    characters: int


class Splits(NamedTuple):
    """How the text of a corpus is split."""

    validation: float
    test: float
    parts: DocumentEnds | None = None

    def of(self, text: str) -> list[tuple[str, str]]:
        """The splits of a document with its text in each: mostly one, with all of it."""
        name, parts = split_of(text, self.validation, self.test), self.parts
        if parts is None or (name != "train" and not parts.none_whole):
            return [(name, text)]
        if number_of(text, "parts") > parts.last:
            return [("train", text)]
        room = int(len(text) * min(filter(None, (parts.validation, parts.test))) / 2)
        first = _cut(text, len(text) * (1 - parts.validation - parts.test), room)
        second = _cut(text, len(text) * (1 - parts.test), room)
        pieces = zip(SPLITS, (text[:first], text[first:second], text[second:]), strict=True)
        return [(name, piece) for name, piece in pieces if piece.strip()]


def split_of(text: str, validation: float, test: float) -> str:
    """Where a document belongs: a function of its text, so equal texts are never on two sides."""
    place = number_of(text, "split") / 2**64
    if place < test:
        return "test"
    return "validation" if place < test + validation else "train"


def number_of(text: str, purpose: str) -> int:
    """A number of 64 bits that depends on a text and a purpose alone."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    digest.update(b"\0" + purpose.encode())
    return int.from_bytes(digest.digest(), "big")


def may_be_too_few(documents: int, validation: float, test: float) -> bool:
    """Whether so few documents are expected in a split that one should look."""
    smallest = min((share for share in (validation, test) if share > 0), default=1.0)
    return documents * smallest < FEW and documents <= MOST_LOOKED_AT


def splits_for(texts: Iterable[str], validation: float, test: float) -> Splits:
    """How to split these texts."""
    found = [
        Found(split_of(text, validation, test), number_of(text, "parts"), len(text))
        for text in texts
    ]
    shares = {"train": 1 - validation - test, "validation": validation, "test": test}
    return Splits(validation, test, parts_needed(found, shares))


def parts_needed(found: Sequence[Found], shares: Mapping[str, float]) -> DocumentEnds | None:
    """The parts to hold out so that every split gets its share; None if all have enough."""
    total = sum(document.characters for document in found)
    wanted = {name: share * total for name, share in shares.items() if share > 0}
    lacking = _lacking(found, wanted)
    none_whole = "train" in lacking
    if none_whole:
        found = [document._replace(split="train") for document in found]
        lacking = _lacking(found, wanted)
    if not lacking:
        return None
    needed, giving = sum(lacking.values()), list[Found]()
    enough = max(1, int(min(lacking.values()) // PART_CHARACTERS))
    size = 0
    donors = (document for document in found if document.split == "train")
    for document in sorted(donors, key=lambda one: one.number):
        if len(giving) >= enough and size >= 2 * needed:
            break
        giving.append(document)
        size += document.characters
    scale = min(1 / size, (1.0 if none_whole else 0.5) / needed)
    share = {name: characters * scale for name, characters in lacking.items()}
    ends = share.get("validation", 0.0), share.get("test", 0.0)
    return DocumentEnds(giving[-1].number, len(giving), *ends, none_whole)


def _lacking(found: Sequence[Found], wanted: Mapping[str, float]) -> dict[str, float]:
    """How many characters are missing in the splits that have too few."""
    there = dict.fromkeys(wanted, 0)
    for document in found:
        if document.split in there:
            there[document.split] += document.characters
    return {
        name: wanted[name] - there[name]
        for name in wanted
        if there[name] < TOO_LITTLE * wanted[name]
    }


def _cut(text: str, place: float, room: int) -> int:
    """The next line end after a place, or else the next space, if one is near."""
    start = round(place)
    for mark in ("\n", " "):
        if (found := text.find(mark, start, start + room)) >= 0:
            return found + 1
    return start
