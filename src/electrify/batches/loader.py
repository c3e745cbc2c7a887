"""Read, pad and mask batch k of a run, as a pure function of the shards, the seed and k.

Every rank makes its own rows. Examples, masks and sampling numbers are functions of the row of the
global batch, so they do not depend on the number of ranks, micro-batches or threads, and the state
of the loader is one integer: the step.
"""

# B rows of the global batch, L length, N slots per row, K documents per row

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electrify.batches.batch import Batch
from electrify.batches.keyed_random import key_of, uniforms
from electrify.batches.masking import Flags, Ids, Masking, choose_slots, mask_tokens
from electrify.batches.mixture import Mixture
from electrify.batches.order import examples_at
from electrify.batches.packing import PackedRow, PackedRows
from electrify.errors import UserError
from electrify.tokens.store import Shards, StoredExample
from electrify.tokens.tokenizer import LoadedTokenizer, SpecialIds

PAD_TO_MULTIPLE = 8

ArrayBatch = Batch[NDArray[Any]]


class BatchPlan(NamedTuple):
    """What a global batch is made of."""

    first: int
    """The number of its first example, counted from the start of the run."""
    size: int
    """Number of rows."""
    length: int
    """Most tokens per row: longer examples are cut to a random window."""
    mask_rate: float


class Batches:
    """The batches of a run: `batches[k]`, for any k, over any number of epochs.

    Its length is that of one epoch, over which `DataLoader(batches, batch_size=None)` iterates. The
    last batch of an epoch may contain the first examples of the next one.
    """

    def __init__(
        self,
        examples: Shards | PackedRows | Mixture,
        tokenizer: LoadedTokenizer,
        masking: Masking,
        batch_size: int,
        seed: int,
        shuffled: bool = True,
        share: Callable[[int], range] = range,
        fixed_length: bool = False,
        plan: Callable[[int], BatchPlan] | None = None,
    ) -> None:
        if not len(examples):
            raise UserError(
                f"{examples.folder} has no {examples.split} examples",
                got="0 examples",
                fix="prepare more text, or a larger fraction for this split",
            )
        self.examples, self.special, self.masking = examples, tokenizer.special, masking
        self.batch_size, self.seed, self.shuffled = batch_size, seed, shuffled
        self.fixed_length = fixed_length
        """Whether batches are padded to the length of a full example, so that all are equal."""
        self.share = share
        """Maps the size of a global batch to the rows of it that are made."""
        self.plan = plan or self._unscheduled
        """Maps a step to the plan of its batch; by default only the first example changes."""
        self._begins_word = begins_word(tokenizer) if masking.whole_words else None

    def __len__(self) -> int:
        return -(-len(self.examples) // self.batch_size)

    def __getitem__(self, step: int) -> ArrayBatch:
        first, size, length, mask_rate = self.plan(step)
        rows_B = np.array(self.share(size), dtype=np.int64)
        shards, shared = self.examples, len(rows_B) < size
        if shared and not isinstance(shards, PackedRows) and not shards.all_open:
            # All ranks stop at the same batch if a shard is damaged; packing has read them all.
            shards.open_for(self._chosen(np.arange(first, first + size)))
        read = [self.examples[int(index)] for index in self._chosen(first + rows_B)]
        key = (self.seed, step)
        if length < self.examples.length:
            draws_B = uniforms(key_of(self.seed, "window", step), rows_B, 1)[:, 0]
            pairs = zip(read, draws_B, strict=True)
            read = [
                e.window(length, draw) if isinstance(e, StoredExample) else e for e, draw in pairs
            ]
        texts = self._padded(read, length)
        begins_BL = None if self._begins_word is None else self._begins_word[texts[0]]
        masking = self.masking._replace(rate=mask_rate, length=min(length, self.masking.length))
        batch = masked_batch(*texts, self.special, masking, key, begins_BL, rows_B)
        if isinstance(self.examples, PackedRows):
            batch = batch._replace(starts_BK=self.examples.document_starts(read))
        return batch

    def _chosen(self, numbers_B: Ids) -> Ids:
        """Return the indices of the examples with these numbers."""
        total = len(self.examples)
        if isinstance(self.examples, Mixture):
            return self.examples.chosen(numbers_B, self.seed)
        return examples_at(numbers_B, total, self.seed) if self.shuffled else numbers_B % total

    def _unscheduled(self, step: int) -> BatchPlan:
        size = self.batch_size
        return BatchPlan(step * size, size, self.examples.length, self.masking.rate)

    def _padded(
        self, read: Sequence[StoredExample | PackedRow], length: int
    ) -> tuple[Ids, Ids, Ids]:
        """Return the padded ids, the lengths and the token types of examples of up to a length.

        Packed rows are padded to the full length, so that every batch has the same shape.
        """
        lengths_B = np.array([len(example.ids) for example in read], dtype=np.int64)
        length = most = max(length, int(lengths_B.max()))
        if not self.fixed_length and not isinstance(self.examples, PackedRows):
            length = min(-(-int(lengths_B.max()) // PAD_TO_MULTIPLE) * PAD_TO_MULTIPLE, most)
        ids_BL = np.full((len(read), length), self.special.pad, dtype=np.int64)
        types_BL = np.zeros_like(ids_BL)
        for row, example in enumerate(read):
            ids_BL[row, : len(example.ids)] = example.ids
            types_BL[row, : len(example.ids)] = example.token_types()
        return ids_BL, lengths_B, types_BL


def masked_batch(
    ids_BL: Ids,
    lengths_B: Ids,
    types_BL: Ids,
    special: SpecialIds,
    masking: Masking,
    key: tuple[int, int],
    begins_BL: Flags | None = None,
    rows_B: Ids | None = None,
) -> ArrayBatch:
    """Mask padded rows; masks and sampling numbers are functions of the key (seed, step)."""
    rows_B = np.arange(len(ids_BL), dtype=np.int64) if rows_B is None else rows_B
    attention_BL = (np.arange(ids_BL.shape[1]) < lengths_B[:, None]).astype(np.int64)
    candidates_BL = ~np.isin(ids_BL, [special.cls, special.sep, special.mask])
    candidates_BL &= attention_BL.astype(bool)
    slots = choose_slots(candidates_BL, lengths_B, masking, key, rows_B, begins_BL)
    seed, step = key
    return Batch(
        ids_BL,
        mask_tokens(ids_BL, slots, special.mask, masking, key, rows_B),
        attention_BL,
        types_BL,
        slots.positions_BN,
        slots.weights_BN,
        uniforms(key_of(seed, "sample", step), rows_B, slots.positions_BN.shape[1]).astype(
            np.float32
        ),
    )


def begins_word(tokenizer: LoadedTokenizer) -> Flags:
    """Return for every id whether it starts a word, according to the marks "##", "▁" or "Ġ"."""
    names = [""] * tokenizer.vocab_size  # some ids may be unused
    for token, number in tokenizer.backend.get_vocab().items():
        names[number] = token
    if any(name.startswith("##") for name in names):
        return np.array([not name.startswith("##") for name in names])
    for mark in ("▁", "Ġ"):
        if any(name.startswith(mark) for name in names):
            return np.array([name.startswith(mark) for name in names])
    raise UserError(
        "whole-word masking needs a tokenizer that marks words",
        got='a vocabulary without "##", "▁" or "Ġ"',
        fix="set objective.whole_words to false, or use another tokenizer",
    )


def ahead(
    batches: Batches, steps: range, workers: int, depth: int = 4
) -> Iterator[tuple[int, ArrayBatch]]:
    """Yield the batches of a range of steps in order, made ahead of time by threads."""
    if workers == 0:
        yield from ((step, batches[step]) for step in steps)
        return
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[tuple[int, Future[ArrayBatch]]] = deque()
        for step in steps:
            pending.append((step, pool.submit(batches.__getitem__, step)))
            if len(pending) > depth:
                first, future = pending.popleft()
                yield first, future.result()
        for first, future in pending:
            yield first, future.result()
