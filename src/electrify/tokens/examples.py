"""Build training examples from lines of token ids, in three layouts, by pure functions.

    electra   [CLS] A [SEP] B [SEP], the official two-segment builder
    pairs     [CLS] a [SEP] b [SEP], two lines of a document of half the length each
    packed    [CLS] a [SEP] [CLS] b [SEP] …, documents one after another until the example is full

With overflow "carry" no token is lost: tokens that do not fit start the next example. With "drop"
the electra layout reproduces google-research/electra build_pretraining_dataset.py draw by draw.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Literal, NamedTuple

from electrify.tokens.splits import SPLITS

Layout = Literal["electra", "pairs", "packed"]
Overflow = Literal["carry", "drop"]

NOTES = {
    "packed": "layout packed: attention crosses the documents of an example, and every document "
    "after the first has segment 1, unless run.packing = true",
}
"""Notes for the user on layouts."""

ONE_SEGMENT = 0.1  # fraction of examples with all text in the first segment
SHORT_TARGET = 0.05  # fraction of examples with a random shorter target length
SHORTEST_TARGET = 5
NO_BUDGET = 100_000  # as in the official code: so large that everything is in the first segment
SHORTEST_CHUNK = 8  # packed: a document does not start in fewer free positions than this


class Example(NamedTuple):
    """Token ids with special tokens, and the start of each segment after the first."""

    ids: list[int]
    starts: list[int]


class ExampleFrame(NamedTuple):
    """The ids of the special tokens around the text of an example."""

    cls: int
    sep: int

    def segments(self, first: list[int], second: list[int]) -> Example:
        """Return an example of one or two segments."""
        ids = [self.cls, *first, self.sep]
        if not second:
            return Example(ids, [])
        return Example([*ids, *second, self.sep], [len(ids)])

    def documents(self, chunks: Iterable[list[int]]) -> Example:
        """Return an example of several texts, each with its own special tokens."""
        ids: list[int] = []
        starts: list[int] = []
        for chunk in chunks:
            starts.append(len(ids))
            ids += [self.cls, *chunk, self.sep]
        return Example(ids, starts[1:])


class ElectraBuilder:
    """The official builder: one per document or, for parity, one for all documents."""

    def __init__(self, length: int, rng: Random, frame: ExampleFrame, overflow: Overflow) -> None:
        self.length, self.rng, self.frame = length, rng, frame
        self.carry = overflow == "carry"
        self.target = length
        self._lines: list[list[int]] = []
        self._start = 0  # the first unused token of the first line
        self._size = 0

    def document(self, lines: Iterable[list[int]]) -> Iterator[Example]:
        """Yield the examples of one document; no example spans two documents."""
        for line in lines:
            self._lines.append(line)
            self._size += len(line)
            while self._size >= self.target:
                yield self._example()
        while self._size:
            yield self._example()
        self._lines = []

    def draw_target(self) -> None:
        """Set the target to the full length or, sometimes, to a random shorter one."""
        short = self.rng.random() < SHORT_TARGET
        self.target = self.rng.randint(SHORTEST_TARGET, self.length) if short else self.length

    def _example(self) -> Example:
        single = self.rng.random() < ONE_SEGMENT
        # Three positions are for special tokens: [CLS] A [SEP] B [SEP].
        budget = NO_BUDGET if single else (self.target - 3) // 2
        first, second = _Segment(self.length), _Segment(self.length)
        for number, line in enumerate(self._lines):
            start = 0 if number else self._start
            size = len(line) - start
            # In the official code a short line may join the first segment after the second has
            # started. With "carry" the text must keep its order.
            in_order = not (self.carry and second.size)
            if in_order and (
                not first.size
                or first.size + size < budget
                or (not second.size and first.size < budget and self.rng.random() < 0.5)
            ):
                first.add(line, start)
            else:
                second.add(line, start)
        kept = first.ids[: self.length - 2]
        rest = second.ids[: max(0, self.length - len(kept) - 3)]  # the length, not the target
        self._discard(len(kept) + len(rest) if self.carry else self._size)
        self.draw_target()
        return self.frame.segments(kept, rest)

    def _discard(self, count: int) -> None:
        """Remove the first `count` pending tokens."""
        self._size -= count
        self._start += count
        while self._lines and self._start >= len(self._lines[0]):
            self._start -= len(self._lines.pop(0))
        if not self._lines:
            self._start = 0


class _Segment:
    """A segment under construction: its full size, and its first `max_ids` ids."""

    def __init__(self, max_ids: int) -> None:
        self.ids: list[int] = []
        self.size, self.max_ids = 0, max_ids

    def add(self, line: list[int], start: int) -> None:
        self.ids += line[start : start + self.max_ids - len(self.ids)]
        self.size += len(line) - start


def electra(
    lines: Iterable[list[int]], length: int, rng: Random, frame: ExampleFrame, overflow: Overflow
) -> Iterator[Example]:
    """Yield the examples of one document, with its own random numbers.

    The official code carries the target length over from one document to the next. Drawing it again
    has the same distribution and makes a document's examples independent of other documents.
    """
    builder = ElectraBuilder(length, rng, frame, overflow)
    builder.draw_target()
    return builder.document(lines)


def line_pairs(
    lines: Iterable[list[int]], length: int, rng: Random, frame: ExampleFrame, overflow: Overflow
) -> Iterator[Example]:
    """Yield random pairs of a document's lines, each cut to half the length with special tokens.

    Follows shoarora/lmtuners tokenize_and_cache_data.py, which drops the rest of a long line and
    the last of an odd number of lines; "carry" keeps both.
    """
    half = length // 2 - 2
    halves: list[list[int]] = []
    for line in lines:
        stop = len(line) if overflow == "carry" else min(len(line), half)
        halves += [line[start : start + half] for start in range(0, stop, half)]
    rng.shuffle(halves)
    for first, second in zip(halves[::2], halves[1::2], strict=False):
        yield frame.segments(first, second)
    if len(halves) % 2 and overflow == "carry":
        yield frame.segments(halves[-1], [])


def packed(
    documents: Iterable[Iterable[list[int]]], length: int, frame: ExampleFrame
) -> Iterator[Example]:
    """Yield full examples of consecutive documents; a document may continue in the next example."""
    chunks: list[list[int]] = []
    free = length
    for document in documents:
        text = [token for line in document for token in line]
        start = 0
        while start < len(text):
            if chunks and free - 2 < min(SHORTEST_CHUNK, len(text) - start):
                yield frame.documents(chunks)
                chunks, free = [], length
            chunks.append(text[start : start + free - 2])
            start += len(chunks[-1])
            free -= len(chunks[-1]) + 2
    if chunks:
        yield frame.documents(chunks)


def notes(manifest: Mapping[str, Any], packing: bool = False) -> list[str]:
    """Return notes for the user on the examples of a folder of shards; `packing` as in a recipe."""
    layout = manifest.get("identity", {}).get("settings", {}).get("layout")
    found = [f"note: {NOTES[layout]}"] if layout in NOTES and not packing else []
    splits = [manifest["splits"][name] for name in SPLITS]
    unknown, tokens = (sum(s[key] for s in splits) for key in ("unknown_tokens", "tokens"))
    return [*found, *filter(None, [warn_of_unknown(unknown, tokens)])]


def warn_of_unknown(unknown: int, tokens: int) -> str:
    """Return a warning if many tokens are unknown; otherwise an empty string.

    >>> warn_of_unknown(93, 100)[:38], warn_of_unknown(1, 100)
    ('warning: 93% of the tokens are unknown', '')
    """
    if unknown <= MANY_UNKNOWN * tokens:
        return ""
    return (
        f"warning: {unknown / tokens:.0%} of the tokens are unknown: a model learns nothing about "
        "the words they stand for; use a tokenizer for this language, or train one on this text"
    )


MANY_UNKNOWN = 0.05  # fraction of the tokens; a tokenizer of the same language has below 0.01
