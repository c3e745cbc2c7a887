"""The example builders against golden numbers of the official code, and their properties."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electrify.tokens.examples import (
    ElectraBuilder,
    Example,
    ExampleFrame,
    electra,
    line_pairs,
    packed,
)

GOLDEN = Path(__file__).parent.parent / "golden"
FRAME = ExampleFrame(cls=101, sep=102)
builder_golden = json.loads((GOLDEN / "builder.json").read_text())

Lines = list[list[int]]


def padded(example: Example, length: int) -> tuple[list[int], list[int], list[int]]:
    """Return input_ids, segment_ids and input_mask like the official records."""
    count = len(example.ids)
    first = example.starts[0] if example.starts else count
    padding = [0] * (length - count)
    return (
        example.ids + padding,
        [0] * first + [1] * (count - first) + padding,
        [1] * count + padding,
    )


def official(documents: list[Lines], length: int, rng: Random) -> list[Example]:
    builder = ElectraBuilder(length, rng, FRAME, "drop")
    return [example for document in documents for example in builder.document(document)]


def golden_documents(name: str, blank_lines_end_documents: bool) -> Iterator[Lines]:
    with np.load(GOLDEN / "builder_lines.npz") as arrays:
        lengths, ids = arrays[f"{name}_lengths"], arrays[f"{name}_ids"]
    document: Lines = []
    start = 0
    for length in lengths:
        if length < 0:
            if blank_lines_end_documents:
                yield document
                document = []
            continue
        document.append(ids[start : start + length].tolist())
        start += length
    yield document


@pytest.mark.parametrize("run", builder_golden["real_text"])
def test_real_text_gives_the_official_examples(run):
    documents = [
        document
        for name in run["files"]
        for document in golden_documents(name, run["blank_lines_end_documents"])
    ]
    rng = Random(run["seed"])
    examples = official(documents, run["length"], rng)
    assert len(examples) == run["examples"]
    digest = hashlib.sha256()
    for column in zip(*(padded(e, run["length"]) for e in examples), strict=True):
        digest.update(np.array(column, dtype="<i4").tobytes())
    assert digest.hexdigest() == run["sha256"]
    assert rng.random() == run["next_random"], "not the official number of draws"


@pytest.mark.parametrize("run", builder_golden["seeded"]["runs"])
def test_generated_lines_give_the_official_examples(run):
    rng = Random(4242)
    documents: list[Lines] = [[]]
    for i in range(run["n_lines"]):
        if rng.random() < 0.08:
            documents.append([])
        else:
            count, start = rng.randint(1, 60), 1000 + (37 * i) % 20000
            documents[-1].append(list(range(start, start + count)))
    examples = official(documents, run["max_length"], Random(run["seed"]))
    content = json.dumps([padded(e, run["max_length"]) for e in examples], separators=(",", ":"))
    assert (
        hashlib.sha256(content.encode()).hexdigest()
        == run["sha256_of_json[[ids,segments,mask]...]"]
    )


class Scripted(Random):
    """Returns the given draws, then `default` forever."""

    def __init__(self, *draws: float, default: float = 0.99) -> None:
        super().__init__(0)
        self.draws, self.default = list(draws), default

    def random(self) -> float:
        return self.draws.pop(0) if self.draws else self.default

    def randint(self, low: int, high: int) -> int:
        return low


def lines_of(*lengths: int) -> Lines:
    return [list(range(1000 * i, 1000 * i + n)) for i, n in enumerate(lengths, start=1)]


CASES = {
    "one_500_token_line_L128": (lines_of(500), Scripted()),
    "lines_40x4_random_always_.99": (lines_of(40, 40, 40, 40), Scripted()),
    "out_of_order_10_60_20_60": (lines_of(10, 60, 20, 60), Scripted()),
    "spill_allowed_when_second_draw_lt_.5": (lines_of(10, 60, 20, 60), Scripted(0.99, 0.3)),
    "single_segment_when_first_draw_lt_.1": (lines_of(40, 40, 40, 40), Scripted(0.05)),
    "one_token_document": ([[5]], Scripted()),
    "random_target_length_5_after_first_example": (lines_of(500, 7, 90), Scripted(0.99, 0.01)),
    "short_target_but_long_line": (lines_of(500, 500), Scripted(0.99, 0.01)),
}


@pytest.mark.parametrize("name", builder_golden["cases"])
def test_single_cases(name):
    lines, rng = CASES[name]
    examples = official([lines], 128, rng)
    wanted = builder_golden["cases"][name]["examples"]
    assert len(examples) == len(wanted)
    for example, want in zip(examples, wanted, strict=True):
        assert len(example.ids) == want["n_tokens"]
        assert example.ids.index(FRAME.sep) == want["seg_boundary"]
        in_second = len(example.ids) - example.starts[0] if example.starts else 0
        assert in_second == want["n_segment1"]
        assert example.ids[: len(want["first_ids"])] == want["first_ids"]
        assert example.ids[-len(want["last_ids"]) :] == want["last_ids"]


lines_of_ids = st.lists(st.lists(st.integers(1000, 30000), max_size=90), max_size=12)
lengths = st.sampled_from([8, 16, 64, 128])


def without_frame(example: Example) -> list[int]:
    return [token for token in example.ids if token not in FRAME]


@settings(max_examples=200)
@given(lines_of_ids, lengths, st.integers(0, 9))
def test_carry_loses_nothing_and_keeps_the_order(lines, length, seed):
    examples = list(electra(lines, length, Random(seed), FRAME, "carry"))
    text = [token for line in lines for token in line]
    assert [token for example in examples for token in without_frame(example)] == text


@settings(max_examples=200)
@given(lines_of_ids, lengths, st.integers(0, 9), st.sampled_from(["carry", "drop"]))
def test_electra_examples_are_well_formed(lines, length, seed, overflow):
    for example in electra(lines, length, Random(seed), FRAME, overflow):
        assert 3 <= len(example.ids) <= length
        assert example.ids[0] == FRAME.cls
        assert example.ids[-1] == FRAME.sep
        assert example.ids.count(FRAME.cls) == 1
        assert example.ids.count(FRAME.sep) == 1 + len(example.starts)
        assert all(example.ids[start - 1] == FRAME.sep for start in example.starts)


@settings(max_examples=200)
@given(lines_of_ids, lengths, st.integers(0, 9), st.sampled_from(["carry", "drop"]))
def test_pairs_contain_each_line_once(lines, length, seed, overflow):
    numbered = [[1000 + i * 100 + j for j in range(len(line))] for i, line in enumerate(lines)]
    examples = list(line_pairs(numbered, length, Random(seed), FRAME, overflow))
    tokens = [token for example in examples for token in without_frame(example)]
    assert len(tokens) == len(set(tokens))
    assert all(len(example.ids) < length for example in examples)
    if overflow == "carry":
        assert sorted(tokens) == sorted(token for line in numbered for token in line)
    else:
        half = length // 2 - 2
        allowed = {token for line in numbered for token in line[:half]}
        assert set(tokens) <= allowed


def test_pairs_match_lmtuners():
    """Lines are cut to 64 with special tokens and paired, an odd one is dropped: at most 127 tokens."""
    examples = list(line_pairs(lines_of(100, 100, 100), 128, Random(0), FRAME, "drop"))
    assert [len(example.ids) for example in examples] == [127]
    assert examples[0].starts == [64]


@settings(max_examples=200)
@given(st.lists(lines_of_ids, max_size=6), lengths)
def test_packed_keeps_every_token_and_marks_every_document(documents, length):
    examples = list(packed(documents, length, FRAME))
    text = [token for document in documents for line in document for token in line]
    assert [token for example in examples for token in without_frame(example)] == text
    for example in examples:
        assert len(example.ids) <= length
        assert [i for i, t in enumerate(example.ids) if t == FRAME.cls] == [0, *example.starts]
    for example in examples[:-1]:
        assert len(example.ids) > length - 10 or length <= 16


def test_the_official_code_drops_as_many_tokens_as_documented():
    """The fidelity page says: 374 of the 500 tokens of one line at length 128."""
    (example,) = electra(lines_of(500), 128, Scripted(0.99, 0.99), FRAME, "drop")
    assert 500 - len(without_frame(example)) == 374


def test_fraction_of_single_segments_and_short_targets():
    rng = Random(0)
    builder = ElectraBuilder(128, rng, FRAME, "carry")
    document = [[7] * 20 for _ in range(60_000)]
    examples = list(builder.document(document))
    single = sum(not example.starts for example in examples) / len(examples)
    short = sum(len(example.ids) < 120 for example in examples) / len(examples)
    assert 0.09 < single < 0.16
    assert 0.035 < short < 0.06
