"""`electrify classify MODEL TEXT|FILE --template T --labels A,B`: classify texts without training.

Every label is put into the template after the text. The score of a label is the mean, over its
tokens, of the log-probability that the token is original (discriminators; Ni and Kao 2022, "ELECTRA
is a Zero-Shot Learner, Too") or of the token itself, if it is masked (masked language models).
--calibrate subtracts the score in the template without text (Zhao et al. 2021, "Calibrate Before
Use").
"""

# N texts, C labels

from collections import Counter
from pathlib import Path

import numpy as np

from electrify.config import check_minimum
from electrify.errors import UserError, visible
from electrify.finetuning.blimp.model import kind_of, load_scorer, scored_model
from electrify.finetuning.blimp.scoring import sentence_scores
from electrify.finetuning.encoder import open_encoder
from electrify.finetuning.options import Classify
from electrify.finetuning.own.data import (
    Columns,
    Texts,
    describe_header,
    extract_texts,
    find_columns,
    require_labels,
)
from electrify.finetuning.own.files import (
    JSON_LINES,
    TABLES,
    DataTable,
    add_columns,
    first_names,
    line_error,
    read_table,
    read_text,
    suffix_of,
)
from electrify.finetuning.own.predict import check_out, is_sentence, write_predictions
from electrify.finetuning.zeroshot.results import (
    ZeroShotResult,
    added_cells,
    describe_rows,
    describe_text,
    zero_shot_result,
)
from electrify.finetuning.zeroshot.template import fill_template, parse_labels, parse_template
from electrify.progress import progress


def classify(settings: Classify) -> ZeroShotResult:
    """Classify a sentence or the rows of a file; print the accuracy if the file has labels."""
    check_minimum(settings, length=0, limit=0)
    labels, template = parse_labels(settings.labels), parse_template(settings.template)
    names = parse_labels(settings.gold, "--gold 1,0") if settings.gold else labels
    if len(names) != len(labels):
        raise UserError(
            "--gold must name one value for each of --labels",
            got=f"{len(names)} values for {len(labels)} labels: {settings.gold}",
            fix="give them in the order of --labels: --labels great,terrible --gold 1,0",
        )
    if str(settings.file).strip() in ("", "."):  # Path("") is "."
        raise UserError("no text", got="an empty text", fix="give a text, or a file of texts")
    sentence = is_sentence(str(settings.file))
    table, texts, note = (_one_text if sentence else _read_rows)(settings)
    gold = _gold_labels(settings, texts, dict(zip(names, labels, strict=True)))
    suffix = _output_suffix(settings, sentence)
    if settings.out:
        check_out(settings.out)
    source = scored_model(settings.model)
    kind = settings.score if settings.score != "auto" else kind_of(source)
    encoder = open_encoder(source)
    length = min(settings.length or encoder.longest_text, encoder.longest)
    given = [*texts.first, *[""] * settings.calibrate]
    filled, truncated = fill_template(encoder, template, labels, given, length)
    scorer = load_scorer(source, kind, encoder, settings.device)
    with progress("classifying") as update:
        sums = sentence_scores(
            scorer,
            [one.encoding for one in filled],
            lambda done: update(done / len(filled), f"{done:,} texts with labels"),
            [one.unscored for one in filled],
        )
    counts = np.array([one.unscored.count(0) for one in filled])
    scores_NC = (sums / counts).reshape(-1, len(labels))
    if settings.calibrate:
        scores_NC = scores_NC[:-1] - scores_NC[-1]
    result = zero_shot_result(labels, scores_NC, gold)
    if truncated:
        cut = f"{truncated:,} texts do not fit into {length} tokens and are truncated"
        note = "\n".join(filter(None, [note, cut]))
    if settings.out:
        write_predictions(settings.out, add_columns(table, added_cells(result, suffix), suffix), [])
    described = describe_text(result) if sentence else describe_rows(result, labels)
    print(visible("\n".join(filter(None, [note, described]))))
    return result


def _one_text(settings: Classify) -> tuple[DataTable, Texts, str]:
    text = str(settings.file).strip()
    unused = {"--text": settings.text, "--label": settings.label, "--gold": settings.gold}
    if given := [f"{flag} {name}" for flag, name in unused.items() if name]:
        fix = "leave the option out, or give the path of a file"
        raise UserError("a sentence has no columns", got=" ".join(given), fix=fix)
    path = Path("the sentence")
    return DataTable(path, ["text"], [[text]], [1]), Texts(path, [text], None, None, [1]), ""


def _read_rows(settings: Classify) -> tuple[DataTable, Texts, str]:
    path, requested = Path(settings.file), Columns(settings.text, "", settings.label)
    table = read_table(path, read_text(path), requested)
    limit = settings.limit or None
    table = table._replace(rows=table.rows[:limit], lines=table.lines[:limit])
    columns = find_columns(table, requested)
    if columns.pair and not settings.text:
        raise UserError(
            f"{path} has two texts in every row",
            got=f"columns: {first_names(table.header)}",
            fix=f"choose one: --text {columns.text}",
        )
    texts = extract_texts(table, columns._replace(pair=""))
    return table, texts, describe_header(table, columns, requested)


def _gold_labels(settings: Classify, texts: Texts, meanings: dict[str, str]) -> list[str] | None:
    """Return the true label of every row; None if the file has none."""
    if texts.labels is None:
        if settings.gold:
            got, fix = f"--gold {settings.gold}", "name the column with --label"
            raise UserError(f"{settings.file} has no label column", got=got, fix=fix)
        return None
    for line, value in zip(texts.lines, require_labels(texts), strict=True):
        if value not in meanings:
            flag = f"--gold {settings.gold}" if settings.gold else f"--labels {settings.labels}"
            found = [value for value, _ in Counter(texts.labels).most_common(10)]
            raise line_error(
                texts.path,
                line,
                f"the label is not one of {flag.split()[0]}",
                got=f"{value!r}, with {flag}",
                fix=f"say what the file has for each label, in the order of --labels: "
                f"--gold {','.join(found)} (or its reverse), or choose a column with --label",
            )
    return [meanings[value] for value in texts.labels]


def _output_suffix(settings: Classify, sentence: bool) -> str:
    if settings.out is None:
        return ""
    suffix = suffix_of(settings.out)
    packed = settings.out.suffix in (".xz", ".zst", ".bz2", ".zip")
    if packed or suffix not in (*TABLES, *JSON_LINES):
        fix = "use an --out that ends in .csv, .tsv or .jsonl, or one of them and .gz"
        raise UserError(f"{settings.out} has an unknown format", got=settings.out.suffix, fix=fix)
    if not sentence and settings.out.resolve() == Path(settings.file).resolve():
        fix = "use another name"
        raise UserError("--out must not be the input file", got=f"{settings.out}", fix=fix)
    return suffix
