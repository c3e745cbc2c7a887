"""`electrify predict DIR FILE --out FILE`: predict labels or scores for the rows of a file.

A table keeps its columns and gets `prediction` and, for classes, the probability of each
(`probability_LABEL`; in JSON lines one object `probabilities`). Tagged sentences are written as
JSON lines with their keys and `prediction`, as CSV with one word per row, or CoNLL-style: a
CoNLL-style file keeps all its lines, with the tag after the columns of each word. A tagger reads
plain text as one sentence per line.
"""

import gzip
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electrify.config import check_minimum
from electrify.errors import UserError, visible
from electrify.finetuning.encoder import load_network, open_encoder
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Predict
from electrify.finetuning.own.command import describe_truncation, format_scores
from electrify.finetuning.own.data import Columns, extract_texts, find_columns
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    format_table,
    read_table,
    read_text,
    suffix_of,
)
from electrify.finetuning.own.headers import TrainingInfo, column_names, has_common_name
from electrify.finetuning.own.sentences import CONLL, Sentences, append_tags, read_for_tagging
from electrify.finetuning.own.target import (
    AUTO_CLASSES,
    MODEL_CLASSES,
    Data,
    OwnAnswer,
    OwnRows,
    Target,
    answers,
    measure,
    prepare_rows,
    target_from_config,
)
from electrify.progress import progress
from electrify.storage.commit import TABLE, checked_json, committed, damaged
from electrify.training.engine import Engine


def predict(settings: Predict) -> str:
    """Write and return the rows with predictions, and print the scores."""
    suffix = _suffix(settings)
    if (settings.model / ".parts").is_dir():
        got = "an interrupted fine-tuning run"
        fix = "run the same `electrify finetune` command again to resume it"
        raise UserError(f"{settings.model} is not finished", got=got, fix=fix)
    encoder = open_encoder(str(settings.model))
    target = target_from_config(encoder.config, str(settings.model))
    text = read_text(settings.file)
    data, table, note = _read(settings, target, text)
    length = min(settings.length or encoder.longest_text, encoder.longest)
    rows = prepare_rows(target, data, encoder, length, labelled=False)
    network = load_network(AUTO_CLASSES[target.kind], str(settings.model))
    model = MODEL_CLASSES[target.kind](network.to(Engine(device=settings.device).device))
    predictions = answers(target, rows, _outputs(model, rows, settings.batch_size))
    if isinstance(data, Sentences):
        content = _format_tags(data, table, text, predictions, suffix)
    else:
        content = _format_predictions(table, target, predictions, suffix)
    notes = [note, _score_note(target, data, predictions)]
    if rows.truncated:
        notes.insert(1, describe_truncation(settings.file, target, rows, length))
    _write(settings.out, content, [note for note in notes if note])
    return content


def _suffix(settings: Predict) -> str:
    if settings.out and settings.out.suffix in (".xz", ".zst", ".bz2", ".zip"):
        fix = "use a name that ends in .gz"
        raise UserError("predictions are compressed only by gzip", got=f"{settings.out}", fix=fix)
    suffix = suffix_of(settings.out or settings.file)
    if suffix not in (*TABLES, *JSON_LINES, *CONLL):
        got = suffix or "a name without suffix"
        fix = "use an --out that ends in .csv, .tsv or .jsonl"
        raise UserError(f"{settings.out or settings.file} has an unknown format", got=got, fix=fix)
    check_minimum(settings, length=0, batch_size=1)
    if settings.out and settings.out.resolve() == settings.file.resolve():
        fix = "use another name"
        raise UserError("--out must not be the input file", got=f"{settings.out}", fix=fix)
    return suffix


def _read(settings: Predict, target: Target, text: str) -> tuple[Data, DataTable, str]:
    """Return the rows of a file, its table, and a note if its form is not obvious from its name."""
    requested = Columns(settings.text, settings.pair, settings.label)
    if target.kind == "tags":
        objects = suffix_of(settings.file) in JSON_LINES
        table = read_table(settings.file, text) if objects else DataTable(settings.file, [], [], [])
        data = read_for_tagging(settings.file, text, requested, target.labels)
        plain = not objects and not data.word_lines
        note = f"{data.path}: plain text, one sentence per line" if plain else ""
        return data, table, note
    known = _training_columns(settings, requested)
    classes = target.labels if target.kind == "classes" else ()
    table = read_table(settings.file, text, requested, TrainingInfo(known or (), classes))
    columns = find_columns(table, _present(known, table, requested))
    note = _describe_header(table, columns, (*requested, *(known or ())))
    return extract_texts(table, columns), table, note


def _describe_header(table: DataTable, columns: Columns, expected: Sequence[str]) -> str:
    """Return a note on whether the first line is a header, unless its names make it obvious."""
    if table.numbered:
        return f"{table.path}: no header line; columns are numbered"
    obvious = columns.text in expected or has_common_name(table.header)
    if obvious or suffix_of(table.path) in JSON_LINES:
        return ""
    return f"{table.path}: the first line is a header; columns: {columns}"


def _training_columns(settings: Predict, requested: Columns) -> Columns | None:
    """Return the columns the model was fine-tuned with, unless others are requested."""
    path = settings.model / "result.json"
    if requested.text or requested.pair or not path.exists():
        return None
    columns = checked_json(path, {"columns": TABLE})["columns"]
    names = {name: columns.get(name, "") for name in Columns._fields}
    if not all(isinstance(name, str) for name in names.values()):
        raise damaged(path, f"columns: {columns!r:.100}, which are not column names")
    return Columns(**names)


def _present(known: Columns | None, table: DataTable, requested: Columns) -> Columns:
    """Return the columns the model was fine-tuned with if the file has them, or the requested ones.

    If the header has no common names, columns that the model knows by number are looked up by it.
    """
    if known and TrainingInfo(known).numbered and not table.numbered:
        by_name = dict(zip(column_names(len(table.header)), table.header, strict=True))
        common = has_common_name(table.header)
        known = None if common else Columns(*(by_name.get(name, name) for name in known))
    if known is None or any(n not in table.header for n in (known.text, known.pair) if n):
        return requested
    label = known.label if known.label in table.header else ""
    return Columns(known.text, known.pair, requested.label or label)


def _outputs(model: Any, rows: OwnRows, batch_size: int) -> list[NDArray[np.float32]]:
    done = 0
    with progress("predicting") as update:

        def collate(numbers: NDArray[np.int64]) -> Any:
            nonlocal done
            done += len(numbers)
            update(done / len(rows.lengths), f"{done:,} rows")
            return rows.collate(numbers)

        return outputs(model, rows.lengths, collate, batch_size)


def _format_predictions(
    table: DataTable, target: Target, predictions: Sequence[OwnAnswer], suffix: str
) -> str:
    added: list[dict[str, Any]] = []
    for answer in predictions:
        cells: dict[str, Any] = {"prediction": answer.prediction}
        if target.kind == "classes" and suffix in JSON_LINES:
            cells["probabilities"] = answer.probabilities
        elif target.kind == "classes":
            cells |= {f"probability_{label}": p for label, p in answer.probabilities.items()}
        added.append(cells)
    return _add_columns(table, added, suffix)


def _add_columns(table: DataTable, added: Sequence[dict[str, Any]], suffix: str) -> str:
    """Return a table with more cells in every row, replacing columns of the same name."""
    kept = [index for index, name in enumerate(table.header) if name not in added[0]]
    header = [*(table.header[index] for index in kept), *added[0]]
    pairs = zip(table.rows, added, strict=True)
    rows = [[*(row[index] for index in kept), *cells.values()] for row, cells in pairs]
    return format_table(header, rows, suffix)


def _format_tags(
    sentences: Sentences, table: DataTable, text: str, predictions: Sequence[OwnAnswer], suffix: str
) -> str:
    tags_by_sentence = [answer.prediction for answer in predictions]
    pairs = list(zip(sentences.words, tags_by_sentence, strict=True))
    if suffix == ".csv":
        rows = [
            [number, word, tag]
            for number, (words, tags) in enumerate(pairs, start=1)
            for word, tag in zip(words, tags, strict=True)
        ]
        return format_table(["sentence", "token", "prediction"], rows, suffix)
    if suffix in JSON_LINES and table.rows:
        return _add_columns(table, [{"prediction": tags} for tags in tags_by_sentence], suffix)
    if suffix in JSON_LINES:
        return format_table(["tokens", "prediction"], pairs, suffix)
    if sentences.word_lines:
        return append_tags(text, sentences.word_lines, tags_by_sentence)
    return "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
        for words, tags in pairs
    )


def _score_note(target: Target, data: Data, predictions: Sequence[OwnAnswer]) -> str:
    """Return the scores if every row has a label that the model knows, or why there are none."""
    labels = data.tags if isinstance(data, Sentences) else data.labels
    if labels is None or not any(labels):
        return ""
    tags = set(chain.from_iterable(data.tags or [])) if isinstance(data, Sentences) else set()
    unknown = sorted(tags.difference(target.labels))
    note = f"the model does not know the tags {', '.join(unknown[:10])}" if unknown else ""
    if unknown and len(unknown) == len(tags):
        return f"no scores: {note}"
    try:
        return "; ".join(filter(None, [format_scores(measure(target, data, predictions)), note]))
    except UserError as error:
        return f"no scores: {error.what}: {error.got}"


def _write(out: Path | None, content: str, notes: list[str]) -> None:
    if out is None:
        sys.stdout.write(content)
        print(visible("\n".join(notes)), file=sys.stderr, end="\n" if notes else "")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode("utf-8", errors="surrogatepass")
    with committed(out) as temporary:
        temporary.write_bytes(gzip.compress(raw, mtime=0) if out.suffix == ".gz" else raw)
    print(visible("\n".join([*notes, str(out)])))
