"""Lines of token ids to training examples: three layouts, all pure functions of their arguments.

    electra   [CLS] A [SEP] B [SEP], the official two-segment builder
    pairs     [CLS] a [SEP] b [SEP], two lines of a document of half the length each
    packed    [CLS] a [SEP] [CLS] b [SEP] …, documents one after another until the example is full

With overflow "carry" no token is lost: what does not fit begins the next example. With "drop" the
electra layout does what google-research/electra build_pretraining_dataset.py does, draw by draw.
"""

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any, Literal, NamedTuple

Layout = Literal["electra", "pairs", "packed"]
Overflow = Literal["carry", "drop"]

NOTES = {
    "packed": "layout packed: attention crosses the documents of an example, and every document "
    "after the first has segment 1",
}
"""What a user should know about a layout."""

ONE_SEGMENT = 0.1  # share of examples with all text in the first segment
SHORT_TARGET = 0.05  # share of examples that aim at a random shorter length
SHORTEST_TARGET = 5
NO_BUDGET = 100_000  # officially: so large that everything goes to the first segment
SHORTEST_PIECE = 8  # packed: a document is not begun in fewer free places than this


class Example(NamedTuple):
    """Token ids with special tokens, and where each segment after the first begins."""

    ids: list[int]
    starts: list[int]


class ExampleFrame(NamedTuple):
    """The special ids that frame an example."""

    cls: int
    sep: int

    def segments(self, first: list[int], second: list[int]) -> Example:
        """One text with one or two segments."""
        ids = [self.cls, *first, self.sep]
        if not second:
            return Example(ids, [])
        return Example([*ids, *second, self.sep], [len(ids)])

    def documents(self, pieces: Iterable[list[int]]) -> Example:
        """Several texts, each whole in itself."""
        ids: list[int] = []
        starts: list[int] = []
        for piece in pieces:
            starts.append(len(ids))
            ids += [self.cls, *piece, self.sep]
        return Example(ids, starts[1:])


class ElectraBuilder:
    """The official builder: one per document or, for parity, one for all with one `rng`."""

    def __init__(self, length: int, rng: Random, frame: ExampleFrame, overflow: Overflow) -> None:
        self.length, self.rng, self.frame = length, rng, frame
        self.carry = overflow == "carry"
        self.target = length
        self._lines: list[list[int]] = []
        self._start = 0  # where the first of them is still unused
        self._size = 0

    def document(self, lines: Iterable[list[int]]) -> Iterator[Example]:
        """The examples of one document; none spans two."""
        for line in lines:
            self._lines.append(line)
            self._size += len(line)
            while self._size >= self.target:
                yield self._example()
        while self._size:
            yield self._example()
        self._lines = []

    def draw_target(self) -> None:
        """Aim at the full length, or now and then at a random shorter one."""
        short = self.rng.random() < SHORT_TARGET
        self.target = self.rng.randint(SHORTEST_TARGET, self.length) if short else self.length

    def _example(self) -> Example:
        single = self.rng.random() < ONE_SEGMENT
        # Three places are for special tokens: [CLS] A [SEP] B [SEP].
        budget = NO_BUDGET if single else (self.target - 3) // 2
        first, second = _Segment(self.length), _Segment(self.length)
        for number, line in enumerate(self._lines):
            start = 0 if number else self._start
            size = len(line) - start
            # Officially a short line may join the first segment after the second has begun. Where
            # the rest is carried on the text must keep its order.
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
        rest = second.ids[: max(0, self.length - len(kept) - 3)]  # of the length, not of the target
        self._forget(len(kept) + len(rest) if self.carry else self._size)
        self.draw_target()
        return self.frame.segments(kept, rest)

    def _forget(self, count: int) -> None:
        """Drop the first `count` tokens of what waits to be used."""
        self._size -= count
        self._start += count
        while self._lines and self._start >= len(self._lines[0]):
            self._start -= len(self._lines.pop(0))
        if not self._lines:
            self._start = 0


class _Segment:
    """A segment under construction: its full size, and as many of its ids as can be used."""

    def __init__(self, most: int) -> None:
        self.ids: list[int] = []
        self.size, self.most = 0, most

    def add(self, line: list[int], start: int) -> None:
        self.ids += line[start : start + self.most - len(self.ids)]
        self.size += len(line) - start


def electra(
    lines: Iterable[list[int]], length: int, rng: Random, frame: ExampleFrame, overflow: Overflow
) -> Iterator[Example]:
    """The examples of one document, with randomness of its own.

    The official target length lives on from one document to the next; drawing it anew has the same
    distribution and makes a document's examples independent of the documents before it.
    """
    builder = ElectraBuilder(length, rng, frame, overflow)
    builder.draw_target()
    return builder.document(lines)


def line_pairs(
    lines: Iterable[list[int]], length: int, rng: Random, frame: ExampleFrame, overflow: Overflow
) -> Iterator[Example]:
    """Random pairs of the document's lines, each cut to half the length with its special tokens.

    After shoarora/lmtuners tokenize_and_cache_data.py, which drops the rest of a long line and the
    odd line out; with "carry" both are kept.
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
    """Documents one after another in full examples; a document goes on in the next one."""
    pieces: list[list[int]] = []
    free = length
    for document in documents:
        text = [token for line in document for token in line]
        place = 0
        while place < len(text):
            if pieces and free - 2 < min(SHORTEST_PIECE, len(text) - place):
                yield frame.documents(pieces)
                pieces, free = [], length
            pieces.append(text[place : place + free - 2])
            place += len(pieces[-1])
            free -= len(pieces[-1]) + 2
    if pieces:
        yield frame.documents(pieces)


def notes(manifest: Mapping[str, Any]) -> list[str]:
    """What a user should know about the examples of a folder of shards."""
    layout = manifest.get("identity", {}).get("settings", {}).get("layout")
    return [f"note: {NOTES[layout]}"] if layout in NOTES else []
