"""Packed rows hold every example once, and know where their documents start."""

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from electrify.batches.loader import Batches
from electrify.batches.masking import Masking
from electrify.batches.packing import PackedRows, compositions, pack_examples
from electrify.models.documents import document_numbers
from electrify.tokens.prepare import Prepare, prepare
from electrify.tokens.store import Shards
from electrify.tokens.tokenizer import load_tokenizer

LENGTH = 64


@pytest.fixture(scope="module", params=["electra", "packed"])
def folder(request, docs, vocab, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("packing") / request.param
    layout = {"length": LENGTH, "layout": request.param, "workers": "1"}
    prepare(Prepare(docs=(docs,), tokenizer=str(vocab), out=out, **layout))
    return out


def batches(folder: Path, **options) -> Batches:
    tokenizer = load_tokenizer(folder / "tokenizer")
    return Batches(PackedRows(Shards(folder)), tokenizer, Masking(0.15, LENGTH), 8, 3, **options)


@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_every_example_once_and_are_not_too_long(seed):
    rng = Random(seed)
    length = rng.choice([8, 30, 128])
    lengths = np.array([rng.randint(1, rng.randint(1, length)) for _ in range(rng.randint(1, 900))])
    examples, bounds = pack_examples(lengths, length)
    assert sorted(examples) == list(range(len(lengths)))
    sums = np.add.reduceat(lengths[examples], bounds[:-1])
    assert sums.max() <= length
    assert len(sums) < lengths.sum() / length * 11 / 9 + 1  # the bound of decreasing fits
    rows = compositions(np.bincount(lengths).tolist(), length)
    assert sum(count for count, _ in rows) == len(sums)
    assert list(examples[bounds[:-1]]) == sorted(examples[bounds[:-1]])


def test_no_examples_make_no_rows():
    examples, bounds = pack_examples(np.zeros(0, dtype=np.int64), 8)
    assert (len(examples), list(bounds)) == (0, [0])


def test_documents_have_their_tokens_types_and_starts(folder):
    shards = Shards(folder)
    rows, special = PackedRows(shards), load_tokenizer(folder / "tokenizer").special
    found, wanted = Counter(), Counter()
    for row in (rows[index] for index in range(len(rows))):
        ends = [*row.starts[1:], len(row.ids)]
        for start, end in zip(row.starts, ends, strict=True):
            ids, types = row.ids[start:end], row.token_types()[start:end]
            assert (ids[0], ids[-1]) == (special.cls, special.sep)
            found[ids.tobytes(), types.tobytes()] += 1
    for example in (shards[index] for index in range(len(shards))):
        if folder.name == "electra":
            wanted[example.ids.tobytes(), example.token_types().tobytes()] += 1
            continue
        for ids in np.split(example.ids, example.starts):
            wanted[ids.tobytes(), np.zeros(len(ids), dtype=np.int64).tobytes()] += 1
    assert found == wanted
    assert rows.tokens > 0.9 * len(rows) * LENGTH


def test_batches_have_one_shape_and_say_where_documents_start(folder):
    packed = batches(folder)
    special = packed.special
    shapes = set()
    for step in range(6):
        batch = packed[step]
        shapes.add((batch.ids_BL.shape, batch.starts_BK.shape))
        starts_BK, ends_B = torch.from_numpy(batch.starts_BK), batch.attention_BL.sum(axis=1)
        numbers_BL = document_numbers(starts_BK, LENGTH).numpy()
        begins_BL = np.diff(numbers_BL, axis=1, prepend=-1) > 0
        real_BL = batch.attention_BL.astype(bool)
        assert (batch.ids_BL[begins_BL & real_BL] == special.cls).all()
        assert (begins_BL & real_BL).sum() == (batch.ids_BL[real_BL] == special.cls).sum()
        for row, end in enumerate(ends_B):  # padding is a document of its own
            assert (numbers_BL[row, end:] == numbers_BL[row, end - 1] + 1).all()
        assert (batch.types_BL[begins_BL] == 0).all()
    assert shapes == {((8, LENGTH), (8, packed.examples.most_documents + 1))}


def test_ranks_make_their_rows_of_the_same_batch(folder):
    whole = batches(folder)[5]
    for rows in (range(3), range(3, 8)):
        part = batches(folder, share=lambda size, rows=rows: rows)[5]
        for name, field in part._asdict().items():
            assert np.array_equal(field, getattr(whole.rows(rows.start, rows.stop), name)), name


def test_an_epoch_has_every_row_once(folder):
    packed = batches(folder)
    numbers = packed._chosen(np.arange(len(packed.examples)))
    assert sorted(numbers) == list(range(len(packed.examples)))
    assert len(packed) == -(-len(packed.examples) // 8)
