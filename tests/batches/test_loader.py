"""Batches are a pure function of shards, seed and step, with special ids from the tokenizer."""

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from electrify.batches.loader import Batch, Batches, BatchPlan, ahead, begins_word
from electrify.batches.masking import Masking
from electrify.errors import UserError
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.store import Shards, StoredExample
from electrify.tokens.tokenizer import LoadedTokenizer, from_vocabulary, load_tokenizer

LENGTH = 32
MASKING = Masking(0.15, LENGTH)
PLAIN = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
SUFFIXES = [f"##{word}" for word in PLAIN[:20]]
# No special token has the id that it has in BERT's vocabulary, and [PAD] is not 0.
SHIFTED = [*PLAIN[:7], "[MASK]", "[SEP]", "[PAD]", *PLAIN[7:], "[UNK]", *SUFFIXES, "[CLS]"]


class GeneratedExamples:
    """Examples that are generated when they are read, and a list of those that were."""

    folder, split = Path("generated"), "train"

    def __init__(self, tokenizer: LoadedTokenizer, count: int, length: int = LENGTH) -> None:
        self.special, self.count, self.length = tokenizer.special, count, length
        special = {self.special.pad, self.special.cls, self.special.sep}
        self.words = np.array([i for i in range(tokenizer.vocab_size) if i not in special])
        self.indices: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> StoredExample:
        self.indices.append(index)
        rng = np.random.default_rng(index)
        size = int(rng.integers(5, self.length + 1))
        ids = rng.choice(self.words, size)
        middle = size // 2
        ids[[0, middle, size - 1]] = self.special.cls, self.special.sep, self.special.sep
        return StoredExample(ids, np.array([middle + 1]))


@pytest.fixture(scope="module")
def shards(docs, vocab, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("batches") / "shards"
    prepare(Prepare(docs=(docs,), tokenizer=str(vocab), out=out, length=LENGTH, workers="1"))
    return out


def opened(shards: Path, seed: int = 3, size: int = 16, **options) -> Batches:
    tokenizer = load_tokenizer(shards / "tokenizer")
    return Batches(Shards(shards), tokenizer, MASKING, size, seed, **options)


def same(first: Batch, second: Batch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


STEPS = range(5, 9)
COMBINATIONS = list(product((1, 2, 4), (1, 2, 4), (0, 1, 3)))


@pytest.mark.parametrize(("world", "micro", "workers"), COMBINATIONS)
def test_processes_micro_batches_and_workers_change_nothing(shards, world, micro, workers):
    """The rows of all ranks together are the batch of a single process."""
    single = opened(shards)
    rows = single.batch_size // world
    micro_batches: dict[int, list[Batch]] = {step: [] for step in STEPS}
    for rank in range(world):
        for step, batch in ahead(opened(shards), STEPS, workers):
            local = batch.rows(rank * rows, (rank + 1) * rows)
            micro_batches[step] += [local.rows(i, i + micro) for i in range(0, rows, micro)]
    for step, parts in micro_batches.items():
        assert len(parts) == single.batch_size // micro
        fields = list(zip(*parts, strict=True))
        assert fields.pop() == (None,) * len(parts)  # rows are not packed
        assert same(Batch(*map(np.concatenate, fields)), single[step])


def test_global_random_generators_are_neither_used_nor_changed(shards):
    states = (random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state())
    first = opened(shards)[7]
    assert states[0] == random.getstate()
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert torch.equal(states[2], torch.get_rng_state())
    random.random(), np.random.rand(9), torch.rand(9)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    batches = opened(shards)
    for step in (100, 3, 8, 7):  # the order of access does not matter
        batch = batches[step]
    assert same(batch, first)


def test_seed_and_step_change_all_random_numbers(shards):
    first = opened(shards)[7]
    for other in (opened(shards)[8], opened(shards, seed=4)[7]):
        assert not np.array_equal(first.ids_BL, other.ids_BL)
        assert not np.array_equal(first.positions_BN, other.positions_BN)
        assert not np.any(first.uniforms_BN == other.uniforms_BN)


def test_an_example_is_masked_differently_in_every_epoch(shards):
    batches = opened(shards, shuffled=False)
    total = len(batches.examples)
    epoch = opened(shards, size=total, shuffled=False)
    assert np.array_equal(epoch[0].ids_BL, epoch[1].ids_BL)
    assert not np.array_equal(epoch[0].positions_BN, epoch[1].positions_BN)
    ids = batches[0].ids_BL
    for row in range(batches.batch_size):
        stored = batches.examples[row].ids
        assert np.array_equal(ids[row, : len(stored)], stored), "in order when not shuffled"


def test_two_epochs_contain_every_example_twice():
    """Also if a batch contains the end of one epoch and the start of the next."""
    tokenizer = from_vocabulary(SHIFTED)
    source = GeneratedExamples(tokenizer, count=37)
    batches = Batches(source, tokenizer, MASKING, 8, seed=0)
    for step in range(10):
        batches[step]
    assert sorted(source.indices[:37]) == list(range(37))
    assert sorted(source.indices[37:74]) == list(range(37))


def test_a_batch_reads_only_its_own_examples():
    """With 16 billion tokens in examples of 128, any batch costs as much as the first."""
    tokenizer = from_vocabulary(SHIFTED)
    source = GeneratedExamples(tokenizer, count=16_000_000_000 // 128)
    batches = Batches(source, tokenizer, MASKING, 128, seed=0)
    assert source.indices == []
    for step in (0, 900_000, 10**9):
        source.indices.clear()
        assert len(batches[step].ids_BL) == 128
        assert len(source.indices) == len(set(source.indices)) == 128


def test_padding_is_the_tokenizers_and_as_short_as_can_be():
    tokenizer = from_vocabulary(SHIFTED)
    assert 0 not in (tokenizer.special.pad, tokenizer.special.cls)
    source = GeneratedExamples(tokenizer, count=500, length=29)
    batches = Batches(source, tokenizer, MASKING, 2, seed=0)
    for step in range(100):
        source.indices.clear()
        batch = batches[step]
        examples = [source[index] for index in source.indices[:]]
        longest = max(len(example.ids) for example in examples)
        assert batch.ids_BL.shape[1] == min(29, -(-longest // 8) * 8)
        for row, example in enumerate(examples):
            size = len(example.ids)
            assert np.array_equal(batch.ids_BL[row, :size], example.ids)
            assert np.all(batch.ids_BL[row, size:] == tokenizer.special.pad)
            assert batch.attention_BL[row].tolist() == [1] * size + [0] * (len(batch.ids_BL[row]) - size)  # fmt: skip
            assert np.array_equal(batch.types_BL[row, :size], example.token_types())
            assert not batch.types_BL[row, size:].any()


@pytest.mark.parametrize("replacement", [False, True])
def test_special_tokens_are_the_tokenizers_and_never_hidden(replacement):
    """[UNK] may be; [CLS], [SEP], padding and a [MASK] in the text may not, whatever their ids."""
    tokenizer = from_vocabulary(SHIFTED)
    special = tokenizer.special
    masking = Masking(0.15, LENGTH, with_replacement=replacement)
    batches = Batches(GeneratedExamples(tokenizer, 2000), tokenizer, masking, 500, seed=0)
    chosen: list[int] = []
    for step in range(4):
        batch = batches[step]
        used = batch.weights_BN > 0
        assert np.all(used.any(axis=1)), "every row has a slot"
        row, _ = np.nonzero(used)
        positions = batch.positions_BN[used]
        assert np.all(batch.attention_BL[row, positions] == 1)
        chosen += batch.ids_BL[row, positions].tolist()
        changed = batch.masked_BL != batch.ids_BL
        assert np.all(batch.masked_BL[changed] == special.mask)
        slots = np.zeros_like(changed)
        slots[row, positions] = True
        assert np.all(slots[changed])
    assert not {special.cls, special.sep, special.mask, special.pad} & set(chosen)
    # Every other id is masked, including 0 and those that are special in BERT's vocabulary.
    others = set(range(tokenizer.vocab_size)) - {
        special.cls,
        special.sep,
        special.mask,
        special.pad,
    }
    assert special.unk in others
    assert set(chosen) == others


def test_whole_words_follow_the_marks_of_the_vocabulary():
    tokenizer = from_vocabulary(SHIFTED)
    begins = begins_word(tokenizer)
    assert begins.sum() == len(SHIFTED) - len(SUFFIXES)
    masking = Masking(0.15, LENGTH, whole_words=True)
    batches = Batches(GeneratedExamples(tokenizer, 300), tokenizer, masking, 100, seed=0)
    batch = batches[0]
    split = 0
    for ids, positions, weights in zip(batch.ids_BL, batch.positions_BN, batch.weights_BN, strict=True):  # fmt: skip
        chosen = set(positions[weights > 0].tolist())
        if len(chosen) == 1:
            continue  # at least one token is masked, even if no word is short enough
        for i in range(1, len(ids)):
            together = not begins[ids[i]] and (i - 1 in chosen or i in chosen)
            before = ids[i - 1] not in (batches.special.cls, batches.special.sep, batches.special.mask)  # fmt: skip
            if together and before:
                split += (i in chosen) != (i - 1 in chosen)
    assert split == 0


@pytest.mark.parametrize("mark", ["▁", "Ġ"])
def test_other_word_marks(mark):
    words = [*SHIFTED[7:10], "[UNK]", "[CLS]", f"{mark}a", "b", f"{mark}c"]
    begins = begins_word(from_vocabulary(words, lowercase=False))
    assert begins.tolist() == [word.startswith(mark) for word in words]


def test_batches_without_examples_or_word_marks_are_refused():
    tokenizer = from_vocabulary(SHIFTED)
    with pytest.raises(UserError, match="no train examples"):
        Batches(GeneratedExamples(tokenizer, 0), tokenizer, MASKING, 8, seed=0)
    unmarked = from_vocabulary([word for word in SHIFTED if not word.startswith("##")])
    with pytest.raises(UserError, match="whole-word"):
        Batches(
            GeneratedExamples(unmarked, 9), unmarked, MASKING._replace(whole_words=True), 8, seed=0
        )


def test_threads_keep_the_order_and_raise_errors():
    tokenizer = from_vocabulary(SHIFTED)
    source = GeneratedExamples(tokenizer, 100)
    batches = Batches(source, tokenizer, MASKING, 4, seed=0)
    assert [step for step, _ in ahead(batches, range(3, 20), 3)] == list(range(3, 20))
    stream = ahead(batches, range(10**9), 2)
    next(stream)
    stream.close()  # a run that ends early does not make the remaining batches
    assert len(source.indices) < 200
    source.words = np.array([])
    with pytest.raises(ValueError, match="cannot be empty"):
        list(ahead(batches, range(3), 2))


@pytest.mark.parametrize(("examples", "length"), [(1, 1), (16, 1), (17, 2), (160, 10)])
def test_the_length_is_one_epoch(examples, length):
    tokenizer = from_vocabulary(SHIFTED)
    source = GeneratedExamples(tokenizer, examples)
    batches = Batches(source, tokenizer, MASKING, 16, 3)
    assert len(batches) == length
    for step in range(length):
        batches[step]
    assert set(source.indices) == set(range(examples))


def test_a_data_loader_iterates_over_one_epoch(shards):
    batches = opened(shards)
    loaded = list(torch.utils.data.DataLoader(batches, batch_size=None))
    assert len(loaded) == len(batches)
    for step in (0, len(batches) - 1):
        assert np.array_equal(loaded[step].ids_BL, batches[step].ids_BL)


def test_the_rows_of_ranks_are_those_of_the_whole_batch(shards):
    tokenizer = Shards(shards).tokenizer()
    whole = Batches(Shards(shards), tokenizer, MASKING, 8, seed=3)
    for step in range(3):
        rows = [(0, 3), (3, 8)]
        for start, stop in rows:
            part = Batches(
                Shards(shards),
                tokenizer,
                MASKING,
                8,
                3,
                share=lambda size, a=start, b=stop: range(a, b),
            )[step]
            length = part.ids_BL.shape[1]  # only as long as the longest of its rows
            expected = whole[step].rows(start, stop)
            assert not expected.attention_BL[:, length:].any()
            for ours, theirs in zip(part[:-1], expected[:-1], strict=True):
                np.testing.assert_array_equal(ours, theirs[:, : ours.shape[1]])


def test_a_fixed_length_adds_padding_and_changes_nothing_else(shards):
    lengths = set()
    tokenizer = load_tokenizer(shards / "tokenizer")
    source = GeneratedExamples(tokenizer, 40)
    shortest, fixed = (
        Batches(source, tokenizer, MASKING, 2, seed=0, fixed_length=fixed)
        for fixed in (False, True)
    )
    for step in range(20):
        batch, padded = shortest[step], fixed[step]
        length = batch.ids_BL.shape[1]
        lengths.add(length)
        assert padded.ids_BL.shape == (2, LENGTH)
        assert not padded.attention_BL[:, length:].any()
        for ours, theirs in zip(batch[:-1], padded[:-1], strict=True):  # not packed
            np.testing.assert_array_equal(ours, theirs[:, : ours.shape[1]])
    assert len(lengths) > 1


def test_a_rank_verifies_the_shards_of_all_rows(shards):
    """So that all ranks stop at the same batch if a shard is damaged."""
    opened = []
    examples = Shards(shards)
    tokenizer = examples.tokenizer()
    examples.open_for = lambda indices: opened.append(len(indices))
    Batches(examples, tokenizer, MASKING, 8, seed=3, share=lambda size: range(2))[0]
    assert opened == [8]
    Batches(examples, tokenizer, MASKING, 8, seed=3)[0]
    assert opened == [8]


def test_shorter_rows_are_windows_of_their_examples(shards):
    examples = list(Shards(shards))
    batches = opened(shards, plan=lambda step: BatchPlan(step * 8, 8, 16, 0.15))
    starts = set()
    for step in range(20):
        batch = batches[step]
        assert batch.ids_BL.shape[1] <= 16
        for row, index in enumerate(batches._chosen(step * 8 + np.arange(8))):
            ids, whole = batch.ids_BL[row][batch.attention_BL[row] == 1], examples[int(index)].ids
            assert ids[0] == whole[0]
            assert ids[-1] == whole[-1]
            inner = [list(whole[i : i + len(ids) - 2]) for i in range(1, len(whole) - len(ids) + 2)]
            assert list(ids[1:-1]) in inner
            starts.add(inner.index(list(ids[1:-1])) / max(1, len(inner) - 1))
    assert min(starts) == 0  # windows may start anywhere, including both ends
    assert max(starts) == 1
    assert len(starts) > 5


def test_a_window_keeps_the_segments_that_it_reaches():
    example = StoredExample(np.arange(100, 120), np.array([10]))
    whole = example.window(20, 0.5)
    assert whole is example
    before, across, after = (example.window(8, draw) for draw in (0.0, 0.45, 0.99))
    assert list(before.ids) == [100, 101, 102, 103, 104, 105, 106, 119]
    assert before.token_types().tolist() == [0] * 8
    assert list(across.ids) == [100, 106, 107, 108, 109, 110, 111, 119]
    assert across.token_types().tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert list(after.ids) == [100, *range(113, 119), 119]
    assert after.token_types().tolist() == [0] * 8  # the only segment is the first
