"""The data order of fine-tuning: each example once per epoch, similar lengths together."""

import json
from pathlib import Path

import numpy as np
import pytest

from electrify.finetuning.batches import Shuffled, batches_by_length
from electrify.finetuning.glue.presets import PRESETS, plan_for
from electrify.finetuning.glue.tasks import TASKS

GOLDEN = json.loads((Path(__file__).parent.parent / "golden/finetune.json").read_text())


def lengths(count: int) -> list[int]:
    return np.random.default_rng(0).integers(3, 100, count).tolist()


@pytest.mark.parametrize("count", [1, 31, 32, 33, 5000])
def test_every_example_is_seen_once_per_epoch(count):
    shuffled = Shuffled(lengths(count), 32, seed=1)
    for epoch in range(2):
        batches = [shuffled[epoch * shuffled.per_epoch + k] for k in range(shuffled.per_epoch)]
        assert sorted(np.concatenate([b.examples for b in batches])) == list(range(count))
        assert all(len(b.examples) == 32 for b in batches) or count % 32
        assert sum(len(b.examples) < 32 for b in batches) == bool(count % 32)


def test_batches_are_a_function_of_seed_and_index():
    one, other = Shuffled(lengths(500), 32, 1), Shuffled(lengths(500), 32, 1)
    for number in (40, 3, 17):
        assert (one[number].examples == other[number].examples).all()
    assert (one[0].examples != Shuffled(lengths(500), 32, 2)[0].examples).any()
    assert (one[0].examples != one[one.per_epoch].examples).any()


def test_rows_are_slices_that_end_with_the_batch():
    batch = Shuffled(lengths(40), 32, 0)
    sizes = {len(batch[0].examples), len(batch[1].examples)}
    assert sizes == {32, 8}
    small = next(batch[k] for k in (0, 1) if len(batch[k].examples) == 8)
    assert (small.rows(0, 5).examples == small.examples[:5]).all()
    assert len(small.rows(5, 32).examples) == 3


def test_similar_lengths_are_batched_together_to_save_padding():
    sizes = np.array(lengths(5000))
    shuffled = Shuffled(sizes, 32, 0)
    padded = sum(
        len(b) * sizes[b].max() for b in (shuffled[k].examples for k in range(shuffled.per_epoch))
    )
    assert padded < 1.05 * sizes.sum()
    firsts = [sizes[shuffled[k].examples].mean() for k in range(shuffled.per_epoch)]
    assert abs(np.corrcoef(firsts[:-1], firsts[1:])[0, 1]) < 0.3  # short batches do not come first


def test_prediction_batches_contain_every_example_once():
    batches = batches_by_length(lengths(100), 32)
    assert sorted(np.concatenate(batches)) == list(range(100))
    assert batches_by_length([], 32) == []


@pytest.mark.parametrize("name", TASKS)
def test_steps_and_doubled_counts_are_the_official_ones(name):
    short = {"sst2": "sst", "stsb": "sts"}.get(name, name)
    if short not in GOLDEN["finetune_steps"]:
        assert name == "wnli"  # which the official code does not have
        return
    golden, task = GOLDEN["finetune_steps"][short], TASKS[name]
    how = plan_for(PRESETS["official-code"], task, width=256)
    assert task.train_rows == golden["train_examples"]
    examples = task.train_rows * (2 if how.doubled else 1)
    assert examples == golden["after_double_unordered"]
    shuffled = Shuffled([1] * examples, how.fit.batch_size, 0)
    assert shuffled.per_epoch == golden["steps_per_epoch"]
    assert int(shuffled.per_epoch * how.fit.epochs) == golden["num_train_steps"]
    warmup = int(shuffled.per_epoch * how.fit.epochs) * how.fit.warmup
    assert warmup == pytest.approx(golden["warmup_steps_float"])
