"""`electrify predict DIR TEXT|FILE`: predict labels or scores for a sentence or the rows of a file.

An argument that is neither a file nor looks like the name of one is a sentence; its prediction is
printed with the probabilities of the likeliest classes. A table keeps its columns and gets
`prediction` and, for classes, the probability of each (`probability_LABEL`; in JSON lines one
object `probabilities`). Tagged sentences are written as JSON lines with their keys and
`prediction`, as CSV with one word per row, or CoNLL-style: a CoNLL-style file keeps all its lines,
with the tag after the columns of each word. A tagger reads plain text as one sentence per line.
"""

import gzip
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electrify.config import check_minimum
from electrify.errors import UserError, visible
from electrify.finetuning.devices import prediction_precision, recorded_precision
from electrify.finetuning.encoder import load_network, open_encoder
from electrify.finetuning.fit import outputs
from electrify.finetuning.options import Predict
from electrify.finetuning.own.command import describe_truncation
from electrify.finetuning.own.data import (
    Columns,
    describe_header,
    extract_texts,
    find_columns,
)
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    add_columns,
    first_names,
    format_table,
    read_table,
    read_text,
    suffix_of,
)
from electrify.finetuning.own.headers import TrainingInfo, column_names, has_common_name
from electrify.finetuning.own.sentences import (
    CONLL,
    OUTSIDE,
    Sentences,
    append_tags,
    read_for_tagging,
    split_words,
)
from electrify.finetuning.own.summary import format_scores
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

MOST_CLASSES = 5
"""How many classes are printed for a sentence."""


def predict(settings: Predict) -> str:
    """Write and return the rows with predictions, and print the scores."""
    sentence = is_sentence(str(settings.file))
    suffix = _suffix(settings, sentence)
    if (settings.model / ".parts").is_dir():
        got = "an interrupted fine-tuning run"
        fix = "run the same `electrify finetune` command again to resume it"
        raise UserError(f"{settings.model} is not finished", got=got, fix=fix)
    encoder = open_encoder(str(settings.model))
    target = target_from_config(encoder.config, str(settings.model))
    path = Path(SENTENCE if sentence else settings.file)
    text = str(settings.file).strip() if sentence else read_text(path)
    read = _one_sentence if sentence else _read
    data, table, note = read(settings, path, target, text)
    if settings.out:
        check_out(settings.out, partial(_matches, data, table, text, suffix))
    length = min(settings.length or encoder.longest_text, encoder.longest)
    rows = prepare_rows(target, data, encoder, length, labelled=False)
    network = load_network(AUTO_CLASSES[target.kind], str(settings.model))
    model = MODEL_CLASSES[target.kind](network.to(Engine(device=settings.device).device))
    predictions = answers(target, rows, _outputs(model, rows, settings))
    if sentence and not settings.out:
        content = _format_sentence(data, predictions[0])
    elif isinstance(data, Sentences):
        content = _format_tags(data, table, text, predictions, suffix)
    else:
        content = _format_predictions(table, target, predictions, suffix)
    notes = [note, _score_note(target, data, predictions)]
    if rows.truncated:
        notes.insert(1, describe_truncation(path, target, rows, length))
    write_predictions(settings.out, content, [note for note in notes if note])
    return content


SENTENCE = "the sentence"
"""What messages call a sentence instead of the path of a file."""


def is_sentence(argument: str) -> bool:
    """Return whether an argument is a text rather than the path of a file.

    A missing file with a known suffix, or with a folder in its path, is a mistake and no text.

    >>> is_sentence("Who wrote Emma?"), is_sentence("fine"), is_sentence("new.tsv")
    (True, True, False)
    """
    path = Path(argument)
    try:
        if path.exists():
            return False
    except OSError:  # longer than the name of a file may be
        return True
    if any(map(str.isspace, argument)):
        return True
    known = (*TABLES, *JSON_LINES, *CONLL)
    return suffix_of(path) not in known and path.suffix != ".gz" and "/" not in argument


def _suffix(settings: Predict, sentence: bool) -> str:
    if settings.out and settings.out.suffix in (".xz", ".zst", ".bz2", ".zip"):
        fix = "use a name that ends in .gz"
        raise UserError("predictions are compressed only by gzip", got=f"{settings.out}", fix=fix)
    check_minimum(settings, length=0, batch_size=1)
    if sentence and not settings.out:
        return ""
    suffix = suffix_of(settings.out or Path(settings.file))
    if suffix not in (*TABLES, *JSON_LINES, *CONLL):
        got = suffix or "a name without suffix"
        fix = "use an --out that ends in .csv, .tsv or .jsonl"
        raise UserError(f"{settings.out or settings.file} has an unknown format", got=got, fix=fix)
    if settings.out and not sentence and settings.out.resolve() == Path(settings.file).resolve():
        fix = "use another name"
        raise UserError("--out must not be the input file", got=f"{settings.out}", fix=fix)
    return suffix


def _one_sentence(
    settings: Predict, path: Path, target: Target, text: str
) -> tuple[Data, DataTable, str]:
    """Return a sentence, or a pair of texts, as the only row of a table."""
    given = {"--text": settings.text, "--label": settings.label}
    if any(given.values()) or not text:
        got = " ".join(f"{flag} {name}" for flag, name in given.items() if name) or "an empty text"
        fix = "leave the option out, or give the path of a file" if text else "give a text"
        raise UserError("a sentence has no columns" if text else "no text", got=got, fix=fix)
    table = DataTable(path, [], [], [1])
    if target.kind == "tags":
        return Sentences(path, [split_words(text)], None, [1]), table, ""
    known = _training_columns(settings, Columns())
    if known and bool(known.pair) != bool(settings.pair):
        wanted = "pairs of texts" if known.pair else "single texts"
        example = f'electrify predict {settings.model} "…"' + ' --pair "…"' * bool(known.pair)
        got = "one text" if known.pair else f"--pair {settings.pair!r}"
        raise UserError(f"the model was fine-tuned on {wanted}", got=got, fix=example)
    table = DataTable(path, ["text", *["pair"] * bool(settings.pair)], [[text]], [1])
    table.rows[0].extend([settings.pair] * bool(settings.pair))
    columns = Columns("text", "pair" if settings.pair else "")
    return extract_texts(table, columns), table, ""


def _format_sentence(data: Data, answer: OwnAnswer) -> str:
    """Return the prediction for a sentence: the likeliest classes, a score, or a tag per word."""
    if isinstance(data, Sentences):
        width = max(map(len, data.words[0]))
        pairs = zip(data.words[0], answer.prediction, strict=True)
        return "".join(f"{word:<{width}}  {tag}\n" for word, tag in pairs)
    if not answer.probabilities:
        return f"{answer.prediction:.6g}\n"
    likeliest = sorted(answer.probabilities.items(), key=lambda pair: -pair[1])
    others = len(likeliest) - MOST_CLASSES
    shown = likeliest[:MOST_CLASSES] if others > 1 else likeliest
    width = max(len(label) for label, _ in shown)
    lines = [f"{label:<{width}}  {probability:.3f}\n" for label, probability in shown]
    return "".join(lines) + f"and {others} less likely classes\n" * (others > 1)


def check_out(out: Path, is_ours: Callable[[str], bool] = lambda before: False) -> None:
    """Raise an error if predictions would overwrite anything but earlier predictions.

    Those have a column `prediction`, or `is_ours` recognizes their content.
    """
    if not out.is_file() or not (size := out.stat().st_size):
        return
    try:
        before = read_text(out)
    except UserError:
        before = ""
    if _PREDICTION.search(before.partition("\n")[0]) or is_ours(before):
        return
    raise UserError(
        f"{out} does not contain predictions",
        got=f"a file of {size:,} bytes",
        fix="use another --out, or remove the file; nothing was changed",
    )


def _matches(data: Data, table: DataTable, text: str, suffix: str, before: str) -> bool:
    """Return whether a file differs only in its last column from tags of the same sentences.

    Formats of tagged sentences have no header.
    """
    if not isinstance(data, Sentences):
        return False
    blank = [OwnAnswer([OUTSIDE] * len(words), {}) for words in data.words]
    now = _format_tags(data, table, text, blank, suffix)
    return _without_last_column(before) == _without_last_column(now)


_PREDICTION = re.compile(r'(?:^|[,\t{]) ?"?prediction"?(?:[:,\t]|\s*$)')
"""The name `prediction` in a header, or as a key of a JSON object."""


def _without_last_column(text: str) -> list[str]:
    return [re.sub(r"\S+$", "", line.rstrip()) for line in text.rstrip("\n").split("\n")]


def _read(settings: Predict, path: Path, target: Target, text: str) -> tuple[Data, DataTable, str]:
    """Return the rows of a file, its table, and a note if its form is not obvious from its name."""
    requested = Columns(settings.text, settings.pair, settings.label)
    if target.kind == "tags":
        objects = suffix_of(path) in JSON_LINES
        table = read_table(path, text) if objects else DataTable(path, [], [], [])
        data = read_for_tagging(path, text, requested, target.labels)
        plain = not objects and not data.word_lines
        note = f"{data.path}: plain text, one sentence per line" if plain else ""
        return data, table, note
    known = _training_columns(settings, requested)
    classes = target.labels if target.kind == "classes" else ()
    table = read_table(path, text, requested, TrainingInfo(known or (), classes))
    wanted = _present(known, table, requested)
    if known and known.pair and not wanted.text and table.numbered and len(table.header) == 2:
        wanted = Columns(*table.header)  # without a header, two columns are the two texts
    columns = find_columns(table, wanted)
    if known and known.pair and not columns.pair:
        raise UserError(
            f"{path}: the model was fine-tuned on pairs of texts",
            got=f"columns: {first_names(table.header)}",
            fix="use a table with two text columns: --text A --pair B; by number without a header",
        )
    note = describe_header(table, columns, (*requested, *(known or ())))
    return extract_texts(table, columns), table, note


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


def _outputs(model: Any, rows: OwnRows, settings: Predict) -> list[NDArray[np.float32]]:
    done, precision = 0, settings.precision
    if precision == "auto":
        trained = recorded_precision(settings.model) or "auto"
        precision = prediction_precision(trained, settings.device)
    with progress("predicting") as update:

        def collate(numbers: NDArray[np.int64]) -> Any:
            nonlocal done
            done += len(numbers)
            update(done / len(rows.lengths), f"{done:,} rows")
            return rows.collate(numbers)

        return outputs(model, rows.lengths, collate, settings.batch_size, precision)


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
    return add_columns(table, added, suffix)


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
        return add_columns(table, [{"prediction": tags} for tags in tags_by_sentence], suffix)
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


def write_predictions(out: Path | None, content: str, notes: list[str]) -> None:
    """Commit predictions to a file, or print them; notes go to standard error then."""
    if out is None:
        sys.stdout.write(content)
        print(visible("\n".join(notes)), file=sys.stderr, end="\n" if notes else "")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode("utf-8", errors="surrogatepass")
    with committed(out) as temporary:
        temporary.write_bytes(gzip.compress(raw, mtime=0) if out.suffix == ".gz" else raw)
    print(visible("\n".join([*notes, str(out)])))
