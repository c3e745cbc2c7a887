"""What a run measured, line by line.

    RUN/metrics.jsonl    {"step": 100, "split": "train", "loss": …}: nothing that depends on when or
                         how fast, so a run that was interrupted ends with the same bytes
    RUN/timing.jsonl     {"step": 100, "tokens_per_second": …}: what depends on the machine

A number that is not finite is null, since JSON has no word for it.
"""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from electrify.errors import DamagedError
from electrify.storage.commit import committed, defined
from electrify.training.observer import Observer, warn

METRICS_FILE, TIMING_FILE = "metrics.jsonl", "timing.jsonl"

NO_NAMES: Mapping[str, str] = MappingProxyType({})

JournalRecord = Mapping[str, float | int | str | None]


def as_line(record: JournalRecord) -> str:
    r"""A record as a line of JSON; floats come back the same.

    >>> as_line({"step": 3, "loss": 0.1, "norm": float("inf")})
    '{"step": 3, "loss": 0.1, "norm": null}\n'
    """
    return json.dumps(defined(record), ensure_ascii=False, allow_nan=False) + "\n"


def records_of(path: Path) -> list[dict[str, Any]]:
    """The records of a journal's file; half a line at its end was never a record."""
    return records_in(path.read_bytes(), path) if path.exists() else []


def records_in(content: bytes, path: Path) -> list[dict[str, Any]]:
    """The records in what was read of a journal's file, which may have grown since."""
    *lines, _ = content.split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            if not isinstance(record["step"], int):
                raise TypeError(f"step is {record['step']!r}")
        except (ValueError, TypeError, KeyError) as error:
            raise DamagedError(
                f"{path} is damaged",
                got=f"line {number}: {error!r}",
                fix="remove that line, or the file",
            ) from error
        records.append(record)
    return records


def renamed(record: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with names as they are now; `former` has those that were used before."""
    return {former.get(name, name): value for name, value in record.items()}


def read_metrics(run: Path, former: Mapping[str, str] = NO_NAMES) -> list[dict[str, Any]]:
    """Read the metrics of a run, which may be training, under the names they have now."""
    return [renamed(record, former) for record in records_of(run / METRICS_FILE)]


def seconds_trained(run: Path) -> float:
    """How long the steps of a run took, with what came between them, by the rates it noted."""
    total, before = 0.0, 0
    for record in records_of(run / TIMING_FILE):
        total += (record["step"] - before) / record["steps_per_second"]
        before = record["step"]
    return total


def cut(path: Path, step: int, former: Mapping[str, str] = NO_NAMES) -> None:
    """Leave in a journal's file what was recorded up to a step, under the names of now."""
    records = (renamed(record, former) for record in records_of(path) if record["step"] <= step)
    kept = "".join(map(as_line, records))
    content = kept.encode()
    if not path.exists() or path.read_bytes() != content:
        with committed(path) as temporary:
            temporary.write_bytes(content)


class Journal(Observer):
    """Appends records to the files of a run, from `on_rewind(step)` on.

    Records that cannot be written are warned about, unless it is `strict`. What was recorded under
    `former` names gets those of now.
    """

    def __init__(
        self, run: Path, strict: bool = True, former: Mapping[str, str] = NO_NAMES
    ) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self._run, self._strict, self._former = run, strict, former
        self._files: dict[str, IO[bytes]] = {}

    def on_log(
        self, split: str, step: int, metrics: Mapping[str, float], timings: Mapping[str, float]
    ) -> None:
        """Record metrics and timings."""
        try:
            self.record(step, split, metrics)
            if timings:
                self.timing(step, timings)
        except OSError as error:
            if self._strict:
                raise
            warn(f"the metrics of step {step:,} could not be written: {error}")

    def on_rewind(self, step: int) -> None:
        """Forget what came after a step, 0 for a new run, and append from there on."""
        for name in (METRICS_FILE, TIMING_FILE):
            if name in self._files:
                self._files[name].close()
            cut(self._run / name, step, self._former)
            self._files[name] = (self._run / name).open("ab", buffering=0)

    def record(self, step: int, split: str, values: JournalRecord) -> None:
        """Note values that depend on nothing but the seed, the data and the step."""
        self._append(METRICS_FILE, {"step": step, "split": split, **values})

    def timing(self, step: int, values: JournalRecord) -> None:
        """Note values that depend on the machine and the moment."""
        self._append(TIMING_FILE, {"step": step, **values})

    def on_save(self) -> None:
        """Make the records last."""
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        """Make the records last, and stop."""
        self.on_save()
        for file in self._files.values():
            file.close()

    def _append(self, name: str, record: JournalRecord) -> None:
        # In one unbuffered write, so that a kill leaves whole lines; a full disk's half is undone.
        file, line = self._files[name], as_line(record).encode()
        begin = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "the disk is full", name)
        except OSError:
            file.truncate(begin)
            raise
