"""Write files for the GLUE server, and validate them as the server would.

Each file has the header `index<TAB>prediction` and one row per test example, in order. Classes are
written as in `tasks.TASKS[…].labels`; STS-B has scores from 0 to 5 with three decimals. The zip
contains exactly the eleven files, and the same predictions always give the same bytes.
"""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from electrify.errors import UserError
from electrify.finetuning.glue.tasks import TASKS, GlueTask
from electrify.storage.commit import committed

TAB, CR = "\t", "\r"
HEADER = f"index{TAB}prediction"
FILLED = "WNLI.tsv"
"""Optional: without predictions, every row gets the majority class."""
MOST_BYTES = 50_000_000
FAULTS_SHOWN = 5

_SCORE = re.compile(r"(0|[1-9][0-9]*)\.[0-9]{3}")


class Wanted(NamedTuple):
    """A file that the server requires."""

    task: GlueTask
    rows: int


SUBMISSION_FILES: dict[str, Wanted] = {
    file.name: Wanted(task, file.rows) for task in TASKS.values() for file in task.submitted
}


def write_files(folder: Path, predictions: Mapping[str, Sequence[float]]) -> list[Path]:
    """Write predictions for some of `SUBMISSION_FILES` to a folder, in the server's format."""
    texts = {name: _text(name, values) for name, values in predictions.items()}
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        with committed(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
    return [folder / name for name in texts]


def pack(path: Path, predictions: Mapping[str, Sequence[float]]) -> list[str]:
    """Write the zip for the server; returns notes about files without predictions.

    `predictions` maps the file names of `SUBMISSION_FILES` to the class index (in the order of the
    task's `labels`) of each test row, or to its score for STS-B, which is clipped to 0 … 5.
    """
    given, notes = dict(predictions), []
    if FILLED not in given:
        given[FILLED] = [0] * SUBMISSION_FILES[FILLED].rows
        notes.append(f"{FILLED}: no predictions, filled with the majority class 0 (not_entailment)")
    unknown = given.keys() - SUBMISSION_FILES.keys()
    if unknown:
        got = ", ".join(sorted(unknown))
        fix = f"give predictions for {', '.join(SUBMISSION_FILES)}"
        raise UserError("the GLUE server does not know these files", got=got, fix=fix)
    missing = [name for name in SUBMISSION_FILES if name not in given]
    notes += [
        f"{name}: no predictions, left out; the server requires all files" for name in missing
    ]
    path.write_bytes(_zipped({name: _text(name, given[name]) for name in sorted(given)}))
    return notes


def _text(name: str, values: Sequence[float]) -> str:
    task, rows = SUBMISSION_FILES[name]
    if len(values) != rows:
        got = f"{len(values):,} predictions"
        fix = f"predict all {rows:,} rows of the official test file"
        raise UserError(f"{name} needs one prediction for each test row", got=got, fix=fix)
    low, high = task.score_range
    if _beyond_one(task) and all(value <= 1 for value in values):
        fix = f"use scores from {low:g} to {high:g}, not divided by {high:g}"
        raise UserError(f"{name}: no score is above 1", got=f"at most {max(values)}", fix=fix)
    words = (_word(name, row, value) for row, value in enumerate(values))
    return "\n".join([HEADER, *(f"{row}\t{word}" for row, word in enumerate(words))]) + "\n"


def _word(name: str, row: int, value: float) -> str:
    task = SUBMISSION_FILES[name].task
    words = task.labels
    if value not in range(len(words)) if words else not math.isfinite(value):
        got = f"{value}"
        fix = f"use a class index from 0 to {len(words) - 1}" if words else "use a finite score"
        raise UserError(f"{name}: row {row} has no valid prediction", got=got, fix=fix)
    if words:
        return words[int(value)]
    low, high = task.score_range
    return f"{min(max(float(value), low), high) + 0.0:.3f}"  # + 0.0: no -0.000


def _zipped(texts: Mapping[str, str]) -> bytes:
    """Return an uncompressed zip without timestamps: versions of zlib compress differently."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in texts.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, 0o644 << 16  # as on Unix, on every system
            archive.writestr(info, text.encode())
    return out.getvalue()


def validate_submission(path: Path) -> list[str]:
    """Return what the server would reject in a zip or a folder, one line each."""
    if not path.exists():
        raise UserError(
            f"no such file or folder: {path}", got=f"{path}", fix="use a submission zip"
        )
    found, faults = _folder(path) if path.is_dir() else _archive(path)
    if not found and faults:
        return faults
    by_lower = {name.lower(): name for name in SUBMISSION_FILES}
    for name in found.keys() - SUBMISSION_FILES.keys():
        near = by_lower.get(name.rpartition("/")[2].lower())
        fix = f"; should be {near} at the top level" if near else "; the server has no such file"
        faults.append(f"{name}: extra file{fix}")
    for name in SUBMISSION_FILES:
        if name in found:
            wrong = list(_faults(name, found[name]))
            faults += wrong[:FAULTS_SHOWN]
            if len(wrong) > FAULTS_SHOWN:
                faults.append(f"{name}: and {len(wrong) - FAULTS_SHOWN:,} more")
        else:
            faults.append(f"{name}: missing")
    return sorted(faults, key=lambda fault: fault.partition(":")[0])


def _folder(path: Path) -> tuple[dict[str, bytes], list[str]]:
    found, faults = {}, []
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            faults.append(f"{entry.name}/: a folder; files must be at the top level")
        elif (size := entry.stat().st_size) > MOST_BYTES:
            faults.append(f"{entry.name}: {size:,} bytes, too large")
        else:
            found[entry.name] = entry.read_bytes()
    return found, faults


def _archive(path: Path) -> tuple[dict[str, bytes], list[str]]:
    found: dict[str, bytes] = {}
    faults = []
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if entry.is_dir():
                    faults.append(f"{entry.filename}: a folder; files must be at the top level")
                elif entry.flag_bits & 1:
                    faults.append(f"{entry.filename}: encrypted")
                elif entry.file_size > MOST_BYTES:
                    faults.append(f"{entry.filename}: {entry.file_size:,} bytes, too large")
                elif entry.filename in found:
                    faults.append(f"{entry.filename}: appears twice in the zip")
                else:
                    found[entry.filename] = archive.read(entry)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, zlib.error) as error:
        faults.append(f"{path.name}: not a complete zip file ({error})")
    return found, faults


def _faults(name: str, content: bytes) -> Iterator[str]:
    """Yield the faults of a file, with their line numbers."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        yield f"{name}: line {_line(content[: error.start])}: not UTF-8"
        return
    if text.startswith("\ufeff"):
        yield f"{name}: line 1: starts with a byte-order mark"
        text = text.removeprefix("\ufeff")
    if "\r" in text:
        yield f"{name}: line {_line(text.partition(CR)[0].encode())}: CR; lines must end in LF only"
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.removesuffix("\n").split("\n")
    if lines[0] != HEADER:
        yield f"{name}: line 1: header {lines[0][:60]!r}, should be {HEADER!r}"
    start = 0 if lines[0].startswith("0\t") else 1  # rows are checked even without a header
    task, count = SUBMISSION_FILES[name]
    rows = lines[start:]
    if len(rows) != count:
        last = start + min(len(rows), count) + 1
        yield f"{name}: line {last}: {len(rows):,} rows, should be {count:,}"
    if _beyond_one(task) and not any(_above_one(row) for row in rows):
        low, high = task.score_range
        yield f"{name}: line {start + 1}: no score is above 1; they range from {low:g} to {high:g}"
    for index, row in enumerate(rows[:count]):
        if fault := _row_fault(task, index, row):
            yield f"{name}: line {start + index + 1}: {fault}"


def _line(before: bytes) -> int:
    return before.count(b"\n") + 1


def _row_fault(task: GlueTask, index: int, row: str) -> str:
    fields = row.split("\t")
    if len(fields) == 2 and fields[0] == str(index) and _is_answer(task, fields[1]):
        return ""
    if '"' in row or "'" in row:
        return f"quotes: {row[:60]!r}"
    if len(fields) != 2:
        return f"{len(fields)} columns, should be 2 separated by a tab: {row[:60]!r}"
    if fields[0] != str(index):
        return f"index {fields[0][:20]!r}, should be {str(index)!r}"
    low, high = task.score_range
    allowed = ", ".join(task.labels) or f"a score from {low:.3f} to {high:.3f} with three decimals"
    return f"{fields[1][:40]!r}, should be {' or '.join(allowed.rsplit(', ', 1))}"


def _is_answer(task: GlueTask, answer: str) -> bool:
    if task.labels:
        return answer in task.labels
    low, high = task.score_range
    return bool(_SCORE.fullmatch(answer)) and low <= float(answer) <= high


def _beyond_one(task: GlueTask) -> bool:
    """Return whether scores that are all at most 1 must have been divided by their maximum."""
    return not task.labels and task.score_range[1] > 1


def _above_one(row: str) -> bool:
    try:
        return float(row.rpartition("\t")[2].strip('"')) > 1
    except ValueError:
        return False
