"""The journal of an interrupted run equals that of an uninterrupted one."""

import json
import math
from pathlib import Path

import pytest

from electrify.errors import DamagedError
from electrify.training.journal import Journal, read_metrics, seconds_trained


def opened(run: Path, step: int) -> Journal:
    journal = Journal(run)
    journal.on_rewind(step)
    return journal


def loss_at(step: int) -> float:
    return 10 / (step + 1) ** 0.3


def record(journal: Journal, steps: range) -> None:
    for step in steps:
        journal.record(step, "train", {"loss": loss_at(step), "tokens": step * 100})
        if step % 3 == 0:
            journal.record(step, "validation", {"loss": loss_at(step) + 0.1})
        journal.timing(step, {"seconds": 0.5})


@pytest.mark.parametrize("torn", [b"", b'{"step": 9, "spl', b"\0\0\0", b"\xff\xfe"])
@pytest.mark.parametrize("resumed", [0, 3, 6, 8])
def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path, torn, resumed):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    journal = opened(unbroken, 0)
    record(journal, range(1, 13))
    journal.close()

    journal = opened(broken, 0)
    record(journal, range(1, 9))  # killed here, so never closed
    for name in ("metrics.jsonl", "timing.jsonl"):
        with (broken / name).open("ab") as file:
            file.write(torn)
    journal = opened(broken, resumed)
    record(journal, range(resumed + 1, 13))
    journal.close()

    for name in ("metrics.jsonl", "timing.jsonl"):
        assert (broken / name).read_bytes() == (unbroken / name).read_bytes()
    assert sorted(path.name for path in broken.iterdir()) == ["metrics.jsonl", "timing.jsonl"]


def test_rewinding_removes_later_records(tmp_path):
    journal = opened(tmp_path, 0)
    record(journal, range(1, 9))
    journal.on_rewind(5)
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 3, 3, 4, 5]
    record(journal, range(6, 8))
    assert [entry["step"] for entry in read_metrics(tmp_path)] == [1, 2, 3, 3, 4, 5, 6, 6, 7]
    journal.close()


def test_a_new_run_starts_with_empty_files(tmp_path):
    journal = opened(tmp_path, 0)
    record(journal, range(1, 4))
    journal.close()
    opened(tmp_path, 0).close()
    assert read_metrics(tmp_path) == []


def test_floats_are_preserved_and_lines_are_valid_json(tmp_path):
    numbers = [0.1, 1e-310, 1 / 3, 2.0**70, -0.0]
    journal = opened(tmp_path, 0)
    journal.record(1, "train", {str(n): number for n, number in enumerate(numbers)})
    journal.record(2, "train", {"loss": math.nan, "norm": math.inf})

    records = read_metrics(tmp_path)  # the journal is still open, and nothing is buffered
    assert [records[0][str(n)].hex() for n in range(5)] == [number.hex() for number in numbers]
    assert records[1] == {"step": 2, "split": "train", "loss": None, "norm": None}

    def refuse(word: str) -> None:
        raise AssertionError(word)

    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    journal.close()


@pytest.mark.parametrize("line", ["{", "[]", '{"split": "train"}', '{"step": "1"}'])
def test_damage_in_the_middle_is_an_error(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n{{"step": 2}}\n')
    with pytest.raises(DamagedError, match="line 2"):
        opened(tmp_path, 2)


def test_reading_a_run_without_metrics(tmp_path):
    assert read_metrics(tmp_path) == []


def test_the_time_of_a_run_is_the_sum_over_its_steps(tmp_path):
    journal = opened(tmp_path, 0)
    assert seconds_trained(tmp_path) == 0
    for step, rate in ((10, 5.0), (20, 2.0), (25, 0.5)):
        journal.timing(step, {"steps_per_second": rate})
    journal.close()
    assert seconds_trained(tmp_path) == pytest.approx(2 + 5 + 10)
