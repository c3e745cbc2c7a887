"""Convert IOB1 tags, as in CoNLL-2003, to IOB2.

In IOB1 an entity starts with I-, and with B- only right after another entity of the same type. So
B-PER may occur in the development file and never in the training file, although both have persons.
In IOB2 every entity starts with B-. The entities are the same in both.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

_TAG = re.compile(r"([BI])-(.+)|O")


def from_iob1(sentences: Sequence[Sequence[str]], known: Collection[str] = ()) -> list[list[str]]:
    """Return IOB1 tags as IOB2; tags of any other scheme are returned as they are.

    So are those of a model that was trained on IOB1: it knows more of the tags as they are.

    >>> from_iob1([["I-PER", "I-PER", "B-PER", "O", "I-LOC"]])
    [['B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC']]
    >>> from_iob1([["I-PER", "O", "I-LOC"]], known=["O", "I-PER", "I-LOC", "B-LOC"])
    [['I-PER', 'O', 'I-LOC']]
    >>> from_iob1([["B-PER", "I-PER"], ["I-LOC"]])
    [['B-PER', 'I-PER'], ['I-LOC']]
    """
    starts = {pair for sentence in sentences for pair in _starts(sentence)}
    if not starts or not all(tag and tag[0] == _needed(tag, before) for before, tag in starts):
        return [list(sentence) for sentence in sentences]
    converted = [
        [
            "B" + tag[1:] if (before, tag) in starts else tag
            for before, tag in zip(["O", *sentence], sentence, strict=False)
        ]
        for sentence in sentences
    ]

    def unknown(tags: Sequence[Sequence[str]]) -> int:
        return len(set(chain(*tags)) - set(known))

    as_given = [list(sentence) for sentence in sentences]
    return as_given if known and unknown(as_given) < unknown(converted) else converted


def _starts(sentence: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the tag before each entity and its first tag; ("", "") for tags that are not IOB."""
    for before, tag in zip(["O", *sentence], sentence, strict=False):
        found = _TAG.fullmatch(tag)
        if not found:
            yield "", ""
        elif tag[0] == "B" or (tag[0] == "I" and before[2:] != tag[2:]):
            yield before, tag


def _needed(tag: str, before: str) -> str:
    """Return the letter that starts an entity in IOB1 after the tag before."""
    return "B" if before[2:] == tag[2:] else "I"
