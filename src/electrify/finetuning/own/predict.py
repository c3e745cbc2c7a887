"""`electrify predict DIR FILE --out FILE`: what a model says of the rows of a file.

A table comes back with its own columns, then `prediction` and, for classes, the probability of each
(`probability_LABEL`; in JSON lines one object `probabilities`). Tagged sentences come back as JSON
lines with their own keys and `prediction`, as CSV with a word a row, or CoNLL-style: a CoNLL-style
file with all its lines, the tag after the columns of each word. Plain text given to a tagger is
text to tag, a sentence a line.
"""

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electrify.config import check_least
from electrify.errors import UserError
from electrify.finetuning.encoder import load_network, open_encoder
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Predict
from electrify.finetuning.own.command import describe_truncation, format_scores
from electrify.finetuning.own.data import Columns, find_columns, texts_of
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    read_table,
    read_text,
    suffix_of,
    written,
)
from electrify.finetuning.own.headers import Remembered, column_names, has_usual
from electrify.finetuning.own.sentences import CONLL, Sentences, read_to_tag, with_column
from electrify.finetuning.own.target import (
    AUTO,
    MODELS,
    Data,
    OwnAnswer,
    OwnRows,
    Target,
    answers,
    measure,
    prepare_rows,
    target_of,
)
from electrify.progress import progress
from electrify.storage.commit import TABLE, checked_json, committed, damaged
from electrify.training.engine import Engine


def predict(settings: Predict) -> str:
    """Write and return the rows with predictions; the scores go to the terminal."""
    suffix = _suffix(settings)
    if (settings.model / ".parts").is_dir():
        got = "a fine-tuning that was stopped"
        fix = "run the same `electrify finetune` again: it goes on where it stopped"
        raise UserError(f"{settings.model} is not finished", got=got, fix=fix)
    encoder = open_encoder(str(settings.model))
    target = target_of(encoder.config, str(settings.model))
    text = read_text(settings.file)
    data, table, form = _read(settings, target, text)
    most = min(settings.length or encoder.longest_text, encoder.longest)
    rows = prepare_rows(target, data, encoder, most, labelled=False)
    network = load_network(AUTO[target.kind], str(settings.model))
    model = MODELS[target.kind](network.to(Engine(device=settings.device).device))
    said = answers(target, rows, _outputs(model, rows, settings.batch_size))
    content = (
        _tagged(data, table, text, said, suffix)
        if isinstance(data, Sentences)
        else _table(table, target, said, suffix)
    )
    notes = [form, describe_truncation(settings.file, target, rows, most) if rows.cut else ""]
    notes.append(_scores(target, data, said))
    _write(settings.out, content, [note for note in notes if note])
    return content


def _suffix(settings: Predict) -> str:
    if settings.out and settings.out.suffix in (".xz", ".zst", ".bz2", ".zip"):
        raise UserError(
            "predictions are packed by gzip alone", got=f"{settings.out}", fix="end it in .gz"
        )
    suffix = suffix_of(settings.out or settings.file)
    if suffix not in (*TABLES, *JSON_LINES, *CONLL):
        got = suffix or "a name without suffix"
        fix = "give --out a name that ends in .csv, .tsv or .jsonl"
        raise UserError(f"{settings.out or settings.file} is in no known format", got=got, fix=fix)
    check_least(settings, length=0, batch_size=1)
    if settings.out and settings.out.resolve() == settings.file.resolve():
        raise UserError("--out is the file to read", got=f"{settings.out}", fix="give another name")
    return suffix


def _read(settings: Predict, target: Target, text: str) -> tuple[Data, DataTable, str]:
    """The rows of a file, its table, and how it was read where that is not plain from its name."""
    named = Columns(settings.text, settings.pair, settings.label)
    if target.kind == "tags":
        objects = suffix_of(settings.file) in JSON_LINES
        table = read_table(settings.file, text) if objects else DataTable(settings.file, [], [], [])
        data = read_to_tag(settings.file, text, named, target.labels)
        form = "" if objects or data.word_lines else f"{data.path}: plain text, one sentence a line"
        return data, table, form
    known = _remembered(settings, named)
    classes = target.labels if target.kind == "classes" else ()
    table = read_table(settings.file, text, named, Remembered(known or (), classes))
    columns = find_columns(table, _present(known, table, named))
    form = _header_said(table, columns, (*named, *(known or ())))
    return texts_of(table, columns), table, form


def _header_said(table: DataTable, columns: Columns, expected: Sequence[str]) -> str:
    """Whether the first line is a header, where its names do not say so."""
    if table.numbered:
        return f"{table.path}: no header line; columns have numbers"
    if suffix_of(table.path) in JSON_LINES or columns.text in expected or has_usual(table.header):
        return ""
    return f"{table.path}: the first line is a header; columns: {columns}"


def _remembered(settings: Predict, named: Columns) -> Columns | None:
    """The columns the model was fine-tuned with, where none are named."""
    path = settings.model / "result.json"
    if named.text or named.pair or not path.exists():
        return None
    columns = checked_json(path, {"columns": TABLE})["columns"]
    texts = {name: columns.get(name, "") for name in Columns._fields}
    if not all(isinstance(name, str) for name in texts.values()):
        raise damaged(path, f"columns: {columns!r:.100}, which are not names")
    return Columns(**texts)


def _present(known: Columns | None, table: DataTable, named: Columns) -> Columns:
    """The columns the model was fine-tuned with if the file has them, or those that are named.

    Under a header without usual names, columns that the model knows by number are those places.
    """
    if known and Remembered(known).numbered and not table.numbered:
        known = None if has_usual(table.header) else _by_number(known, table.header)
    if known is None or any(n not in table.header for n in (known.text, known.pair) if n):
        return named
    label = known.label if known.label in table.header else ""
    return Columns(known.text, known.pair, named.label or label)


def _by_number(known: Columns, header: Sequence[str]) -> Columns:
    by_name = dict(zip(column_names(len(header)), header, strict=True))
    return Columns(*(by_name.get(name, name) for name in known))


def _outputs(model: Any, rows: OwnRows, batch_size: int) -> list[NDArray[np.float32]]:
    done = 0
    with progress("predicting") as update:

        def collate(numbers: NDArray[np.int64]) -> Any:
            nonlocal done
            done += len(numbers)
            update(done / len(rows.lengths), f"{done:,} rows")
            return rows.collate(numbers)

        return outputs(model, rows.lengths, collate, batch_size)


def _table(table: DataTable, target: Target, said: Sequence[OwnAnswer], suffix: str) -> str:
    """The table, with what was predicted in place of columns of that name or after all others."""
    added: list[dict[str, Any]] = []
    for one in said:
        each = {f"probability_{label}": value for label, value in one.probabilities.items()}
        share = {"probabilities": one.probabilities} if suffix in JSON_LINES else each
        added.append({"prediction": one.prediction, **(share if target.kind == "classes" else {})})
    kept = [place for place, name in enumerate(table.header) if name not in added[0]]
    header = [*(table.header[place] for place in kept), *added[0]]
    pairs = zip(table.rows, added, strict=True)
    rows = [[*(row[place] for place in kept), *new.values()] for row, new in pairs]
    return written(header, rows, suffix)


def _tagged(
    sentences: Sentences, table: DataTable, text: str, said: Sequence[OwnAnswer], suffix: str
) -> str:
    pairs = [(w, one.prediction) for w, one in zip(sentences.words, said, strict=True)]
    if suffix == ".csv":
        rows = [
            [number, word, tag]
            for number, (words, tags) in enumerate(pairs, start=1)
            for word, tag in zip(words, tags, strict=True)
        ]
        return written(["sentence", "token", "prediction"], rows, suffix)
    if suffix in JSON_LINES and table.rows:
        kept = [place for place, name in enumerate(table.header) if name != "prediction"]
        rows = [
            [*(row[place] for place in kept), tags]
            for row, (_, tags) in zip(table.rows, pairs, strict=True)
        ]
        return written([*(table.header[place] for place in kept), "prediction"], rows, suffix)
    if suffix in JSON_LINES:
        return written(["tokens", "prediction"], pairs, suffix)
    if sentences.word_lines:
        return with_column(text, sentences.word_lines, [tags for _, tags in pairs])
    return "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
        for words, tags in pairs
    )


def _scores(target: Target, data: Data, said: Sequence[OwnAnswer]) -> str:
    """Scores, if every row has a label that the model knows."""
    labels = data.tags if isinstance(data, Sentences) else data.labels
    if labels is None or not any(labels):
        return ""
    gold = data.tags or [] if isinstance(data, Sentences) else []
    tags = {tag for some in gold for tag in some}
    unknown = sorted(tags.difference(target.labels))
    strange = f"the model does not know the tags {', '.join(unknown[:10])}" if unknown else ""
    if unknown and len(unknown) == len(tags):
        return f"no scores: {strange}"
    try:
        return "; ".join(filter(None, [format_scores(measure(target, data, said)), strange]))
    except UserError as error:
        return f"no scores: {error.what}: {error.got}"


def _write(out: Path | None, content: str, notes: list[str]) -> None:
    if out is None:
        sys.stdout.write(content)
        print("\n".join(notes), file=sys.stderr, end="\n" if notes else "")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode("utf-8", errors="surrogatepass")
    with committed(out) as temporary:
        temporary.write_bytes(gzip.compress(raw, mtime=0) if out.suffix == ".gz" else raw)
    print("\n".join([*notes, str(out)]))
