"""Batches: a pure function of shards, seed and step, with special ids from the tokenizer."""

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from electrify.batches.loader import Batch, Batches, ahead, begins_word
from electrify.batches.masking import Masking
from electrify.errors import UserError
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.store import Shards, StoredExample
from electrify.tokens.tokenizer import LoadedTokenizer, from_vocabulary, load_tokenizer

LENGTH = 32
MASKING = Masking(0.15, LENGTH)
PLAIN = [f"{a}{b}" for a in "abcdefgh" for b in "abcdefgh"]
PIECES = [f"##{word}" for word in PLAIN[:20]]
# No special token where BERT's vocabulary has it, and [PAD] is not 0.
SHIFTED = [*PLAIN[:7], "[MASK]", "[SEP]", "[PAD]", *PLAIN[7:], "[UNK]", *PIECES, "[CLS]"]


class Made:
    """Examples that are made when they are asked for, and a note of which were."""

    folder, split = Path("made"), "train"

    def __init__(self, tokenizer: LoadedTokenizer, count: int, length: int = LENGTH) -> None:
        self.special, self.count, self.length = tokenizer.special, count, length
        taken = {self.special.pad, self.special.cls, self.special.sep}
        self.words = np.array([i for i in range(tokenizer.vocab_size) if i not in taken])
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> StoredExample:
        self.asked.append(index)
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
    """What all processes see together is the batch that one process makes at once."""
    whole = opened(shards)
    share = whole.batch_size // world
    parts: dict[int, list[Batch]] = {step: [] for step in STEPS}
    for rank in range(world):
        for step, batch in ahead(opened(shards), STEPS, workers):
            mine = batch.rows(rank * share, (rank + 1) * share)
            parts[step] += [mine.rows(i, i + micro) for i in range(0, share, micro)]
    for step, seen in parts.items():
        assert len(seen) == whole.batch_size // micro
        assert same(Batch._make(np.concatenate(arrays) for arrays in zip(*seen, strict=True)), whole[step])  # fmt: skip


def test_other_random_numbers_are_neither_used_nor_needed(shards):
    states = (random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state())
    first = opened(shards)[7]
    assert states[0] == random.getstate()
    assert np.array_equal(states[1], np.random.get_state()[1])
    assert torch.equal(states[2], torch.get_rng_state())
    random.random(), np.random.rand(9), torch.rand(9)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    batches = opened(shards)
    for step in (100, 3, 8, 7):  # nor does the order in which they are asked for count
        batch = batches[step]
    assert same(batch, first)


def test_seed_and_step_change_everything_that_is_drawn(shards):
    first = opened(shards)[7]
    for other in (opened(shards)[8], opened(shards, seed=4)[7]):
        assert not np.array_equal(first.ids_BL, other.ids_BL)
        assert not np.array_equal(first.positions_BN, other.positions_BN)
        assert not np.any(first.uniforms_BN == other.uniforms_BN)


def test_an_example_is_masked_anew_in_every_epoch(shards):
    batches = opened(shards, shuffled=False)
    total = len(batches.examples)
    epoch = opened(shards, size=total, shuffled=False)
    assert np.array_equal(epoch[0].ids_BL, epoch[1].ids_BL)
    assert not np.array_equal(epoch[0].positions_BN, epoch[1].positions_BN)
    ids = batches[0].ids_BL
    for row in range(batches.batch_size):
        stored = batches.examples[row].ids
        assert np.array_equal(ids[row, : len(stored)], stored), "in order when not shuffled"


def test_two_epochs_hold_every_example_twice():
    """Also where a batch holds the end of one epoch and the begin of the next."""
    tokenizer = from_vocabulary(SHIFTED)
    made = Made(tokenizer, count=37)
    batches = Batches(made, tokenizer, MASKING, 8, seed=0)
    for step in range(10):
        batches[step]
    assert sorted(made.asked[:37]) == list(range(37))
    assert sorted(made.asked[37:74]) == list(range(37))


def test_a_batch_reads_its_own_examples_alone_however_many_there_are():
    """16 billion tokens in examples of 128: any batch costs as much as the first."""
    tokenizer = from_vocabulary(SHIFTED)
    made = Made(tokenizer, count=16_000_000_000 // 128)
    batches = Batches(made, tokenizer, MASKING, 128, seed=0)
    assert made.asked == []
    for step in (0, 900_000, 10**9):
        made.asked.clear()
        assert len(batches[step].ids_BL) == 128
        assert len(made.asked) == len(set(made.asked)) == 128


def test_padding_is_the_tokenizers_and_as_short_as_can_be():
    tokenizer = from_vocabulary(SHIFTED)
    assert 0 not in (tokenizer.special.pad, tokenizer.special.cls)
    made = Made(tokenizer, count=500, length=29)
    batches = Batches(made, tokenizer, MASKING, 2, seed=0)
    for step in range(100):
        made.asked.clear()
        batch = batches[step]
        examples = [made[index] for index in made.asked[:]]
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
    batches = Batches(Made(tokenizer, 2000), tokenizer, masking, 500, seed=0)
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
    # Every other id is: among them 0 and those that are special in BERT's vocabulary.
    others = set(range(tokenizer.vocab_size)) - {
        special.cls,
        special.sep,
        special.mask,
        special.pad,
    }
    assert special.unk in others
    assert set(chosen) == others


def test_whole_words_are_those_of_the_vocabulary():
    tokenizer = from_vocabulary(SHIFTED)
    begins = begins_word(tokenizer)
    assert begins.sum() == len(SHIFTED) - len(PIECES)
    masking = Masking(0.15, LENGTH, whole_words=True)
    batches = Batches(Made(tokenizer, 300), tokenizer, masking, 100, seed=0)
    batch = batches[0]
    split = 0
    for ids, positions, weights in zip(batch.ids_BL, batch.positions_BN, batch.weights_BN, strict=True):  # fmt: skip
        chosen = set(positions[weights > 0].tolist())
        if len(chosen) == 1:
            continue  # at least one token is hidden, though no word be short enough
        for place in range(1, len(ids)):
            together = not begins[ids[place]] and (place - 1 in chosen or place in chosen)
            before = ids[place - 1] not in (batches.special.cls, batches.special.sep, batches.special.mask)  # fmt: skip
            if together and before:
                split += (place in chosen) != (place - 1 in chosen)
    assert split == 0


@pytest.mark.parametrize("mark", ["▁", "Ġ"])
def test_other_marks_of_words(mark):
    words = [*SHIFTED[7:10], "[UNK]", "[CLS]", f"{mark}a", "b", f"{mark}c"]
    begins = begins_word(from_vocabulary(words, lowercase=False))
    assert begins.tolist() == [word.startswith(mark) for word in words]


def test_what_cannot_be_batched_says_why():
    tokenizer = from_vocabulary(SHIFTED)
    with pytest.raises(UserError, match="no train examples"):
        Batches(Made(tokenizer, 0), tokenizer, MASKING, 8, seed=0)
    unmarked = from_vocabulary([word for word in SHIFTED if not word.startswith("##")])
    with pytest.raises(UserError, match="whole-word"):
        Batches(Made(unmarked, 9), unmarked, MASKING._replace(whole_words=True), 8, seed=0)


def test_threads_keep_the_order_and_pass_errors_on():
    tokenizer = from_vocabulary(SHIFTED)
    made = Made(tokenizer, 100)
    batches = Batches(made, tokenizer, MASKING, 4, seed=0)
    assert [step for step, _ in ahead(batches, range(3, 20), 3)] == list(range(3, 20))
    some = ahead(batches, range(10**9), 2)
    next(some)
    some.close()  # a run that ends early does not make the batches that were to come
    assert len(made.asked) < 200
    made.words = np.array([])
    with pytest.raises(ValueError, match="cannot be empty"):
        list(ahead(batches, range(3), 2))


@pytest.mark.parametrize(("examples", "length"), [(1, 1), (16, 1), (17, 2), (160, 10)])
def test_the_length_is_that_of_an_epoch(examples, length):
    tokenizer = from_vocabulary(SHIFTED)
    made = Made(tokenizer, examples)
    batches = Batches(made, tokenizer, MASKING, 16, 3)
    assert len(batches) == length
    for step in range(length):
        batches[step]
    assert set(made.asked) == set(range(examples))


def test_a_data_loader_goes_through_an_epoch(shards):
    batches = opened(shards)
    loaded = list(torch.utils.data.DataLoader(batches, batch_size=None))
    assert len(loaded) == len(batches)
    for step in (0, len(batches) - 1):
        assert np.array_equal(loaded[step].ids_BL, batches[step].ids_BL)
