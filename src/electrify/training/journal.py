"""Write and read the metrics of a run, one JSON record per line.

    RUN/metrics.jsonl    {"step": 100, "split": "train", "loss": …}: independent of time and speed,
                         so a run that was interrupted ends with the same bytes
    RUN/timing.jsonl     {"step": 100, "tokens_per_second": …}: depends on the machine

Non-finite numbers are written as null, because JSON cannot represent them.
"""

import errno
import json
import os
from collections.abc import Iterable, Mapping
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
    r"""Return a record as a line of JSON; floats are preserved exactly.

    >>> as_line({"step": 3, "loss": 0.1, "norm": float("inf")})
    '{"step": 3, "loss": 0.1, "norm": null}\n'
    """
    return json.dumps(defined(record), ensure_ascii=False, allow_nan=False) + "\n"


def read_records(path: Path) -> list[dict[str, Any]]:
    """Read the records of a journal file, without an incomplete last line."""
    return parse_records(path.read_bytes(), path) if path.exists() else []


def parse_records(content: bytes, path: Path) -> list[dict[str, Any]]:
    """Parse the content of a journal file, without an incomplete last line."""
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
                fix="remove that line or the file",
            ) from error
        records.append(record)
    return records


def renamed(record: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with former metric names replaced by the current ones."""
    return {former.get(name, name): value for name, value in record.items()}


def read_metrics(run: Path, former: Mapping[str, str] = NO_NAMES) -> list[dict[str, Any]]:
    """Read the metrics of a run, which may still be training, under their current names."""
    return [renamed(record, former) for record in read_records(run / METRICS_FILE)]


def seconds_trained(run: Path) -> float:
    """Return how long a run has trained in seconds, from the speeds in its journal."""
    return seconds_logged(read_records(run / TIMING_FILE))


def seconds_logged(timing: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds that the records of timing.jsonl cover."""
    total, before = 0.0, 0
    for record in timing:
        total += (record["step"] - before) / record["steps_per_second"]
        before = record["step"]
    return total


def truncate_after(path: Path, step: int, former: Mapping[str, str] = NO_NAMES) -> None:
    """Keep only the records up to a step, under their current names."""
    records = (renamed(record, former) for record in read_records(path) if record["step"] <= step)
    content = "".join(map(as_line, records)).encode()
    if not path.exists() or path.read_bytes() != content:
        with committed(path) as temporary:
            temporary.write_bytes(content)


class Journal(Observer):
    """Appends records to the files of a run; `on_rewind(step)` opens them.

    A record that cannot be written is an error if `strict`, else a warning. Records under `former`
    metric names are renamed.
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
        """Remove the records after a step (0 for a new run) and append from there on."""
        for name in (METRICS_FILE, TIMING_FILE):
            if name in self._files:
                self._files[name].close()
            truncate_after(self._run / name, step, self._former)
            self._files[name] = (self._run / name).open("ab", buffering=0)

    def record(self, step: int, split: str, values: JournalRecord) -> None:
        """Record values that depend only on the seed, the data and the step."""
        self._append(METRICS_FILE, {"step": step, "split": split, **values})

    def timing(self, step: int, values: JournalRecord) -> None:
        """Record values that depend on the machine."""
        self._append(TIMING_FILE, {"step": step, **values})

    def on_save(self) -> None:
        """Flush the records to disk."""
        for file in self._files.values():
            os.fsync(file.fileno())

    def close(self) -> None:
        """Flush the records to disk and close the files."""
        self.on_save()
        for file in self._files.values():
            file.close()

    def _append(self, name: str, record: JournalRecord) -> None:
        # One unbuffered write, so that a kill leaves complete lines; a partial line that a full
        # disk leaves is removed.
        file, line = self._files[name], as_line(record).encode()
        begin = file.seek(0, os.SEEK_END)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "the disk is full", name)
        except OSError:
            file.truncate(begin)
            raise
